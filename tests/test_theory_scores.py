"""`theory.scores`: oracles by double loops, invariances, refusals."""

import math

import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.statistical import assert_mean, assert_proportion
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


def test_skill_interval_of_many_blocks_is_that_of_the_ratio() -> None:
    rng = np.random.default_rng(2)
    null = rng.gamma(4, size=(300, 2))
    model = null * rng.gamma(4, 0.2, size=(300, 1))
    configs = np.repeat(np.arange(300), 2)
    found = scores.skill(model.ravel(), null.ravel(), configs, draws=20_000)
    ratio = np.sum(model) / np.sum(null)
    away = np.sum(model - ratio * null, axis=-1)
    reach = 1.645 * math.sqrt(np.sum(away**2)) / np.sum(null)
    assert found.value == pytest.approx(1 - ratio)
    assert found.low == pytest.approx(1 - ratio - reach, abs=0.15 * reach)
    assert found.high == pytest.approx(1 - ratio + reach, abs=0.15 * reach)


def test_skill_interval_of_two_blocks_by_hand() -> None:
    """Student's t of one degree of freedom: few blocks say little."""
    model, null = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 6.0, 5.0])
    found = scores.skill(model, null, np.array([7, 7, 9, 9]), draws=20_000)
    assert found.value == pytest.approx(1 - 10 / 15)
    logs = [math.log(ratio) for ratio in (10 / 15, 3 / 4, 7 / 11)]
    error = math.sqrt(sum((x - logs[0]) ** 2 for x in logs[1:]) / 2)
    width = math.log((1 - found.low) / (1 - found.high))
    assert width == pytest.approx(2 * 6.314 * error, rel=0.2)


def held(blocks: int, tables: int, seed: int) -> tuple[int, int]:
    """How often the interval, and the plain percentile one, hold the true skill."""
    rng = np.random.default_rng(seed)
    honest = plain = 0
    for table in range(tables):
        config = rng.normal(size=(2, blocks, 1))
        noise = rng.normal(size=(2, blocks, 2))
        null, model = np.exp(0.4 * config + 0.4 * noise)
        configs = np.repeat(np.arange(blocks), 2)
        found = scores.skill(model.ravel(), null.ravel(), configs, seed=table)
        honest += found.low <= 0 <= found.high
        chosen = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=500)
        values = 1 - chosen @ model.sum(axis=1) / (chosen @ null.sum(axis=1))
        low, high = np.quantile(values, [0.05, 0.95])
        plain += low <= 0 <= high
    return honest, plain


@pytest.mark.parametrize("blocks", [6, 12])
def test_skill_interval_is_as_honest_as_it_says(blocks: int) -> None:
    honest, _ = held(blocks, 1500, seed=blocks)
    assert_proportion(honest, 1500, 0.9, effect=0.08)


def test_a_plain_bootstrap_of_few_blocks_is_not() -> None:
    _, plain = held(6, 1500, seed=1)
    with pytest.raises(AssertionError):
        assert_proportion(plain, 1500, 0.9, effect=0.08)


def test_a_single_block_has_no_width() -> None:
    found = scores.skill(np.array([1.0, 2]), np.array([2.0, 2]), np.array([3, 3]))
    assert (found.low, found.high) == pytest.approx((found.value, found.value))


@settings(max_examples=20)
@given(
    hnp.arrays(np.float64, 4, elements=st.floats(0.1, 10)),
    st.floats(0.01, 100),
    st.permutations(range(4)),
)
def test_skill_has_no_unit_and_no_order(
    model: np.ndarray, unit: float, order: list[int]
) -> None:
    null, configs = np.array([1.0, 2, 3, 4]), np.array([0, 0, 1, 2])
    order = sorted(order, key=lambda cell: configs[cell])
    one = scores.skill(model, null, configs)
    two = scores.skill(unit * model[order], unit * null[order], configs[order])
    assert (two.value, two.low, two.high) == pytest.approx(
        (one.value, one.low, one.high), rel=1e-6, abs=1e-9
    )


# Whole distributions.


