"""`theory.simulate.linear`: jumps against steps, closed forms and exact arithmetic."""

import math
from fractions import Fraction as F
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Symbol

from tests.support.statistical import assert_mean
from tests.support.strategies import (
    fractions_between,
    nonnegative_fractions,
    positive_floats,
)
from tests.test_theory_outer import (
    Twin,
    ewma_gradient,
    ewma_linear,
    ewma_proximal,
    heavy_ball,
    matrix_of,
    propagate,
    sgd,
    twins,
)
from theory import outer
from theory.outer import Loop
from theory.outer.moments import LinearMap
from theory.simulate import checkpoints, linear, simulate_linear
from theory.simulate.jumps import Jump, one_update

TWINS = [
    sgd(0.3, 1.0),
    heavy_ball(0.2, 1.0, 0.7),
    ewma_linear(0.4, 1.0, 3.0),
    ewma_proximal(0.8, 1.0, 5.0),
    ewma_gradient(0.2, 1.0, 0.3, 6.0),
]
SMALL = st.integers(0, 12)


def name(twin: Twin) -> str:
    return type(twin.loop).__name__


def jump(loop: Loop, updates: int, noise: float = 1.0) -> Jump:
    """The jump of many updates, without its leading axis."""
    many = one_update(loop, np.asarray(noise)).repeated(np.asarray([updates]))
    return Jump(*(np.asarray(part[0], np.float64) for part in many))


def in_own_coordinates(jump: Jump) -> tuple[np.ndarray, np.ndarray]:
    """M^k and S_k of the state (x, r)."""
    back = np.array([[1.0, 1.0], [1.0, 0.0]])
    forth = np.array([[0.0, 1.0], [1.0, -1.0]])
    return back @ jump.power @ forth, back @ jump.covariance @ back.T


def steps(
    twin: Twin, start: float, when: list[int], noise: float, runs: int
) -> tuple[np.ndarray, np.ndarray]:
    """(x, r) and the cumulative KL at checkpoints, one update after the other."""
    generator = np.random.default_rng(5)
    x = np.full(runs, start)
    r, kl = x.copy(), np.zeros(runs)
    states, kls = [], []
    for update in range(1, when[-1] + 1):
        new, r = twin.step(x, r, math.sqrt(noise) * generator.normal(size=runs))
        x, kl = new, kl + (new - x) ** 2 / 2
        if update in when:
            states.append(np.stack([x, r], axis=-1))
            kls.append(kl)
    return np.stack(states, axis=1), np.stack(kls, axis=1)


def exact_second_moments(
    twin: Twin, start: float, when: list[int], noise: float
) -> np.ndarray:
    """E of all products of x and r at the checkpoints, from the noise's covariance."""
    rows = np.array(matrix_of(twin), dtype=float)
    matrix, gain = rows[:, :2], rows[:, 2]
    total = when[-1]
    loads = []
    for k in when:
        power = [np.linalg.matrix_power(matrix, k - 1 - i) @ gain for i in range(k)]
        loads.append(np.pad(np.array(power), ((0, total - k), (0, 0))))
    load = np.concatenate(loads, axis=1)
    ones = np.ones(2)
    mean = np.concatenate([np.linalg.matrix_power(matrix, k) @ ones for k in when])
    return noise * load.T @ load + start**2 * np.outer(mean, mean)


def products(states: np.ndarray) -> np.ndarray:
    """All products of the state's entries, shape [run, entry, entry]."""
    flat = states.reshape(len(states), -1)
    return flat[:, :, None] * flat[:, None, :]


# Jumps, without random numbers.


@given(twins(), SMALL)
def test_jump_equals_its_steps(twin: Twin, updates: int) -> None:
    rows = matrix_of(twin)
    power: list[list[Any]] = [[F(1), F(0)], [F(0), F(1)]]
    moments: list[Any] = [F(0), F(0), F(0)]
    for _ in range(updates):
        moments = propagate(twin, moments, F(2))
        power = [
            [sum(rows[i][k] * power[k][j] for k in range(2)) for j in range(2)]
            for i in range(2)
        ]
    found, covariance = in_own_coordinates(jump(twin.loop, updates, 2.0))
    expected = np.array(power, dtype=float)
    size = 1 + sum(abs(float(v)) for row in rows for v in row)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-13 * size**updates)
    xx, xr, rr = (float(moment) for moment in moments)
    scale = 1e-12 * max(xx, rr)
    assert np.allclose(covariance, [[xx, xr], [xr, rr]], rtol=1e-9, atol=scale)


