"""`bridge.judge`: the rule in the prediction, its error rates, and what is refused."""

import dataclasses
import datetime
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import bracket, judge, prediction, record, verdict
from bridge.answer import Request, answer
from bridge.domains import DATA, Domain, find
from bridge.observation import Observation, observe
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
from fullscale.config import RunConfig
from tests.support.runs import Outcome, assert_refused, call, lqr_calibration, write_run
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


def placed(made: Prediction, folder: Path) -> Path:
    path = folder / "prediction.json"
    path.write_text(prediction.dumps(made))
    return path


def run(
    folder: Path, name: str, score: float, config: RunConfig | None = None, **how: bool
) -> Path:
    """A run of the prediction whose seeds scatter a little around a mean score."""
    config = config or MADE.run_config()
    around = 1e-5 * (np.arange(config.num_seeds) - (config.num_seeds - 1) / 2)
    return write_run(folder / name, config, (score + around).tolist(), **how)


def judged(folder: Path, *runs: Path, made: Prediction = MADE) -> Outcome:
    return call(judge.main, placed(made, folder), *runs, "--json")


# The rule --------------------------------------------------------------------------


def worlds(budget: int, number: int, seed: int) -> np.ndarray:
    """Mean scores of runs of the recommended setting if the law holds at a budget."""
    law = CALIBRATION.estimate(float(budget), {"num_envs": float(BEST)})
    rng = np.random.default_rng(seed)
    config = rng.normal(-(0.05**2) / 2, 0.05, number)
    seeds = rng.normal(-(0.1**2) / 2, 0.1, (number, SEEDS))
    gaps = law.gap[0, 0] * np.exp(config[:, None] + seeds)
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


# Runs ------------------------------------------------------------------------------


