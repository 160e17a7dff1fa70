"""`theory.outer`: exact vectors, slow twins, independent solvers, refusals."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov
from statsmodels.tsa.arima_process import arma_acovf

from tests.support.statistical import assert_mean
from tests.support.strategies import (
    coms,
    fractions_between,
    nonnegative_fractions,
    positive_fractions,
)
from theory import outer

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


class Twin(NamedTuple):
    """A loop and one step of it written out from its definition, (x, r, ξ) → (x', r').

    For heavy ball, r stands for the previous x.
    """

    loop: outer.Loop
    step: Step


def sgd(eta: Any, h: Any) -> Twin:
    def step(x: Any, r: Any, xi: Any) -> tuple[Any, Any]:
        new = x - eta * (h * x + xi)
        return new, new

    return Twin(outer.sgd(eta, h), step)


def heavy_ball(eta: Any, h: Any, mu: Any) -> Twin:
    def step(x: Any, r: Any, xi: Any) -> tuple[Any, Any]:
        return x - eta * (h * x + xi) + mu * (x - r), x

    return Twin(outer.heavy_ball(eta, h, mu), step)


def ewma_linear(eta: Any, h: Any, com: Any) -> Twin:
    def step(x: Any, r: Any, xi: Any) -> tuple[Any, Any]:
        new = r - eta * (h * x + xi)
        return new, (com * r + new) / (1 + com)

    return Twin(outer.ewma_linear(eta, h, com), step)


def ewma_proximal(eta: Any, h: Any, com: Any) -> Twin:
    def step(x: Any, r: Any, xi: Any) -> tuple[Any, Any]:
        new = (r / eta - xi) / (h + 1 / eta)  # zero of h·y + ξ + (y − r)/η
        return new, (com * r + new) / (1 + com)

    return Twin(outer.ewma_proximal(eta, h, com), step)


def ewma_gradient(alpha: Any, h: Any, kappa: Any, com: Any) -> Twin:
    def step(x: Any, r: Any, xi: Any) -> tuple[Any, Any]:
        new = x - alpha * (h * x + xi) - kappa * (x - r)
        return new, (com * r + new) / (1 + com)

    return Twin(outer.ewma_gradient(alpha, h, kappa, com), step)


@st.composite
def twins(draw: st.DrawFn) -> Twin:
    """Loops of every kind but `multiplicative`, stable or not."""
    a, h = draw(fractions_between(0, 3)), draw(positive_fractions())
    kind = draw(st.sampled_from([sgd, heavy_ball, ewma_linear, ewma_proximal, None]))
    if kind is None:
        kappa = draw(nonnegative_fractions() | fractions_between(0, 1))
        return ewma_gradient(a / h, h, kappa, draw(coms()))
    if kind is sgd:
        return sgd(a / h, h)
    extra = fractions_between(-1, 1) if kind is heavy_ball else coms()
    return kind(a / h, h, draw(extra))


def matrix_of(twin: Twin) -> list[list[Any]]:
    """The columns of the twin's matrix and its noise loading, probed one by one."""
    one, zero = F(1), F(0)
    probes = [(one, zero, zero), (zero, one, zero), (zero, zero, one)]
    columns = [twin.step(*probe) for probe in probes]
    return [[column[row] for column in columns] for row in range(2)]


def propagate(twin: Twin, moments: list[Any], noise: Any) -> list[Any]:
    """(E x², E xr, E r²) one step later, by the definition of a covariance."""
    rows = matrix_of(twin)
    xx, xr, rr = moments
    covariance = [[xx, xr, 0], [xr, rr, 0], [0, 0, noise]]

    def entry(i: int, j: int) -> Any:
        return sum(
            rows[i][k] * covariance[k][m] * rows[j][m]
            for k in range(3)
            for m in range(3)
        )

    return [entry(0, 0), entry(0, 1), entry(1, 1)]


def spectral_radius(twin: Twin) -> float:
    matrix = np.array(matrix_of(twin), dtype=float)[:, :2]
    return float(np.abs(np.linalg.eigvals(matrix)).max())


# Exact vectors, h = 1 and q = 1 unless said.


