"""`theory.scores`: oracles by double loops, invariances, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theory import scores

values = st.floats(-100, 100)
observations = hnp.arrays(np.float64, 3, elements=values)
samples = hnp.arrays(np.float64, (7, 3), elements=values)


@given(observations, samples)
def test_crps_equals_its_definition(observed: np.ndarray, draws: np.ndarray) -> None:
    found = scores.crps(observed, draws)
    for cell in range(3):
        x = draws[:, cell]
        first = np.mean([abs(a - observed[cell]) for a in x])
        second = np.mean([abs(a - b) for a in x for b in x])
        assert found[cell] == pytest.approx(first - second / 2, abs=1e-9)


@given(observations, samples, st.floats(0.01, 100), values)
def test_crps_has_the_unit_of_the_outcome_and_no_origin(
    observed: np.ndarray, draws: np.ndarray, unit: float, origin: float
) -> None:
    one = scores.crps(observed, draws)
    two = scores.crps(unit * observed + origin, unit * draws + origin)
    assert np.all(one >= -1e-9)
    np.testing.assert_allclose(two, unit * one, rtol=1e-6, atol=1e-8 * unit + 1e-10)


def test_crps_prefers_the_truth() -> None:
    rng = np.random.default_rng(0)
    observed, draws = rng.normal(size=2000), rng.normal(size=(200, 2000))
    right = np.mean(scores.crps(observed, draws))
    assert right == pytest.approx(1 / math.sqrt(math.pi), rel=0.05)
    assert right < np.mean(scores.crps(observed, 2 * draws))
    assert right < np.mean(scores.crps(observed, draws / 2))
    assert right < np.mean(scores.crps(observed, draws + 0.5))


def test_coverage_of_the_truth_is_nominal() -> None:
    rng = np.random.default_rng(1)
    observed, draws = rng.normal(size=4000), rng.normal(size=(400, 4000))
    found = scores.coverage(observed, draws)
    for level, share in found.items():
        assert share == pytest.approx(level, abs=5 * math.sqrt(level / 4000))
    assert list(found) == [0.5, 0.8, 0.9]


def test_coverage_counts_the_ends_of_the_interval() -> None:
    draws = np.arange(5.0)[:, None] * np.ones(4)
    observed = np.array([-0.1, 1.0, 3.0, 3.1])
    assert scores.coverage(observed, draws, [0.5]) == {0.5: 0.5}


def test_skill_equals_a_loop_over_resamples() -> None:
    model, null = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 6.0, 5.0])
    configs = np.array([7, 7, 9, 9])
    found = scores.skill(model, null, configs)
    assert found.value == pytest.approx(1 - 10 / 15)
    # Two configurations: the resamples are (7, 7), (7, 9), (9, 9).
    assert found.low == pytest.approx(1 - 3 / 4)
    assert found.high == pytest.approx(1 - 7 / 11)


@given(
    hnp.arrays(np.float64, 6, elements=st.floats(0.1, 10)),
    hnp.arrays(np.float64, 6, elements=st.floats(0.1, 10)),
)
@settings(max_examples=30)
def test_skill_of_a_model_against_itself_is_none(
    model: np.ndarray, null: np.ndarray
) -> None:
    configs = np.array([0, 0, 1, 1, 2, 2])
    itself = scores.skill(model, model, configs)
    assert (itself.value, itself.low, itself.high) == pytest.approx((0, 0, 0))
    found = scores.skill(model, null, configs)
    assert found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12
    assert scores.skill(null * 0.5, null, configs).value == pytest.approx(0.5)


@given(hnp.arrays(np.float64, 5, elements=values), st.integers(0, 4))
def test_regret_share_lies_between_best_and_worst(
    measured: np.ndarray, chosen: int
) -> None:
    share = scores.regret_share(measured, chosen)
    assert 0 <= share <= 1
    assert scores.regret_share(measured, int(np.argmax(measured))) == 0
    if np.ptp(measured) > 0:
        assert scores.regret_share(measured, int(np.argmin(measured))) == 1


def test_regret_share_vector() -> None:
    assert scores.regret_share(np.array([1.0, 3.0, 2.0]), 2) == 0.5


def test_the_outcome_is_stated_and_monotone() -> None:
    assert scores.outcome_name(None) == "score"
    assert scores.outcome_name(-1.94) == "log gap"
    score = np.array([-3.0, -2.0])
    np.testing.assert_array_equal(scores.outcome(score, None), score)
    np.testing.assert_allclose(
        scores.outcome(score, -1.0), [math.log(2), 0], atol=1e-15
    )


def test_refusals() -> None:
    draws = np.zeros((3, 2))
    with pytest.raises(ValueError, match="not below the optimum"):
        scores.outcome(np.array([-2.0, -1.0]), -1.0)
    for bad in (np.array([0.0, math.nan]), np.array([math.inf, 0.0])):
        with pytest.raises(ValueError, match="finite"):
            scores.crps(bad, draws)
        with pytest.raises(ValueError, match="finite"):
            scores.coverage(bad, draws)
    with pytest.raises(ValueError, match="at least one draw"):
        scores.crps(np.zeros(2), np.zeros((0, 2)))
    with pytest.raises(ValueError, match="positive CRPS"):
        scores.skill(np.ones(2), np.zeros(2), np.array([0, 1]))
    with pytest.raises(ValueError, match="choice 3 is not one of 3"):
        scores.regret_share(np.zeros(3), 3)
    with pytest.raises(ValueError, match="finite"):
        scores.regret_share(np.array([math.nan, 0.0]), 0)