@given(twins(), SMALL, SMALL)
def test_split_jump_is_one_jump(twin: Twin, first: int, second: int) -> None:
    """Property 10, semigroup: for the mean, the covariance and the KL."""
    whole = jump(twin.loop, first + second)
    parts = jump(twin.loop, second).after(jump(twin.loop, first))
    for one, two in zip(whole, parts, strict=True):
        assert np.allclose(one, two, rtol=1e-9, atol=1e-12 * np.abs(one).max())


@given(twins(), st.integers(0, 10**12))
def test_covariance_is_positive_semidefinite(twin: Twin, updates: int) -> None:
    if twin.loop.stable:
        covariance = jump(twin.loop, updates).covariance
        least = np.linalg.eigvalsh(covariance).min()
        assert least >= -1e-13 * np.trace(covariance)


@given(positive_floats(1e-12, 1e-3), st.integers(1, 10**13))
def test_small_steps_are_not_forgotten(a: float, updates: int) -> None:
    found = jump(outer.sgd(a, 1.0), updates)
    fate = updates * math.log1p(-a)
    assert found.increment[0, 0] == pytest.approx(math.expm1(fate), rel=1e-12)
    variance = a / (2 - a) * -math.expm1(2 * fate)
    assert found.covariance[0, 0] == pytest.approx(variance, rel=1e-12)
    assert not found.covariance[1].any()  # x is r, to the last bit


def precise(rows: list[list[Any]]) -> Any:
    return mpmath.matrix(
        [[mpmath.mpf(v.numerator) / v.denominator for v in row] for row in rows]
    )


@pytest.mark.parametrize("a", [1e-9, 1e-5])
@pytest.mark.parametrize("com", [0.5, 30.0, 1e4])
@pytest.mark.parametrize("share", [0.1, 1.0, 40.0])
@pytest.mark.parametrize("build", [ewma_linear, ewma_proximal])
def test_slow_averages_keep_their_rate(
    build: Any, a: float, com: float, share: float
) -> None:
    updates = int(share * (1 + com) / a)
    twin = build(F(a), F(1), F(com))
    with mpmath.workdps(60):
        matrix = precise([row[:2] for row in matrix_of(twin)])
        units = [[F(i == j) for j in range(3)] for i in range(3)]
        kron = precise([propagate(twin, unit, F(0)) for unit in units]).T
        one = precise([[v] for v in propagate(twin, [F(0), F(0), F(0)], F(1))])
        fixed = mpmath.lu_solve(mpmath.eye(3) - kron, one)
        expected = [float(value) for value in fixed - kron**updates * fixed]
        power = np.array((matrix**updates).tolist(), dtype=float)
    found, covariance = in_own_coordinates(jump(build(a, 1.0, com).loop, updates))
    assert np.allclose(found, power, rtol=1e-12, atol=1e-15)
    assert covariance[0, 0] == pytest.approx(expected[0], rel=1e-12)
    assert covariance[0, 1] == pytest.approx(expected[1], rel=1e-12)
    assert covariance[1, 1] == pytest.approx(expected[2], rel=1e-12)


@given(twins(), SMALL, nonnegative_fractions())
def test_kl_of_a_jump_is_the_sum_over_its_updates(
    twin: Twin, updates: int, noise: F
) -> None:
    (a, b, c), _ = matrix_of(twin)
    moments: list[Any] = [F(1), F(1), F(1)]
    total = F(0)
    for _ in range(updates):
        xx, xr, rr = moments
        total += ((a - 1) ** 2 * xx + 2 * (a - 1) * b * xr + b**2 * rr) / 2
        total += c**2 * noise / 2
        moments = propagate(twin, moments, noise)
    found = jump(twin.loop, updates, float(noise))
    value = found.kl_form[0, 0] + found.kl_offset[0, 0]
    assert value == pytest.approx(float(total), rel=1e-9)