def test_sgd_vectors() -> None:
    half = outer.sgd(F(1, 2), 1)
    assert half.stationary(1, 1).acting_variance == F(1, 3)
    assert half.stationary(4, 1).acting_variance == F(4, 3)
    assert half.second_moment(4, 3, 1, 1) == F(25, 64)
    assert isinstance(half.second_moment(4, 3, 1, 1), F)


def test_ewma_linear_vectors() -> None:
    loop = outer.ewma_linear(F(1, 2), 1, 1)
    state = loop.stationary(4, 1)
    assert state.acting_variance == F(28, 25)
    assert state.reference_variance == F(12, 25)
    assert state.cross_covariance == F(16, 25)
    assert state.step_second_moment == F(52, 25)
    assert state.kl_per_update == F(26, 25)
    assert state.loss == F(14, 25)
    assert loop.stability_limit == F(4, 3)
    assert isinstance(outer.ewma_linear(F(1, 4), F(1), 3).stability_limit, F)


def test_ewma_proximal_vectors() -> None:
    assert outer.ewma_proximal(F(1, 2), 1, 0).stationary(4, 1).acting_variance == F(
        4, 5
    )
    state = outer.ewma_proximal(F(1, 2), 1, 1).stationary(4, 1)
    assert state.reference_variance == F(4, 11)
    assert state.acting_variance == F(20, 33)


def test_effective_step_vectors() -> None:
    step = outer.effective_step(1, F(1, 4), 1, 2)
    assert step == F(3, 8)
    assert outer.sgd(step, 1).stationary(1, 1).acting_variance == F(3, 13)


def test_integers_alone_are_exact() -> None:
    state = outer.ewma_proximal(1, 2, 3).stationary(5, 7)
    assert all(isinstance(value, F) for value in vars(state).values())


# Slow twins.


@given(twins(), nonnegative_fractions(), positive_fractions())
def test_stationary_state_is_a_fixed_point(twin: Twin, noise: F, samples: F) -> None:
    if not twin.loop.stable:
        return
    state = twin.loop.stationary(noise, samples)
    moments = [state.acting_variance, state.cross_covariance, state.reference_variance]
    if isinstance(twin.loop, outer.HeavyBall):  # its second variable is the previous x
        before = state.acting_variance - state.step_second_moment / 2
        moments = [state.acting_variance, before, state.acting_variance]
    assert propagate(twin, moments, noise / samples) == moments
    (a, b, c), _ = matrix_of(twin)
    step = (a - 1) ** 2 * moments[0] + 2 * (a - 1) * b * moments[1] + b**2 * moments[2]
    assert state.step_second_moment == step + c**2 * noise / samples
    assert state.kl_per_update == state.step_second_moment / 2
    assert state.loss == twin.loop.curvature * state.acting_variance / 2


@given(twins(), nonnegative_fractions(), st.integers(0, 9), nonnegative_fractions())
@settings(max_examples=50, deadline=None)
def test_transient_equals_step_by_step(
    twin: Twin, initial: F, updates: int, noise: F
) -> None:
    moments: list[Any] = [initial, initial, initial]
    for _ in range(updates):
        moments = propagate(twin, moments, noise / 3)
    assert twin.loop.second_moment(initial, updates, noise, 3) == moments[0]


@given(twins())
def test_stable_means_spectral_radius_below_one(twin: Twin) -> None:
    radius = spectral_radius(twin)
    if abs(radius - 1) > 1e-6:
        assert twin.loop.stable == (radius < 1)
    own = getattr(twin.loop, "learning_rate", getattr(twin.loop, "outer_step", None))
    assert twin.loop.stable == (own < twin.loop.stability_limit)


@given(twins())
def test_closed_form_equals_lyapunov_solver(twin: Twin) -> None:
    """Properties 7 and 14: the closed forms solve the Lyapunov equation."""
    if not spectral_radius(twin) < 1 - 1e-5:
        return
    rows = np.array(matrix_of(twin), dtype=float)
    load = rows[:, 2:]
    solved = solve_discrete_lyapunov(rows[:, :2], load @ load.T, method="direct")
    state = twin.loop.stationary(1, 1)
    assert float(state.acting_variance) == pytest.approx(solved[0, 0], rel=1e-6)
    if not isinstance(twin.loop, outer.HeavyBall):
        assert float(state.cross_covariance) == pytest.approx(solved[0, 1], rel=1e-6)
        found = float(state.reference_variance)
        assert found == pytest.approx(solved[1, 1], rel=1e-6)