def test_pit_of_the_truth_is_uniform() -> None:
    rng = np.random.default_rng(3)
    observed, draws = rng.normal(size=4000), rng.normal(size=(400, 4000))
    for width, right in ((1.0, True), (0.5, False), (2.0, False)):
        counts = scores.pit_histogram(scores.pit(observed, width * draws), bins=4)
        assert counts.sum() == 4000
        if right:
            for count in counts.tolist():
                assert_proportion(count, 4000, 0.25, effect=0.1)
        else:
            with pytest.raises(AssertionError):
                assert_proportion(int(counts[0]), 4000, 0.25, effect=0.1)


@given(observations, samples)
def test_pit_is_a_count(observed: np.ndarray, draws: np.ndarray) -> None:
    found = scores.pit(observed, draws)
    for cell in range(3):
        below = sum(float(x < observed[cell]) for x in draws[:, cell])
        ties = sum(float(x == observed[cell]) for x in draws[:, cell])
        assert found[cell] == pytest.approx((below + ties / 2) / 7)
    np.testing.assert_allclose(scores.pit(-observed, -draws), 1 - found, atol=1e-12)


def test_log_score_equals_another_library() -> None:
    rng = np.random.default_rng(4)
    observed, draws = rng.normal(size=50), rng.normal(size=(200, 50)) * 2 + 0.3
    expected = scoringrules.logs_ensemble(observed, draws, m_axis=0)
    np.testing.assert_allclose(scores.log_score(observed, draws), expected, rtol=1e-2)


def test_log_score_of_the_truth_is_its_entropy() -> None:
    rng = np.random.default_rng(5)
    observed, draws = rng.normal(size=4000), rng.normal(size=(1000, 4000))
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    found = scores.log_score(observed, draws)
    assert_mean(found, entropy, effect=0.15)
    assert np.mean(scores.log_score(observed, draws + 1)) > np.mean(found)


@given(observations, samples, st.floats(0.01, 100), values)
def test_log_score_knows_its_unit(
    observed: np.ndarray, draws: np.ndarray, unit: float, origin: float
) -> None:
    draws = draws + 3 * np.linspace(-1, 1, 7)[:, None] ** 3
    one = scores.log_score(observed, draws)
    two = scores.log_score(unit * observed + origin, unit * draws + origin)
    finite = np.isfinite(one) & (one < 1e6)
    np.testing.assert_allclose(two[finite], one[finite] + math.log(unit), rtol=1e-4,
                               atol=1e-4)  # fmt: skip


def test_log_score_of_the_impossible() -> None:
    draws = np.ones((5, 2))
    assert np.all(np.isinf(scores.log_score(np.array([2.0, 0.0]), draws)))


@pytest.mark.parametrize("cells", [1, 7, 50])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_band_holds_as_often_as_it_says(cells: int, level: float) -> None:
    low, high = scores.coverage_band(cells, level)
    chance = [
        math.comb(cells, k) * level**k * (1 - level) ** (cells - k)
        for k in range(cells + 1)
    ]
    inside = [k for k in range(cells + 1) if low <= k / cells <= high]
    assert sum(chance[k] for k in inside) >= 0.9
    assert sum(chance[k] for k in inside[1:-1]) < 0.9


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
        with pytest.raises(ValueError, match="finite"):
            scores.pit(bad, draws)
        with pytest.raises(ValueError, match="finite"):
            scores.log_score(bad, draws)
    with pytest.raises(ValueError, match="at least one draw"):
        scores.crps(np.zeros(2), np.zeros((0, 2)))
    with pytest.raises(ValueError, match="at least two draws"):
        scores.log_score(np.zeros(2), np.zeros((1, 2)))
    for outside in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            scores.pit_histogram(np.array([outside]))
    with pytest.raises(ValueError, match="bins is 0"):
        scores.pit_histogram(np.array([0.5]), bins=0)
    with pytest.raises(ValueError, match="cells is 0"):
        scores.coverage_band(0, 0.5)
    for bad_level in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="level is"):
            scores.coverage_band(5, bad_level)
        with pytest.raises(ValueError, match="probability is"):
            scores.coverage_band(5, 0.5, bad_level)
    with pytest.raises(ValueError, match="positive CRPS"):
        scores.skill(np.ones(2), np.zeros(2), np.array([0, 1]))
    with pytest.raises(ValueError, match="choice 3 is not one of 3"):
        scores.regret_share(np.zeros(3), 3)
    with pytest.raises(ValueError, match="finite"):
        scores.regret_share(np.array([math.nan, 0.0]), 0)
