"""What correlated transitions are worth, within updates and across them."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov, toeplitz

from tests.support.statistical import assert_mean
from tests.support.strategies import fractions_between
from theory import noise, outer

F = Fraction
RNG = 20_261_203


def autoregressive(phi: float, envs: int, length: int) -> np.ndarray:
    rng = np.random.default_rng(RNG)
    x = rng.normal(size=envs)
    series = [x]
    for _ in range(length - 1):
        x = phi * x + np.sqrt(1 - phi**2) * rng.normal(size=envs)
        series.append(x)
    return 3.0 + np.stack(series, axis=1)


@given(st.floats(-0.95, 0.99), st.integers(1, 30), st.integers(1, 50))
def test_formula_equals_the_variance_of_the_mean(
    phi: float, length: int, envs: int
) -> None:
    covariance = toeplitz(phi ** np.arange(length))
    variance_of_mean = covariance.mean() / envs
    made = noise.correlated_samples(phi ** np.arange(1, 60), envs, length)
    assert made == pytest.approx(1 / variance_of_mean, rel=1e-9)


def test_long_rollouts_follow_the_integrated_correlation() -> None:
    phi = 0.8
    made = noise.correlated_samples(phi ** np.arange(1, 400), 2, 1_000_000)
    assert made == pytest.approx(2e6 * (1 - phi) / (1 + phi), rel=1e-4)


@pytest.mark.parametrize(("phi", "length"), [(0.9, 8), (0.0, 5), (-0.5, 6)])
def test_estimate_equals_the_formula(phi: float, length: int) -> None:
    envs = 20_000
    made = noise.effective_samples(autoregressive(phi, envs, length))
    truth = noise.correlated_samples(phi ** np.arange(1, length + 1), envs, length)
    assert abs(made.value - truth) < 5 * made.standard_error < 0.1 * truth
    assert made.nominal == envs * length
    assert made.share == made.value / made.nominal


def test_standard_error_is_that_of_repetitions() -> None:
    series = autoregressive(0.7, 40 * 1000, 6).reshape(1000, 40, 6)
    made = [noise.effective_samples(part) for part in series]
    spread = np.std([estimate.value for estimate in made])
    mean = np.mean([estimate.standard_error for estimate in made])
    assert mean == pytest.approx(spread, rel=0.15)


def test_counting_transitions_would_be_wrong() -> None:
    """Negative control: N·T is not n_eff where transitions are correlated."""
    made = noise.effective_samples(autoregressive(0.9, 2000, 8))
    assert made.nominal - made.value > 20 * made.standard_error


@given(st.permutations(range(5)))
def test_order_of_environments_is_irrelevant(order: list[int]) -> None:
    series = autoregressive(0.5, 5, 4)
    one, two = (noise.effective_samples(s) for s in (series, series[order]))
    assert one.value == pytest.approx(two.value)
    assert one.standard_error == pytest.approx(two.standard_error)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e3))
def test_units_and_origin_are_irrelevant(origin: float, scale: float) -> None:
    """Returns near a billion are worth as many samples as those near 0."""
    series = autoregressive(0.5, 40, 6) - 3
    one, two = (noise.effective_samples(s) for s in (series, origin + series))
    assert two.value == pytest.approx(one.value, rel=1e-5)
    assert two.standard_error == pytest.approx(one.standard_error, rel=1e-4)
    three = noise.effective_samples(scale * series)
    assert three.value == pytest.approx(one.value, rel=1e-9)


def test_no_error_is_shown_where_leaving_one_out_leaves_no_spread() -> None:
    made = noise.effective_samples([[0.0], [0.0], [1.0]])
    assert made.value == pytest.approx(3)
    assert made.standard_error == float("inf")


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e5 + 0.1])
def test_a_constant_is_refused_whatever_its_rounding(value: float) -> None:
    with pytest.raises(ValueError, match="nothing varies"):
        noise.effective_samples(np.full((7, 9), value))


@given(fractions_between(0, 2), fractions_between(-1, 1))
def test_persistence_equals_a_lyapunov_solution(a: F, phi: F) -> None:
    """State (x, ξ), exactly in the algebra and by an independent solver."""
    step, rho = float(a), float(phi)
    matrix = np.array([[1 - step, -step], [0, rho]])
    drive = np.diag([0.0, 1 - rho**2])
    variance = solve_discrete_lyapunov(matrix, drive)[0, 0]
    fresh = outer.sgd(a, 1).stationary(1, 1).acting_variance
    factor = noise.persistence_factor(a, phi)
    assert isinstance(factor, F)
    assert float(factor * fresh) == pytest.approx(variance, rel=1e-5)


def test_persistence_by_simulation() -> None:
    rng = np.random.default_rng(RNG)
    a, phi, runs = 0.3, 0.6, 20_000
    x, xi = np.zeros(runs), rng.normal(size=runs)
    for _ in range(60):
        x = (1 - a) * x - a * xi
        xi = phi * xi + np.sqrt(1 - phi**2) * rng.normal(size=runs)
    fresh = outer.sgd(a, 1.0).stationary(1.0, 1.0).acting_variance
    truth = noise.persistence_factor(a, phi) * fresh
    assert_mean(x**2, truth, effect=0.15 * truth)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_mean(x**2, fresh, effect=0.5 * fresh)


def test_vectors_of_persistence() -> None:
    assert noise.persistence_factor(F(1, 2), F(1, 2)) == F(5, 3)
    assert noise.persistence_factor(1, F(9, 10)) == 1
    assert noise.persistence_factor(F(3, 2), F(1, 2)) == F(3, 5)
    assert noise.persistence_factor(1e-9, 0.9) == pytest.approx(19)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: noise.correlated_samples([2.0], 1, 5), "between -1 and 1"),
        (lambda: noise.correlated_samples([float("nan")], 1, 5), "between -1 and 1"),
        (lambda: noise.correlated_samples([0.1], 0, 5), "num_envs is 0"),
        (lambda: noise.correlated_samples([0.1], 1, 0), "rollout_length is 0"),
        (lambda: noise.correlated_samples([-1, -1, -1], 1, 4), "no series"),
        (lambda: noise.effective_samples(np.ones((2, 5))), "env ≥ 3"),
        (lambda: noise.effective_samples(np.ones((5, 5))), "nothing varies"),
        (lambda: noise.effective_samples(np.full((3, 2), np.nan)), "not finite"),
        (lambda: noise.persistence_factor(2, 0), "scaled_curvature is 2"),
        (lambda: noise.persistence_factor(0.5, 1), "correlation is 1"),
        (lambda: noise.persistence_factor(0.5, float("nan")), "correlation is nan"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
