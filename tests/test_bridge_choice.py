"""`bridge.choice` and `bridge.recipe`: what is compared, and how one is chosen."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bridge import recipe
from bridge.choice import ChoiceError, choose
from bridge.draws import member, quantile
from bridge.errors import UsageError
from bridge.evidence import from_calibration
from fullscale import presets
from tests.support.runs import lqr_calibration


@settings(max_examples=25)
@given(
    arrays(
        float,
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        elements=st.floats(1e-6, 1e6),
    )
)
def test_choice_equals_its_definition(gap: np.ndarray) -> None:
    draws, cells = gap.shape
    regret = [
        sum(gap[d][c] / min(gap[d]) - 1 for d in range(draws)) / draws
        for c in range(cells)
    ]
    made = choose(gap)
    np.testing.assert_allclose(made.regret, regret, rtol=1e-9, atol=1e-12)
    assert regret[made.index] <= min(regret) + 1e-9 * (1 + abs(min(regret)))
    inside = [c for c in range(cells) if made.regret[c] <= made.regret.min() + 0.05]
    assert (made.low, made.high) == (min(inside), max(inside))
    winners = sorted(int(np.argmin(row)) for row in gap)
    assert made.interval[0] == winners[math.ceil(0.1 * draws - 1e-9) - 1]
    assert made.interval[1] == winners[math.ceil(0.9 * draws - 1e-9) - 1]
    assert made.best_shares.sum() == pytest.approx(1.0)


def test_choice_is_the_same_in_other_score_units() -> None:
    gap = np.random.default_rng(0).lognormal(size=(50, 7))
    scale = np.random.default_rng(1).lognormal(size=(50, 1))
    assert choose(gap).index == choose(gap * scale).index
    np.testing.assert_allclose(choose(gap).regret, choose(gap * scale).regret)


@given(
    draws=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    level=st.sampled_from([0.1, 0.5, 0.8, 0.9, 0.995]),
)
def test_quantiles_are_numpys(draws: list[int], level: float) -> None:
    array = np.array(draws)
    told = np.quantile(array, level, method="inverted_cdf")
    assert member(array, level) == told
    told = np.quantile(array.astype(float), level)
    assert quantile(array.astype(float), level) == pytest.approx(float(told))


def test_choice_refuses_draws_without_a_gap() -> None:
    for bad in (0.0, math.inf, math.nan):
        with pytest.raises(ChoiceError, match="finite gap"):
            choose(np.array([[1.0, 2.0], [bad, bad]]))


def test_one_infinite_candidate_is_not_chosen() -> None:
    made = choose(np.array([[1.0, math.inf], [2.0, 1.0]]))
    assert made.index == 0
    assert made.regret[1] == math.inf


@settings(max_examples=25)
@given(st.integers(8192, 10**15))
def test_candidates_are_all_the_usable_powers_of_two(budget: int) -> None:
    configs = recipe.candidates("lqr", budget, 2)
    usable = [
        n
        for n in (2**k for k in range(50))
        if n * 32 % 512 == 0 and budget // (n * 32) >= 16 and n * 32 <= 2**40
    ]
    assert [c.num_envs for c in configs] == usable
    fixed = {(c.minibatch_size, c.learning_rate, c.update_epochs) for c in configs}
    assert len(fixed) == 1
    assert all(c.num_minibatches * 512 == c.num_envs * 32 for c in configs)


@pytest.mark.parametrize("environment", sorted(presets.PRESETS))
def test_the_budget_named_as_enough_is_the_least(environment: str) -> None:
    with pytest.raises(UsageError, match="too small") as caught:
        recipe.candidates(environment, 1, 1)
    least = int(str(caught.value).rsplit("budget of ", 1)[1].split()[0])
    assert len(recipe.candidates(environment, least, 1)) == 1
    with pytest.raises(UsageError):
        recipe.candidates(environment, least - 1, 1)


def test_a_forecast_is_of_what_the_run_uses() -> None:
    """Whole updates: the largest candidates leave up to 1/17 of the budget."""
    calibration = lqr_calibration()
    (*_, last) = configs = recipe.candidates("lqr", 17 * 2**20 - 1, 5)
    assert last.transitions < 0.98 * last.budget
    knobs = {"num_envs": np.array([float(last.num_envs)])}
    used = calibration.forecast(float(last.transitions), knobs, 5).expected.gap
    np.testing.assert_array_equal(
        from_calibration(calibration, configs).gap[:, -1], used[:, 0]
    )