class Remembering(outer.EwmaLinear):
    """Variant A with half of the last displacement of x and r added to each step."""

    def linear_map(self) -> LinearMap:
        (a, b), (c, d) = super().linear_map().matrix
        half, zero = 1 / (2 + 0 * self.curvature), 0 * self.curvature
        rows = (
            (a + half, b, -half, zero),
            (c, d + half, zero, -half),
            (1, 0, 0, 0),
            (0, 1, 0, 0),
        )
        return LinearMap(rows, (*super().linear_map().gain, 0, 0))


@given(fractions_between(0, 1), nonnegative_fractions(), SMALL)
def test_loops_may_remember_more(a: F, com: F, updates: int) -> None:
    loop = Remembering(outer_step=a, curvature=F(1), com_updates=com)
    found = jump(loop, updates)
    # Everything starts at x = 1: in the jump's coordinates r = 1, and the rest is 0.
    mean = found.power[0, 0] + found.power[1, 0]
    variance = found.covariance[:2, :2].sum()
    exact = float(loop.second_moment(1, updates, 1, 1))
    assert mean**2 + variance == pytest.approx(exact, rel=1e-9)
    assert found.increment.shape == (4, 4)


# Runs.


@pytest.mark.parametrize("twin", TWINS, ids=name)
def test_runs_have_the_law_of_the_steps(twin: Twin) -> None:
    """Property 35: means, variances and covariances across checkpoints."""
    when, noise, start = [1, 3, 10], 9 / 4, 1.5
    expected = exact_second_moments(twin, start, when, noise)
    paths = simulate_linear(twin.loop, when, 9, 4, initial=start, seeds=40_000)
    stepped, _ = steps(twin, start, when, noise, 40_000)
    effect = 0.1 * float(expected.max())
    for states in (paths.states, stepped):
        assert_mean(products(states), expected, effect=effect)
    control = products(paths.states * math.sqrt(1.1))
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(control, expected, effect=1.1 * effect)


@pytest.mark.parametrize("twin", TWINS, ids=name)
def test_runs_are_normal(twin: Twin) -> None:
    paths = simulate_linear(twin.loop, [7, 1000], 1, 1, seeds=100_000)
    scaled = paths.acting / np.sqrt(
        [twin.loop.second_moment(0, k, 1, 1) for k in (7, 1000)]
    )
    assert_mean(scaled**4, [3, 3], effect=0.4)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(np.abs(scaled) ** 3, [3, 3], effect=0.4)


@pytest.mark.parametrize("twin", TWINS, ids=name)
def test_kl_has_the_mean_of_the_steps(twin: Twin) -> None:
    when, start = [2, 4, 20], 2.0
    paths = simulate_linear(twin.loop, when, 1, 1, initial=start, seeds=20_000)
    _, stepped = steps(twin, start, when, 1.0, 20_000)
    whole = jump_means(twin.loop, when, start)
    assert np.allclose(paths.expected_kl[:, 0], whole[0], rtol=1e-12)
    for kl in (paths.expected_kl, stepped):
        assert_mean(kl[:, 1:], whole[1:], effect=0.1 * whole[-1])
    control = 1.1 * paths.expected_kl[:, 1:]
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(control, whole[1:], effect=0.11 * whole[-1])
    assert np.all(paths.expected_kl.var(axis=0) <= stepped.var(axis=0))


def jump_means(loop: Loop, when: list[int], start: float) -> np.ndarray:
    """E of the cumulative KL at checkpoints."""
    jumps = [jump(loop, updates) for updates in when]
    return np.array([start**2 * j.kl_form[0, 0] + j.kl_offset[0, 0] for j in jumps])