def test_survived(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    outcome = judged(tmp_path, run(tmp_path, "R", said.quantile(0.5)))
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.json["verdict"] == SURVIVED
    (cell,) = outcome.json["cells"]
    assert cell["num_envs"] == BEST
    assert cell["seeds"] == SEEDS
    assert cell["score"] == pytest.approx(said.quantile(0.5))
    assert cell["ddr"] == pytest.approx(MADE.config.samples_per_update / 1e-3)
    assert outcome.json["false_falsification_rate"] == 0.01


def test_words_say_observed_and_predicted(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    path = placed(MADE, tmp_path)
    out = call(judge.main, path, run(tmp_path, "R", said.quantile(0.5))).out
    assert out.startswith("survived: ")
    for words in ("observed -2.0", "predicted -2.0", "99%", "Rule", "persistence"):
        assert words in out


@pytest.mark.parametrize("sign", [-1, 1])
def test_falsified_on_either_side(sign: int, tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    far = said.score(said.centre + sign * 5 * said.spread)
    assert judged(tmp_path, run(tmp_path, "R", far)).json["verdict"] == FALSIFIED


def test_a_score_above_the_optimum_falsifies(tmp_path: Path) -> None:
    outcome = judged(tmp_path, run(tmp_path, "R", -1.0))
    assert outcome.json["verdict"] == FALSIFIED
    assert outcome.json["cells"][0]["deviation"] is None


def test_a_diverged_seed_falsifies(tmp_path: Path) -> None:
    config = MADE.run_config()
    folder = write_run(tmp_path / "R", config, [-2.01] * 4 + [math.nan])
    outcome = judged(tmp_path, folder)
    assert outcome.json["verdict"] == FALSIFIED
    assert outcome.json["cells"][0]["score"] is None
    assert call(judge.main, placed(MADE, tmp_path), folder).code == 0


def test_an_unfinished_run_decides_nothing(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -3.0, finished=False)
    outcome = judged(tmp_path, folder)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "not finished" in outcome.json["reason"]
    assert outcome.json["cells"][0]["unfinished"] == [str(folder)]
    assert "no finished run" in call(judge.main, placed(MADE, tmp_path), folder).out


def test_a_run_that_stopped_early_is_unfinished(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -3.0)
    log = folder / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    row = json.loads(lines[1])
    row["transitions"] -= MADE.config.samples_per_update
    lines[1] = json.dumps(row) + "\n"
    log.write_text("".join(lines))
    assert judged(tmp_path, folder).json["verdict"] == INCONCLUSIVE


def test_too_few_seeds_decide_nothing_and_can_be_added(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    middle = said.quantile(0.5)
    first = run(tmp_path, "A", middle, MADE.run_config(num_seeds=3))
    outcome = judged(tmp_path, first)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "3 seeds" in outcome.json["reason"]
    rest = run(tmp_path, "B", middle, MADE.run_config(num_seeds=2, seed=3))
    assert judged(tmp_path, first, rest).json["verdict"] == SURVIVED


def test_a_seed_counts_once(tmp_path: Path) -> None:
    first = run(tmp_path, "A", -2.01, MADE.run_config(num_seeds=3))
    again = run(tmp_path, "B", -2.01, MADE.run_config(num_seeds=3, seed=2))
    assert_refused(judged(tmp_path, first, again), "seed 2", "both")
    assert_refused(judged(tmp_path, first, first), "seed 0")


def test_several_numbers_of_environments(tmp_path: Path) -> None:
    other = BEST // 4
    said = MADE.cell(other).predictive
    assert said is not None
    far = said.score(said.centre - 5 * said.spread)
    here = run(tmp_path, "A", cell_of(MADE)[0].quantile(0.5))
    there = run(tmp_path, "B", far, MADE.run_config(num_envs=other))
    outcome = judged(tmp_path, here, there)
    assert outcome.json["verdict"] == FALSIFIED
    assert [cell["num_envs"] for cell in outcome.json["cells"]] == [other, BEST]


# Refusals --------------------------------------------------------------------------


def test_another_predictions_run_is_refused(tmp_path: Path) -> None:
    other = dataclasses.replace(MADE, domain="other")
    for config, words in (
        (other.run_config(), other.sha256[:12]),
        (MADE.config, "no prediction"),
    ):
        folder = run(tmp_path, words, -2.01, config)
        assert_refused(judged(tmp_path, folder), words, MADE.sha256[:12])


def test_a_hash_added_after_the_run_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -2.01, MADE.config)
    config = folder / "config.toml"
    text = config.read_text()
    assert 'prediction = ""' in text
    config.write_text(text.replace('prediction = ""', f'prediction = "{MADE.sha256}"'))
    assert_refused(judged(tmp_path, folder), "no prediction")


def test_a_run_from_before_the_prediction_is_refused(tmp_path: Path) -> None:
    late = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    made = dataclasses.replace(MADE, date=late.isoformat())
    folder = run(tmp_path, "R", -2.01, made.run_config())
    assert_refused(judged(tmp_path, folder, made=made), "before", late.isoformat())


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", 1e-3), ("budget", 10**6), ("clip_epsilon", 0.1),
     ("outer_learning_rate", 0.5), ("update_epochs", 1), ("rollout_length", 64),
     ("evaluation_episodes", 10)],
)  # fmt: skip
def test_a_changed_fixed_knob_is_named(key: str, value: float, tmp_path: Path) -> None:
    config = dataclasses.replace(MADE.run_config(), **{key: value})
    folder = run(tmp_path, "R", -2.01, config)
    assert_refused(judged(tmp_path, folder), f"{key} = {value!r}", "fixes")


def test_an_uncovered_number_of_environments_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(MADE.run_config(), num_envs=48)
    folder = run(tmp_path, "R", -2.01, config)
    assert_refused(judged(tmp_path, folder), "num_envs = 48", "covers")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -2.01)
    assert_refused(judged(tmp_path, tmp_path / "none"), "none")
    assert_refused(call(judge.main, tmp_path / "no.json", folder), "no.json")
    path = placed(MADE, tmp_path)
    assert_refused(call(judge.main, path), "RUN")
    path.write_text(path.read_text().replace("persistence", "persistance", 1))
    assert_refused(call(judge.main, path, folder), "damaged or was edited")
    log = folder / "metrics.jsonl"
    log.write_text("{" + log.read_text())
    assert_refused(judged(tmp_path, folder), "damaged at line 1")


# A prior ---------------------------------------------------------------------------


def prior_observation(num_envs: int, *scores: float) -> Observation:
    return Observation(num_envs=num_envs, scores=scores, ddr=(), unfinished=())


def decide_prior(*seen: Observation) -> str:
    return verdict.decide(PRIOR, seen).verdict


def test_one_run_cannot_decide_about_a_prior(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", 0.9, PRIOR.run_config())
    outcome = judged(tmp_path, folder, made=PRIOR)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "no score" in call(judge.main, placed(PRIOR, tmp_path), folder).out


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
    scores = {64: (1.0,) * 4, 128: (0.0,) * 4}
    assert bracket.judge_best(rule, scores, (1e3, 1e6))[0] == INCONCLUSIVE
    scores = {64: (1.0,) * 5, 128: (0.0,) * 5}
    assert bracket.judge_best(rule, scores, (1e3, 1e6))[0] == FALSIFIED
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


def test_observations_come_by_increasing_number(tmp_path: Path) -> None:
    folders = [
        run(tmp_path, str(n), -2.01, MADE.run_config(num_envs=n)) for n in (256, 64)
    ]
    assert [seen.num_envs for seen in observe(MADE, folders)] == [64, 256]
    assert observe(MADE, folders)[0].standard_error == pytest.approx(
        float(np.std(1e-5 * np.arange(5), ddof=1) / math.sqrt(5))
    )
