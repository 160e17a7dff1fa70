"""`theory.plateau_constant`: the plateau law's constant against Lyapunov solvers."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import fractions_between, positive_matrices
from tests.test_theory_kl import fraction_of_limit, stationary_step
from theory import outer
from theory.plateau_constant import (
    Preconditioner,
    adaptive,
    isotropic_constant,
    natural,
    plain,
    plateau_constant,
    ridged,
)

METRICS = positive_matrices(3)
KINDS: list[Preconditioner] = [natural, plain, adaptive, ridged(0.3)]


@given(METRICS, METRICS, METRICS, st.sampled_from(KINDS))
def test_constant_is_the_small_step_limit_of_the_plateau(
    fisher: np.ndarray, curvature: np.ndarray, noise: np.ndarray, kind: Preconditioner
) -> None:
    precondition = kind(fisher, noise)
    step = fraction_of_limit(curvature, precondition, 1e-4)
    gap, moved = stationary_step(step, curvature, noise, precondition)
    found = gap / np.sqrt(np.trace(fisher @ moved) / 2)  # gap·√DDR at n = 1
    assert plateau_constant(fisher, noise, kind) == pytest.approx(found, rel=1e-2)


@given(METRICS, METRICS, METRICS)
def test_the_natural_constant_bounds_every_other(
    fisher: np.ndarray, noise: np.ndarray, precondition: np.ndarray
) -> None:
    """Property 27: L ≤ √(tr(F⁻¹Σ)/(8·DDR)) for any P, as η → 0."""
    largest = np.sqrt(np.trace(np.linalg.solve(fisher, noise)) / 8)
    assert plateau_constant(fisher, noise) == pytest.approx(largest)
    for kind in [*KINDS, lambda f, s: precondition]:
        assert plateau_constant(fisher, noise, kind) <= largest * (1 + 1e-9)


@given(METRICS, METRICS, st.floats(-3, 3), st.floats(-3, 3), st.sampled_from(KINDS))
def test_constant_scales_as_the_loss(
    fisher: np.ndarray, noise: np.ndarray, loss: float, size: float, kind: Any
) -> None:
    """Scaling the loss by k scales it by k; the scale of P and of x does not count."""
    before = plateau_constant(fisher, noise, kind)
    k, unit = 10**loss, 10**size
    assert plateau_constant(fisher, k**2 * noise, kind) == pytest.approx(k * before)
    longer = plateau_constant(fisher, noise, lambda f, s: unit * kind(f, s))
    assert longer == pytest.approx(before)
    shrunk = plateau_constant(fisher / unit**2, noise / unit**2, kind)
    assert shrunk == pytest.approx(before)


@given(METRICS, METRICS, positive_matrices(3, spread=3))
def test_the_natural_constant_knows_no_coordinates(
    fisher: np.ndarray, noise: np.ndarray, change: np.ndarray
) -> None:
    before = plateau_constant(fisher, noise)
    after = plateau_constant(change @ fisher @ change.T, change @ noise @ change.T)
    assert after == pytest.approx(before, rel=1e-6)


@given(METRICS, METRICS)
def test_directions_without_information_do_not_count(
    fisher: np.ndarray, noise: np.ndarray
) -> None:
    wide, wide_noise = np.pad(fisher, (0, 2)), np.pad(noise, (0, 2))
    for kind in (natural, plain, adaptive):
        expected = plateau_constant(fisher, noise, kind)
        assert plateau_constant(wide, wide_noise, kind) == pytest.approx(expected)


def test_a_small_ridge_is_natural_and_a_large_one_plain() -> None:
    fisher, noise = np.diag([1.0, 4.0]), np.diag([3.0, 1.0])
    expected = plateau_constant(fisher, noise)
    found = plateau_constant(fisher, noise, ridged(1e-9))
    assert found == pytest.approx(expected)
    expected = plateau_constant(fisher, noise, plain)
    assert plateau_constant(fisher, noise, ridged(1e9)) == pytest.approx(expected)


@given(fractions_between(0, 2), st.integers(1, 20))
def test_isotropic_constant_equals_the_loop(a: F, dimension: int) -> None:
    state = outer.sgd(a, 1).stationary(3, 1)
    found = isotropic_constant(a, 3, dimension)
    squared = dimension * state.loss**2 / state.kl_per_update
    assert found == pytest.approx(float(squared) ** 0.5, rel=1e-12)
    small = plateau_constant(np.eye(dimension), 3 * np.eye(dimension))
    assert found > small
    tiny = isotropic_constant(1e-9, 3, dimension)
    assert tiny == pytest.approx(small, rel=1e-8)


def test_isotropic_constant_in_symbols() -> None:
    a, noise, d = sympy.symbols("a sigma d", positive=True)
    found = isotropic_constant(a, noise, d)
    assert sympy.simplify(found**2 - d * noise / (4 * (2 - a))) == 0


def test_no_noise_is_no_plateau() -> None:
    assert plateau_constant(np.eye(2), np.zeros((2, 2))) == 0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: plateau_constant(np.eye(2), np.eye(3)), "noise_covariance has shape"),
        (lambda: plateau_constant([[1.0, 2.0]], np.eye(1)), "fisher has shape"),
        (lambda: plateau_constant(np.empty((0, 0)), np.eye(1)), "fisher is empty"),
        (lambda: plateau_constant(np.diag([1.0, -1.0]), np.eye(2)), "eigenvalue"),
        (lambda: plateau_constant(np.eye(2), np.full((2, 2), np.nan)), "nan"),
        (lambda: plateau_constant(np.zeros((2, 2)), np.eye(2), plain), "some KL"),
        (lambda: ridged(0.0), "share"),
        (lambda: isotropic_constant(2, 1, 1), "scaled_curvature"),
        (lambda: isotropic_constant(0, 1, 1), "scaled_curvature"),
        (lambda: isotropic_constant(1, -1, 1), "noise_variance"),
        (lambda: isotropic_constant(1, 1, 0), "dimension"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