def test_a_trillion_transitions() -> None:
    """Property 35, at checkpoints that no step-by-step run reaches."""
    steps_ = np.array([1e-9, 1e-6, 1e-3, 0.5])
    loop = outer.ewma_proximal(steps_, 1.0, 30.0)
    when = checkpoints(10**12, 2048)
    assert when[-1] == 10**12 // 2048
    paths = simulate_linear(loop, when, 4.0, 2048, initial=1e-3, seeds=4000)
    expected = loop.second_moment(1e-6, when[-1], 4.0, 2048)
    ratio = paths.acting[..., -1].T ** 2 / expected
    assert_mean(ratio, np.ones(4), effect=0.3)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(ratio * 1.3, np.ones(4), effect=0.4)
    rate = np.diff(paths.expected_kl[-1], axis=-1)[:, -1] / (when[-1] - when[-2])
    plateau = loop.stationary(4.0, 2048).kl_per_update[-1]
    assert rate.mean() == pytest.approx(plateau, rel=1e-4)


def test_runs_and_settings_are_independent() -> None:
    loop = outer.sgd(np.array([0.3, 0.3]), 1.0)
    paths = simulate_linear(loop, [5], 1, 1, seeds=20_000, seed=3)
    one, two = paths.acting[..., 0] / math.sqrt(
        outer.sgd(0.3, 1).second_moment(0, 5, 1, 1)
    )
    assert_mean(np.stack([one * two, one * np.roll(one, 1)], -1), [0, 0], effect=0.1)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(one * one, 0, effect=0.2)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**63))
def test_more_settings_and_more_runs_change_nothing(
    settings: int, runs: int, seed: int
) -> None:
    etas = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    whole = simulate_linear(
        outer.sgd(etas, 1.0), [2, 9], 1, 8, initial=1, seeds=6, seed=seed
    )
    part = simulate_linear(
        outer.sgd(etas[:settings], 1.0), [2, 9], 1, 8, initial=1, seeds=runs, seed=seed
    )
    assert np.array_equal(part.states, whole.states[:settings, :runs])
    assert np.array_equal(part.expected_kl, whole.expected_kl[:settings, :runs])


def test_cutting_the_work_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = outer.ewma_linear(np.array([0.1, 0.2, 0.3]), 1.0, 2.0)
    whole = simulate_linear(loop, [1, 30], 1, 4, initial=[1, 2, 3], seeds=5)
    monkeypatch.setattr(linear, "NUMBERS_AT_ONCE", 1)
    parts = simulate_linear(loop, [1, 30], 1, 4, initial=[1, 2, 3], seeds=5)
    assert np.array_equal(parts.states, whole.states)
    assert np.array_equal(parts.expected_kl, whole.expected_kl)


def test_seeds_differ() -> None:
    one, two = (
        simulate_linear(outer.sgd(0.1, 1.0), [1], 1, 1, seeds=5, seed=seed).acting
        for seed in (0, 1)
    )
    assert np.unique([one, two]).size == 10


@given(positive_floats(0.1, 10))
def test_rescaling_x_rescales_the_runs(k: float) -> None:
    """Property 1, run by run."""
    before = simulate_linear(outer.sgd(0.3, 1.0), [1, 50], 2, 4, initial=1, seeds=3)
    loop = outer.sgd(0.3 * k**2, 1 / k**2)
    after = simulate_linear(loop, [1, 50], 2 / k**2, 4, initial=k, seeds=3)
    assert np.allclose(after.states, k * before.states, rtol=1e-9, atol=1e-12)
    assert np.allclose(after.expected_kl, k**2 * before.expected_kl, rtol=1e-9)


@given(fractions_between(0, 3), positive_floats(1e-9, 1e-6))
def test_small_steps_follow_the_gradient_flow(time: F, eta: float) -> None:
    """Property 47: η → 0 with ηK fixed is exp(−hηK)."""
    updates = round(float(time) / eta)
    paths = simulate_linear(outer.sgd(eta, 2.0), [updates], 0, 1, initial=1, seeds=1)
    flow = math.exp(-2 * eta * updates)
    assert paths.acting.item() == pytest.approx(flow, rel=20 * eta)


