"""The verdict rule: its borders and its error rates, in worlds made to order."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import bracket, record, verdict
from bridge.answer import Request, answer
from bridge.domains import DATA, Domain, find
from bridge.observation import Observation
from bridge.prediction import Prediction
from bridge.predictive import Predictive
from bridge.rule import (
    BEST_NUM_ENVS,
    FALSIFIED,
    INCONCLUSIVE,
    SCORES,
    SURVIVED,
    Rule,
    Trial,
    judge_scores,
    survival_rate_if_right,
)
from tests.support.runs import lqr_calibration
from tests.support.statistical import assert_proportion

BUDGET, SEEDS = 16 * 10**6, 5  # four times the largest trained budget
CALIBRATION = lqr_calibration(num_draws=400)
LQR = Domain(name="lqr", environment="lqr", basis=DATA, calibration=CALIBRATION)
MADE = record.predict(answer(Request(budget=BUDGET, num_seeds=SEEDS), LQR))
PRIOR = record.predict(
    answer(Request(budget=10**12, num_seeds=SEEDS), find(None, None))
)
BEST = MADE.config.num_envs


def cell_of(made: Prediction) -> tuple[Predictive, Predictive]:
    cell = made.cell(made.config.num_envs)
    assert cell.predictive is not None
    assert cell.null is not None
    return cell.predictive, cell.null


def worlds(budget: int, number: int, seed: int) -> np.ndarray:
    """Mean scores of runs of the recommended setting if the law holds at a budget."""
    knobs = {"num_envs": float(BEST)}
    gap = CALIBRATION.estimate(float(budget), knobs).gap[0, 0]
    model, point = CALIBRATION.model, CALIBRATION.point
    seed_sd = math.sqrt(model.seed_variance(point, float(budget), knobs)[0, 0])
    rng = np.random.default_rng(seed)
    config = rng.normal(-(0.05**2) / 2, 0.05, number)
    seeds = rng.normal(1.0, seed_sd, (number, SEEDS))
    gaps = gap * np.exp(config)[:, None] * seeds
    return -2.0 - gaps.mean(axis=1)


def verdicts(scores: np.ndarray) -> list[str]:
    seen = [
        Observation(num_envs=BEST, scores=(float(s),) * SEEDS, ddr=(), unfinished=())
        for s in scores
    ]
    return [verdict.decide(MADE, [one]).verdict for one in seen]


def test_a_right_prediction_survives_and_is_falsified_at_the_stated_rates() -> None:
    found = verdicts(worlds(BUDGET, 5_000, seed=1))
    stated = MADE.survival_rate_if_right
    assert stated is not None
    assert stated > 0.75
    assert_proportion(found.count(SURVIVED), len(found), stated, effect=0.06)
    allowed = 0.01 + 5 * math.sqrt(0.01 * 0.99 / len(found))  # five standard errors
    assert found.count(FALSIFIED) / len(found) <= allowed


def test_a_right_null_model_rarely_lets_it_survive() -> None:
    null_budget = max(CALIBRATION.budgets)
    found = verdicts(worlds(null_budget, 5_000, seed=2))
    assert found.count(SURVIVED) / len(found) <= MADE.rule.false_survival_rate


@settings(max_examples=40)
@given(
    centre=st.floats(-3, 3),
    spread=st.floats(0.05, 3),
    shift=st.floats(-4, 4),
    ratio=st.floats(0.2, 5),
)
def test_survival_under_any_normal_null_is_rare(
    centre: float, spread: float, shift: float, ratio: float
) -> None:
    """Markov: P(p/q ≥ 20) ≤ 1/20 under q, whatever p and q are."""
    rule = Rule(kind=SCORES, min_seeds=5)
    said = Predictive(optimum=None, centre=centre, spread=spread)
    null = Predictive(
        optimum=None, centre=centre + shift * spread, spread=ratio * spread
    )
    survived = sum(
        judge_scores(
            rule,
            [Trial(predictive=said, null=null, score=null.quantile((i + 0.5) / 200))],
        )[0]
        == SURVIVED
        for i in range(200)
    )
    assert survived / 200 <= rule.false_survival_rate + 1 / 200


def test_what_says_the_same_as_the_null_cannot_survive() -> None:
    said, _ = cell_of(MADE)
    assert survival_rate_if_right(MADE.rule, said, said) == 0.0
    far = dataclasses.replace(said, centre=said.centre + 50 * said.spread)
    assert survival_rate_if_right(MADE.rule, said, far) == pytest.approx(0.8, abs=2e-3)


def test_the_borders_are_the_intervals() -> None:
    said, null = cell_of(MADE)
    rule = MADE.rule
    for level, inside, outside in (
        (0.99, INCONCLUSIVE, FALSIFIED),
        (0.8, SURVIVED, INCONCLUSIVE),
    ):
        for end, sign in zip(said.interval(level), (1, -1), strict=True):
            for step, expected in ((sign, inside), (-sign, outside)):
                score = said.score(said.position(end) + step * 1e-6)
                tested = Trial(predictive=said, null=null, score=score)
                assert judge_scores(rule, [tested])[0] == expected


def test_several_settings_share_the_error_rate() -> None:
    said, null = cell_of(MADE)
    beyond = Trial(
        predictive=said, null=null, score=said.score(said.centre + 2.6 * said.spread)
    )
    middle = Trial(predictive=said, null=null, score=said.quantile(0.5))
    assert judge_scores(MADE.rule, [beyond])[0] == FALSIFIED
    assert judge_scores(MADE.rule, [beyond, middle])[0] == INCONCLUSIVE
    assert judge_scores(MADE.rule, [middle, middle])[0] == SURVIVED


def test_two_weak_advantages_add_up() -> None:
    rule = Rule(kind=SCORES, min_seeds=1)
    said = Predictive(optimum=None, centre=0.0, spread=1.0)
    null = Predictive(optimum=None, centre=2.0, spread=1.0)
    one = Trial(predictive=said, null=null, score=0.0)
    assert one.advantage == pytest.approx(2.0)
    assert judge_scores(rule, [one])[0] == INCONCLUSIVE
    assert judge_scores(rule, [one, one])[0] == SURVIVED


def prior_observation(num_envs: int, *scores: float) -> Observation:
    return Observation(num_envs=num_envs, scores=scores, ddr=(), unfinished=())


def decide_prior(*seen: Observation) -> str:
    return verdict.decide(PRIOR, seen).verdict


def test_a_prior_is_falsified_from_outside_its_interval_only() -> None:
    low, high = PRIOR.best_num_envs
    end = 2 ** math.floor(math.log2(low))
    better = tuple(0.5 + 0.01 * i for i in range(5))
    worse = tuple(0.3 + 0.01 * i for i in range(5))
    near, far = prior_observation(end, *worse), prior_observation(end // 2, *better)
    assert decide_prior(near, far) == FALSIFIED
    assert decide_prior(
        prior_observation(end, *better), prior_observation(end // 2, *worse)
    ) == INCONCLUSIVE  # fmt: skip
    mixed = prior_observation(end // 2, *better[:4], 0.33)
    assert decide_prior(near, mixed) == INCONCLUSIVE
    inside = prior_observation(end * 8, *worse)
    assert decide_prior(inside, far) == INCONCLUSIVE
    assert low < end * 8 < high


def test_few_seeds_cannot_falsify_a_prior() -> None:
    rule = Rule(kind=BEST_NUM_ENVS, min_seeds=1)
    for seeds, expected in ((4, INCONCLUSIVE), (5, FALSIFIED)):
        scores = {64: (1.0,) * seeds, 128: (0.0,) * seeds}
        assert bracket.judge_best(rule, scores, (1e3, 1e6))[0] == expected
    above = {2**21: (0.0,) * 5, 2**22: (1.0,) * 5}
    assert bracket.judge_best(rule, above, (1e3, 1e6))[0] == FALSIFIED


def test_equal_settings_falsify_a_prior_no_more_often_than_stated() -> None:
    rule = Rule(kind=BEST_NUM_ENVS, min_seeds=5)
    rng = np.random.default_rng(3)
    found = [
        bracket.judge_best(
            rule,
            {n: tuple(rng.normal(size=5).tolist()) for n in (64, 128)},
            (1e3, 1e6),
        )[0]
        for _ in range(20_000)
    ]
    assert_proportion(found.count(FALSIFIED), len(found), 1 / 252, effect=0.006)
