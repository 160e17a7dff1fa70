"""`theory.detection`: error rates on correlated curves, twins, what naive tests do."""

import itertools

import numpy as np
import pytest
import statsmodels.stats.multitest
import statsmodels.stats.weightstats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.signal import lfilter

from tests.support.statistical import assert_mean, assert_proportion
from theory.detection import (
    Motion,
    Order,
    Trend,
    displacement,
    monotonicity,
    plateau_level,
    plateau_test,
    single_curve_level,
)
from theory.detection.level import Unit, correlation_time
from theory.detection.monotone import holm
from theory.unit_mean import UnitMean

Array = np.ndarray
CORRELATIONS = (0.0, 0.5, 0.9, 0.98)
EVALUATIONS, RUNS = 200, 1500
BUDGET = np.linspace(1, 2, EVALUATIONS + 1)[1:] * 1e6
DOUBLINGS = np.log2(BUDGET / BUDGET[-1])

# A slow twin; a quarter of the deep profile is deep enough.
DEAR = settings(max_examples=min(500, settings().max_examples), deadline=None)

TABLES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(5, 8), st.integers(3, 7)),
    elements=st.floats(-100, 100).map(lambda v: round(v, 3)),
)


def curves(correlation: float, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Stationary AR(1) curves of unit variance along the last axis."""
    noise = np.random.default_rng(seed).normal(size=shape)
    noise[..., 1:] *= np.sqrt(1 - correlation**2)
    return lfilter([1.0], [1.0, -correlation], noise, axis=-1)


def budget(evaluations: int) -> Array:
    return np.linspace(1, 2, evaluations + 1)[1:] * 1e6


def edge_verdicts(correlation: float, runs: int = RUNS) -> tuple[int, int]:
    """How often a slope of exactly the margin passes for a plateau, a flat one not."""
    flat = curves(correlation, (runs, 5, EVALUATIONS))
    # a margin of five standard errors, so that the other side hardly matters
    spread = float(np.std(flat @ DOUBLINGS / np.var(DOUBLINGS) / EVALUATIONS))
    margin = 5 * spread / np.sqrt(5)
    plateaus = changes = 0
    for run in flat:
        rising = plateau_test(run + margin * DOUBLINGS, BUDGET, margin)
        plateaus += rising.trend is Trend.PLATEAU
        changes += plateau_test(run, BUDGET, 1e-9).trend is not Trend.UNDECIDED
    return plateaus, changes


# -- plateau test --------------------------------------------------------------------


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_error_rates_are_nominal_under_correlation(correlation: float) -> None:
    """Property 41: size of TOST and of the change test, for AR(1), the seed as unit.

    At a slope of exactly the margin the size is the nominal rate, no less.
    """
    plateaus, changes = edge_verdicts(correlation)
    assert_proportion(plateaus, RUNS, 0.05, effect=0.06)
    assert_proportion(changes, RUNS, 0.05, effect=0.06)


@pytest.mark.parametrize("correlation", [0.5, 0.9, 0.98])
def test_error_rates_hold_for_the_loss_of_a_loop(correlation: float) -> None:
    """Property 41 where slopes are not normal: x² of an AR(1) x; rates may be lower."""
    losses = curves(correlation, (500, 5, EVALUATIONS), 13) ** 2
    slopes = losses @ DOUBLINGS / np.var(DOUBLINGS) / EVALUATIONS
    margin = 5 * float(np.std(slopes)) / np.sqrt(5)
    alarms = plateaus = 0
    for run in losses:
        alarms += plateau_test(run, BUDGET, 1e-9).trend is not Trend.UNDECIDED
        rising = plateau_test(run + margin * DOUBLINGS, BUDGET, margin)
        plateaus += rising.trend is Trend.PLATEAU
    bound = 500 * (0.05 + 5 * np.sqrt(0.05 * 0.95 / 500))
    assert max(alarms, plateaus) <= bound


@pytest.mark.parametrize("correlation", [0.9, 0.98])
def test_a_line_through_the_mean_curve_raises_false_alarms(correlation: float) -> None:
    """Property 41, its negative control: ordinary least squares fails it."""
    alarms = 0
    for run in curves(correlation, (400, 5, EVALUATIONS)):
        alarms += stats.linregress(DOUBLINGS, run.mean(axis=0)).pvalue < 0.05
    assert alarms > 0.5 * 400
    with pytest.raises(AssertionError, match="succeeded"):
        assert_proportion(alarms, 400, 0.05, effect=0.2)


def test_no_significant_slope_is_not_a_plateau() -> None:
    """A drift of the whole margin passes for no change; it must not for a plateau."""
    rising = curves(0.98, (500, 5, EVALUATIONS)) + DOUBLINGS
    found = [plateau_test(run, BUDGET, 1.0) for run in rising]
    assert sum(test.change_p > 0.05 for test in found) > 300
    assert sum(test.trend is Trend.PLATEAU for test in found) < 50


@DEAR
@given(TABLES, st.floats(0.01, 100), st.sampled_from([0.01, 0.05, 0.1]))
def test_against_statsmodels_and_polyfit(
    table: Array, margin: float, level: float
) -> None:
    x = budget(table.shape[1])
    slopes = [np.polyfit(np.log2(x), row, 1)[0] for row in table]
    assume(np.std(slopes) > 1e-3)
    twin = statsmodels.stats.weightstats.DescrStatsW(slopes)
    found = plateau_test(table, x, margin, level=level)
    p, *_ = twin.ttost_mean(-margin, margin)
    assert found.slope.value == pytest.approx(np.mean(slopes), abs=1e-6)
    assert found.plateau_p == pytest.approx(p, rel=1e-5, abs=1e-9)
    assert found.change_p == pytest.approx(twin.ttest_mean()[1], rel=1e-5, abs=1e-9)
    assert found.interval == pytest.approx(
        twin.tconfint_mean(2 * level), rel=1e-5, abs=1e-5
    )


@given(TABLES, st.floats(0.01, 100), st.floats(0.01, 0.4))
def test_verdicts_are_those_of_the_interval(
    table: Array, margin: float, level: float
) -> None:
    found = plateau_test(table, budget(table.shape[1]), margin, level=level)
    low, high = found.interval
    assume(abs(found.plateau_p - level) > 1e-9 and found.slope.standard_error > 1e-9)
    assert (found.trend is Trend.PLATEAU) == (-margin < low and high < margin)
    if found.trend is Trend.IMPROVING:
        assert found.slope.interval(1 - level)[0] > 0
    if found.trend is Trend.WORSENING:
        assert found.slope.interval(1 - level)[1] < 0


@given(TABLES, st.floats(0.1, 10), st.floats(0.1, 10), st.floats(-100, 100))
def test_plateau_test_is_equivariant(
    table: Array, margin: float, scale: float, shift: float
) -> None:
    """Units of score and of transitions do not matter; the sign swaps the changes."""
    x = budget(table.shape[1])
    found = plateau_test(table, x, margin)
    assume(found.slope.standard_error > 1e-6)
    moved = plateau_test(scale * table + shift, 7 * x, scale * margin)
    assert moved.plateau_p == pytest.approx(found.plateau_p, rel=1e-4, abs=1e-6)
    mirrored = plateau_test(-table, x, margin)
    assert mirrored.plateau_p == pytest.approx(found.plateau_p, rel=1e-6, abs=1e-12)
    swap = {Trend.IMPROVING: Trend.WORSENING, Trend.WORSENING: Trend.IMPROVING}
    assert mirrored.trend is swap.get(found.trend, found.trend)


def test_window_is_counted_in_doublings() -> None:
    """A score that rose early and stopped is flat in the last doubling only."""
    x = np.geomspace(1, 16, 17)
    score = np.minimum(np.log2(x), 3.0)
    table = score + 1e-3 * np.arange(5)[:, None] * np.log2(x)
    last = plateau_test(table, x, 0.1)
    assert (last.evaluations, last.trend) == (5, Trend.PLATEAU)
    assert plateau_test(table, x, 0.1, doublings=4.0).trend is Trend.IMPROVING
    assert plateau_test(-table, x, 0.1, doublings=4.0).trend is Trend.WORSENING
    assert plateau_test(table, x, 0.1, doublings=4.0).evaluations == 17


def test_curves_without_spread_have_a_verdict() -> None:
    x = budget(4)
    assert plateau_test(np.ones((5, 4)), x, 1e-6).trend is Trend.PLATEAU
    steep = UnitMean(1.0, 0.0, 5)
    assert (steep.p_above(1.0), steep.p_above(0.5)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"curves": np.ones((4, 6))}, "curves has 4 seeds; at least 5"),
        ({"curves": np.ones(6)}, "curves has shape"),
        ({"curves": np.ones((5, 2))}, "curves has 2 columns"),
        ({"curves": np.full((5, 6), np.nan)}, "curves holds nan"),
        ({"transitions": np.ones(6)}, "must be positive and rise"),
        ({"transitions": np.arange(6.0)}, "must be positive and rise"),
        ({"transitions": np.arange(1.0, 6)}, "there are 6 columns"),
        ({"margin": 0.0}, "margin is 0.0"),
        ({"margin": np.inf}, "margin is inf"),
        ({"level": 0.5}, "level is 0.5"),
        ({"level": np.nan}, "level is nan"),
        ({"doublings": 0.0}, "doublings is 0.0"),
        ({"doublings": 0.1}, "window holds 1 evaluations"),
    ],
)
def test_plateau_test_refuses(change: dict, sentence: str) -> None:
    valid = {
        "curves": np.ones((5, 6)),
        "transitions": np.arange(1.0, 7),
        "margin": 1.0,
    }
    with pytest.raises(ValueError, match=sentence):
        plateau_test(**(valid | change))


# -- level ---------------------------------------------------------------------------


def covered(mean: UnitMean, truth: float = 0.0) -> bool:
    low, high = mean.interval(0.95)
    return low < truth < high


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_level_of_seeds_covers_under_correlation(correlation: float) -> None:
    runs = curves(correlation, (RUNS, 5, 100), seed=1)
    hits = sum(covered(plateau_level(run).mean) for run in runs)
    assert_proportion(hits, RUNS, 0.95, effect=0.06)


@pytest.mark.parametrize(
    ("correlation", "length"), [(0.0, 200), (0.5, 400), (0.9, 4000)]
)
def test_level_of_one_long_curve_covers(correlation: float, length: int) -> None:
    runs = curves(correlation, (1500, length), seed=2)
    levels = [single_curve_level(run) for run in runs]
    assert_proportion(
        sum(covered(level.mean) for level in levels), 1500, 0.95, effect=0.06
    )
    assert np.mean([level.unit is Unit.BATCHES for level in levels]) > 0.95


def test_a_short_curve_is_told_and_a_naive_error_does_not_cover() -> None:
    """The negative control: evaluations are no units, nor are stretches below τ."""
    runs = curves(0.98, (400, 400), seed=3)
    levels = [single_curve_level(run) for run in runs]
    assert np.mean([level.unit is Unit.SHORT for level in levels]) > 0.99
    assert sum(covered(level.mean) for level in levels) < 0.85 * 400
    naive = runs.std(axis=1) / np.sqrt(400)
    hits = int(np.sum(np.abs(runs.mean(axis=1)) < 1.96 * naive))
    with pytest.raises(AssertionError, match="succeeded"):
        assert_proportion(hits, 400, 0.95, effect=0.2)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_correlation_time_of_ar1(correlation: float) -> None:
    """τ = (1+φ)/(1−φ), on curves of more than 1,000 τ."""
    times = [correlation_time(run) for run in curves(correlation, (60, 20_000), 4)]
    truth = (1 + correlation) / (1 - correlation)
    assert np.mean(times) == pytest.approx(truth, rel=0.06)


@given(hnp.arrays(np.float64, st.integers(20, 60), elements=st.integers(-9, 9)))
def test_correlation_time_against_direct_sums(series: Array) -> None:
    centred = series - series.mean()
    size = len(series)
    direct = [float(centred[: size - k] @ centred[k:]) for k in range(size // 2 * 2)]
    time = 1.0
    if np.ptp(series) > 0:
        total = 0.0
        for k in range(0, len(direct), 2):
            pair = (direct[k] + direct[k + 1]) / direct[0]
            assume(abs(pair) > 1e-9)
            if pair < 0:
                break
            total += pair
        time = max(1.0, 2 * total - 1)
    assert correlation_time(series) == pytest.approx(time, abs=1e-6)
    level = single_curve_level(series)
    means = series[size - size // 10 * 10 :].reshape(10, -1).mean(axis=1)
    assert level.mean.value == pytest.approx(means.mean(), abs=1e-12)
    assert level.mean.standard_error == pytest.approx(stats.sem(means), abs=1e-12)


@given(TABLES)
def test_level_is_the_mean_of_seed_means(table: Array) -> None:
    found = plateau_level(table).mean
    assert found.value == pytest.approx(table.mean(), abs=1e-9)
    assert found.standard_error == pytest.approx(stats.sem(table.mean(axis=1)))
    twin = stats.ttest_1samp(table.mean(axis=1), 0).confidence_interval(0.9)
    if found.standard_error > 1e-9:
        assert found.interval(0.9) == pytest.approx(tuple(twin))


def test_levels_refuse() -> None:
    with pytest.raises(ValueError, match="4 seeds"):
        plateau_level(np.ones((4, 9)))
    with pytest.raises(ValueError, match="must hold 20"):
        single_curve_level(np.ones(19))
    with pytest.raises(ValueError, match="curve holds inf"):
        single_curve_level(np.r_[np.ones(30), np.inf])
    with pytest.raises(ValueError, match="shape"):
        single_curve_level(np.ones((5, 30)))


# -- displacement --------------------------------------------------------------------


def travelled(a: float, lags: Array, directions: int, seed: int = 5) -> Array:
    """KL from a stationary checkpoint, ½|x_t − x₀|², shape [seed, lag]."""
    x = curves(1 - a, (8, directions, int(lags[-1]) + 1), seed)
    return 0.5 * ((x[..., lags] - x[..., :1]) ** 2).sum(axis=1)


def spaced(low: float, high: float) -> Array:
    return np.unique(np.rint(np.geomspace(low, high, 12)).astype(int))


def test_displacement_of_a_stationary_loop() -> None:
    """E|x_t − x₀|² = 2V(1 − r^t): time constant 1/a, for a stationary checkpoint."""
    a, lags = 0.05, np.array([1, 5, 20, 60])
    x = curves(1 - a, (40_000, 61), seed=6)
    moved = (x[:, lags] - x[:, :1]) ** 2
    assert_mean(moved, 2 * (1 - (1 - a) ** lags), effect=0.2)
    with pytest.raises(AssertionError, match="deviates"):
        assert_mean(moved, 2 * (1 - (1 - a) ** (2 * lags)), effect=0.2)
    # from the optimum, and from there only, the time constant is 1/(2a)
    settled = x[:, lags] - x[:, :1] * (1 - a) ** lags
    assert_mean(settled**2, 1 - (1 - a) ** (2 * lags), effect=0.2)


def test_displacement_tells_the_three_motions() -> None:
    early, late = spaced(1, 12), spaced(500, 5000)
    assert displacement(travelled(0.01, early, 50), early).motion is Motion.DIFFUSIVE
    assert displacement(travelled(0.01, late, 50), late).motion is Motion.SATURATED
    drift = 0.5 * (0.3 * early + 0.05 * curves(0.0, (8, len(early)), 7)) ** 2
    assert displacement(drift, early).motion is Motion.BALLISTIC
    both = spaced(1, 1000)
    assert displacement(travelled(0.01, both, 50), both).motion is Motion.UNDECIDED


@pytest.mark.parametrize("a", [0.02, 0.1, 0.2])
def test_saturation_gives_the_step_times_the_curvature(a: float) -> None:
    lags = spaced(1, 12 / a)
    hits = 0
    for seed in range(100):
        found = displacement(travelled(a, lags, 20, seed), lags)
        assert found.log_rate is not None
        hits += covered(found.log_rate, float(np.log(-np.log1p(-a))))
    # the fit is not linear: the interval need not be exact
    assert hits > 80
    assert found.step_curvature == pytest.approx(a, rel=0.4)
    assert found.saturation_time == pytest.approx(-1 / np.log1p(-a), rel=0.4)


@given(st.floats(0.05, 0.3), st.floats(1e-6, 1e6), st.floats(0.01, 100))
def test_displacement_of_an_exact_curve(a: float, scale: float, unit: float) -> None:
    """Without noise the fit is exact, in any unit of KL and of time."""
    lags = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
    kl = np.outer(np.arange(1, 6), scale * (1 - (1 - a) ** lags))
    found = displacement(kl, unit * lags)
    rate = -np.log1p(-a)
    assert found.saturation_time == pytest.approx(unit / rate, rel=1e-3)
    slope = np.polyfit(np.log(lags), np.log(kl[0]), 1)[0]
    assert found.exponent.value == pytest.approx(slope, abs=1e-6)
    assert found.exponent.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_no_saturation_is_no_number(power: float) -> None:
    lags = np.array([1.0, 2, 4, 8])
    found = displacement(np.outer(np.arange(1, 6), lags**power), lags)
    assert found.log_rate is None
    assert (found.saturation_time, found.step_curvature) == (None, None)
    assert found.exponent.value == pytest.approx(power, abs=1e-9)


def test_displacement_refuses() -> None:
    lags, kl = np.arange(1.0, 6), np.ones((5, 5))
    with pytest.raises(ValueError, match=r"kl holds 0\.0"):
        displacement(0 * kl, lags)
    with pytest.raises(ValueError, match="4 seeds"):
        displacement(kl[:4], lags)
    with pytest.raises(ValueError, match="3 columns"):
        displacement(kl[:, :3], lags[:3])
    with pytest.raises(ValueError, match="elapsed runs from 0"):
        displacement(kl, lags - 1)
    with pytest.raises(ValueError, match=r"level is 1\.0"):
        displacement(kl, lags, level=1.0)


# -- monotonicity --------------------------------------------------------------------


def stretches(correlation: float, runs: int, seed: int) -> Array:
    """Means of stretches, shape [run, seed, column], correlated in two ways."""
    means = curves(correlation, (runs, 5, 5, 20), seed).mean(axis=-1)
    return curves(correlation, means.shape, seed + 1) + means


def slow_holm(values: list[float]) -> list[float]:
    """The definition: per hypothesis, the largest scaled p-value up to its own."""
    ranked = sorted(values)
    scaled = [min(1.0, p * (len(ranked) - k)) for k, p in enumerate(ranked)]
    return [
        max(s for s, p in zip(scaled, ranked, strict=True) if p <= v) for v in values
    ]


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_falls_are_rarely_seen_where_there_are_none(correlation: float) -> None:
    """Property 41, for the order: at most α of flat runs fall, however correlated."""
    found = [monotonicity(run, 1e-9) for run in stretches(correlation, 600, 8)]
    alarms = sum(test.order is Order.FALLS for test in found)
    rate = 0.05 + 5.2 * np.sqrt(0.05 * 0.95 / 600)
    assert alarms <= rate * 600
    pairs = [monotonicity(run[:, :2], 1e-9) for run in stretches(correlation, RUNS, 9)]
    single = sum(test.order is Order.FALLS for test in pairs)
    assert_proportion(single, RUNS, 0.05, effect=0.06)
    # the negative control: without Holm it is more than twice that
    naive = sum(min(d.size.p_above(0.0) for d in test.drops) < 0.05 for test in found)
    assert naive > 2 * 0.05 * 600


def test_a_fall_of_the_margin_is_rarely_called_monotone() -> None:
    runs = 0.2 * curves(0.9, (RUNS, 5, 3), 10) + np.array([0.0, 5, 4])
    wrong = sum(monotonicity(run, 1.0).order is Order.MONOTONE for run in runs)
    assert_proportion(wrong, RUNS, 0.05, effect=0.06)


def test_orders_are_told() -> None:
    noise = 0.1 * curves(0.0, (8, 4), 11)
    assert monotonicity(noise + np.arange(4), 0.5).order is Order.MONOTONE
    falling = monotonicity(noise + np.array([0, 3, 2, 1]), 0.5)
    assert falling.order is Order.FALLS
    assert [(d.before, d.after) for d in falling.falls] == [(1, 2), (1, 3), (2, 3)]
    assert monotonicity(10 * noise, 0.01).order is Order.UNDECIDED


def test_a_slow_decline_shows_in_distant_columns() -> None:
    noise = curves(0.0, (20, 6), 12)
    found = monotonicity(noise - 0.3 * np.arange(6), 0.5)
    assert found.order is Order.FALLS
    assert (0, 5) in [(d.before, d.after) for d in found.falls]
    assert (0, 1) not in [(d.before, d.after) for d in found.falls]


@given(TABLES, st.floats(0.01, 100), st.floats(0.01, 0.4))
def test_monotonicity_against_scipy(table: Array, margin: float, level: float) -> None:
    pairs = list(itertools.combinations(range(table.shape[1]), 2))
    sizes = np.array([table[:, i] - table[:, j] for i, j in pairs]).T
    assume((sizes.std(axis=0) > 1e-6).all())
    found = monotonicity(table, margin, level=level)
    falls = stats.ttest_1samp(sizes, 0, alternative="greater").pvalue
    twin = slow_holm(falls.tolist())
    assert [d.adjusted_p for d in found.drops] == pytest.approx(twin, rel=1e-6)
    small = stats.ttest_1samp(sizes, margin, alternative="less").pvalue
    assert found.monotone_p == pytest.approx(max(small), rel=1e-6)
    assert [(d.before, d.after) for d in found.drops] == pairs


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm(values: list[float]) -> None:
    assert holm(values) == pytest.approx(slow_holm(values))


def test_holm_against_statsmodels() -> None:
    values = np.random.default_rng(0).uniform(0, 0.2, 9)
    twin = statsmodels.stats.multitest.multipletests(values, method="holm")[1]
    assert holm(values) == pytest.approx(twin)


def test_monotonicity_refuses() -> None:
    with pytest.raises(ValueError, match="4 seeds"):
        monotonicity(np.ones((4, 3)), 1.0)
    with pytest.raises(ValueError, match="1 columns"):
        monotonicity(np.ones((5, 1)), 1.0)
    with pytest.raises(ValueError, match="margin is -1"):
        monotonicity(np.ones((5, 3)), -1.0)
    with pytest.raises(ValueError, match=r"level is 0\.0"):
        monotonicity(np.ones((5, 3)), 1.0, level=0.0)