def test_knobs_of_every_argument_broadcast() -> None:
    samples = np.array([[1], [1000], [50]])
    when = checkpoints(10**6, samples[:, 0], 3)[:, None]
    loop = outer.heavy_ball([0.1, 0.2], 1.0, 0.5)
    paths = simulate_linear(loop, when, 1.0, samples, initial=[1, 2], seeds=4)
    assert paths.acting.shape == paths.expected_kl.shape == (3, 2, 4, when.shape[-1])
    assert paths.reference.shape == paths.acting.shape
    assert np.all(paths.transitions[..., -1] == 10**6)
    assert np.all(paths.transitions == paths.updates * samples[..., None])


def test_exact_and_whole_numbers_are_simulated() -> None:
    exact = simulate_linear(outer.sgd(F(1, 4), 1), [3], F(1), 2, seeds=2)
    floats = simulate_linear(outer.sgd(0.25, 1.0), [3], 1.0, 2.0, seeds=2)
    assert np.array_equal(exact.states, floats.states)


def test_no_updates_leave_the_start() -> None:
    paths = simulate_linear(outer.sgd(0.1, 1), [0, 0, 4], 1, 1, initial=3, seeds=2)
    assert np.all(paths.acting[:, :2] == 3)
    assert np.all(paths.expected_kl[:, :2] == 0)


def test_unstable_loops_overflow_to_infinity() -> None:
    paths = simulate_linear(outer.sgd(3.0, 1.0), [10, 10**6], 1, 1, seeds=3)
    assert np.all(np.isfinite(paths.acting[:, 0]))
    assert np.all(paths.acting[:, 1] == np.inf)
    assert np.all(paths.expected_kl[:, 1] == np.inf)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": [3, 2]}, "must not decrease"),
        ({"updates": []}, "updates is empty"),
        ({"updates": [1.5]}, "updates"),
        ({"updates": [-1]}, "updates"),
        ({"updates": [math.nan]}, "updates"),
        ({"noise_variance": -1}, "noise_variance"),
        ({"noise_variance": math.inf}, "noise_variance"),
        ({"samples_per_update": 0}, "samples_per_update"),
        ({"initial": math.nan}, "initial"),
        ({"initial": Symbol("x")}, "needs numbers"),
        ({"seeds": 0}, "seeds"),
        ({"seed": -1}, "seed"),
        ({"loop": outer.multiplicative(0.1, 1, 1, 4)}, "simulate_stepwise"),
        ({"loop": outer.sgd(Symbol("a"), 1)}, "needs numbers"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "loop": outer.sgd(0.1, 1.0),
        "updates": [1, 2],
        "noise_variance": 1,
        "samples_per_update": 4,
        "seeds": 2,
    }
    with pytest.raises(ValueError, match=message):
        simulate_linear(**(arguments | change))


# Checkpoints.


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.integers(1, 30))
def test_checkpoints_are_log_spaced(samples: int, extra: int, density: int) -> None:
    budget = samples + extra
    found = checkpoints(budget, samples, density)
    assert found[0] == 1
    assert found[-1] == budget // samples
    assert np.all(np.diff(found) > 0)
    largest = 10 ** (1 / density)
    assert np.all(found[1:] * samples <= (found[:-1] + 1) * samples * largest + samples)


def test_checkpoints_of_several_samples_agree_in_transitions() -> None:
    samples = np.array([64, 1, 2048])
    found = checkpoints(10**9, samples, 4)
    used = found * samples[:, None]
    assert found.shape == (3, found.shape[-1])
    assert found[2, 0] == 1
    assert np.all(np.ptp(used, axis=0) < 2048)
    assert np.all(found[:, -1] == 10**9 // samples)


def test_checkpoints_of_one_decade() -> None:
    assert checkpoints(1000, 1, 1).tolist() == [1, 10, 100, 1000]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "budget"),
        ((10, 11), "at least one update, 11"),
        ((10, 0.5), "samples_per_update"),
        ((10, 2, 0), "per_decade"),
        ((math.inf, 2), "budget"),
    ],
)
def test_checkpoints_refuse(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checkpoints(*arguments)