@pytest.mark.parametrize(("a", "com"), [(0.1, 0.5), (0.4, 3.0), (0.9, 20.0)])
def test_ewma_linear_is_an_arma_process(a: float, com: float) -> None:
    beta = com / (1 + com)
    expected = arma_acovf([1, -(1 - a), -beta * a], [1, -beta], nobs=2)
    state = outer.ewma_linear(a, 1.0, com).stationary(1 / a**2, 1)
    assert state.acting_variance == pytest.approx(expected[0], rel=1e-6)
    moved = 2 * (expected[0] - expected[1])
    assert state.step_second_moment == pytest.approx(moved, rel=1e-6)


@given(
    positive_fractions(),
    fractions_between(0, 1),
    positive_fractions(),
    st.integers(0, 8),
)
def test_effective_step_equals_inner_loop(eta: F, alpha: F, h: F, steps: int) -> None:
    """Property 23: the inner loop is the formula."""
    start, noise = F(3), F(-2)
    x = start
    for _ in range(steps):
        x = x - alpha * (h * x + noise + (x - start) / eta)
    step = outer.effective_step(eta, alpha, h, steps)
    assert x == start - step * (h * start + noise)


def test_effective_step_without_penalty_or_curvature() -> None:
    assert outer.effective_step(math.inf, 0.1, 2.0, 5) == pytest.approx(
        (1 - 0.8**5) / 2, rel=1e-14
    )
    assert outer.effective_step(math.inf, F(1, 10), 0, 5) == pytest.approx(0.5)
    small = outer.effective_step(1e9, 1e-12, 1e-3, 3)
    assert small == pytest.approx(3e-12, rel=1e-12)
    assert outer.effective_step(math.inf, 100.0, 1.0, 10**6) == -math.inf  # diverges


def test_multiplicative_noise_equals_its_recursion() -> None:
    eta, h, kappa, n = F(1, 3), F(3, 2), F(5), F(4)
    loop = outer.multiplicative(eta, h, kappa, n)
    second = F(7)
    for _ in range(6):
        second = (1 - eta * h) ** 2 * second + eta**2 * (2 + kappa * second) / n
    assert loop.second_moment(7, 6, 2, n) == second
    fixed = loop.stationary(2, n).acting_variance
    assert fixed == (1 - eta * h) ** 2 * fixed + eta**2 * (2 + kappa * fixed) / n
    assert loop.stationary(2, n).step_second_moment == eta**2 * (
        h**2 * fixed + (2 + kappa * fixed) / n
    )


def test_multiplicative_gives_linear_regression() -> None:
    # One Gaussian feature of unit variance: Var of one sample's gradient is σ² + 2x².
    eta, n = F(1, 5), F(6)
    found = outer.multiplicative(eta, 1, 2, n).stationary(1, n).acting_variance
    assert found == (eta / n) / (2 - eta * (1 + 2 / n))


@pytest.mark.parametrize(
    "twin",
    [
        sgd(0.5, 1.0),
        heavy_ball(0.2, 1.0, 0.7),
        ewma_linear(0.4, 1.0, 3.0),
        ewma_proximal(0.8, 1.0, 5.0),
        ewma_gradient(0.2, 1.0, 0.3, 6.0),
    ],
    ids=lambda twin: type(twin.loop).__name__,
)
def test_transient_equals_monte_carlo(twin: Twin) -> None:
    """Property 35: Monte Carlo agrees."""
    generator = np.random.default_rng(11)
    x = np.full(40_000, 2.0)
    r = x.copy()
    for _ in range(12):
        x, r = twin.step(x, r, generator.normal(size=x.size) * 3 / np.sqrt(4))
    expected = twin.loop.second_moment(4.0, 12, 9.0, 4)
    assert_mean(x**2, expected, effect=0.1 * expected)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(x**2, 1.1 * expected, effect=0.1 * expected)
