"""`theory.spectrum` and `theory.search`: loops, step by step twins, brute grids."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.support.statistical import assert_mean
from tests.support.strategies import (
    fractions_between,
    nonnegative_fractions,
    positive_floats,
    spectra,
)
from theory import outer
from theory.search import least
from theory.spectrum import Spectrum

SMALL = Spectrum(
    np.array([1.0, 0.3, 0.01]), np.array([1.0, 2.0, 50.0]), np.array([2.0, 0.5, 0.1])
)


def made(curvatures: list[F]) -> tuple[Spectrum, list[F], list[F]]:
    initial = [F(3) / h for h in curvatures]
    noise = [1 + h for h in curvatures]
    arrays = (np.array(v, dtype=float) for v in (curvatures, initial, noise))
    return Spectrum(*arrays), initial, noise


@given(spectra(), fractions_between(0, 3), st.integers(0, 40), st.integers(1, 9))
def test_loss_is_the_sum_of_the_loops(
    curvatures: list[F], eta: F, updates: int, n: int
) -> None:
    """Property 33: losses add over directions, each that of its exact loop."""
    spectrum, initial, noise = made(curvatures)
    expected = sum(
        h * outer.sgd(eta, h).second_moment(x, updates, s, n) / 2
        for h, x, s in zip(curvatures, initial, noise, strict=True)
    )
    found = spectrum.loss(float(eta), n, updates)
    assert found == pytest.approx(float(expected), rel=1e-9)


@given(spectra(), spectra(), st.floats(0, 1.9), st.integers(0, 100))
def test_losses_add_over_blocks_in_any_order(
    one: list[F], two: list[F], eta: float, updates: int
) -> None:
    """Properties 33 and 44: blocks add, and the order of directions is irrelevant."""
    parts = [made(block)[0].loss(eta, 3, updates) for block in (one, two)]
    whole = made(two + one)[0].loss(eta, 3, updates)
    assert whole == pytest.approx(sum(parts))


@given(positive_floats(0.01, 100), st.floats(0.01, 1.9), st.integers(1, 30))
def test_rescaling_x_changes_units_only(k: float, eta: float, updates: int) -> None:
    """Property 1: x → kx with h/k², σ²/k², ηk² changes no loss."""
    scaled = Spectrum(SMALL.curvature / k**2, SMALL.initial * k**2, SMALL.noise / k**2)
    expected = SMALL.loss(eta, 7, updates)
    assert scaled.loss(eta * k**2, 7, updates) == pytest.approx(expected)


@given(positive_floats(0.01, 100), positive_floats(1e-4, 1e-2))
def test_time_and_step_rescale_together(k: float, u: float) -> None:
    """Property 34: (a, t) → (a/k, kt) with the plateau held changes nothing."""
    louder = Spectrum(SMALL.curvature, SMALL.initial, k * SMALL.noise)
    expected = SMALL.ridge_loss(u, 1e3)
    assert louder.ridge_loss(u / k, k * 1e3) == pytest.approx(expected)


def test_exact_cases() -> None:
    half = Spectrum(np.ones(1), np.full(1, 4.0), np.ones(1))
    assert half.loss(0.5, 1, 3) == pytest.approx(25 / 128)
    assert half.loss(1.0, 5, 1) == pytest.approx(0.1)  # one Newton step
    assert half.loss(1.0, 5, 0) == half.initial_loss == 2
    assert half.loss(0.0, 5, 9) == 2
    assert half.loss(2.0, 5, 7) == pytest.approx((4 + 4 / 5 * 7) / 2)  # random walk
    assert half.loss(1e3, 5, 10**6) == np.inf


def test_loss_broadcasts_over_knobs() -> None:
    etas, counts = np.array([[0.1], [0.5]]), np.array([1, 10, 100])
    found = SMALL.loss(etas, 4, counts)
    assert found.shape == (2, 3)
    assert found[1, 2] == pytest.approx(SMALL.loss(0.5, 4, 100))


def test_ridge_is_the_limit_of_small_steps() -> None:
    """Property 47 beside it: η → 0 at held ηK and no noise is the gradient flow."""
    u, budget = 1e-3, 2e3
    ridge = SMALL.ridge_loss(u, budget)
    errors = [SMALL.loss(u * n, n, budget / n) / ridge - 1 for n in (10, 1, 0.1)]
    assert abs(errors[2]) < 2e-4
    assert np.array(errors[:2]) / errors[1:] == pytest.approx([10, 10], rel=0.1)
    silent = Spectrum(SMALL.curvature, SMALL.initial, np.zeros(3))
    flow = SMALL.curvature @ (SMALL.initial * np.exp(-2 * SMALL.curvature * 3)) / 2
    assert silent.loss(1e-7, 1, 3e7) == pytest.approx(flow, rel=1e-6)


def test_noise_at_a_plateau_falls_as_the_batch_grows() -> None:
    """Property 36, of a held step: the plateau is proportional to 1/n."""
    plateau = SMALL.loss(0.2, np.array([1.0, 10.0, 1e4]), 10**6)
    assert plateau * [1, 10, 1e4] == pytest.approx(plateau[0])


def test_loss_equals_monte_carlo() -> None:
    generator = np.random.default_rng(8)
    x = np.sqrt(SMALL.initial) * generator.choice([-1, 1], size=(20_000, 3))
    for _ in range(9):
        noise = generator.normal(size=x.shape) * np.sqrt(SMALL.noise / 4)
        x = x - 0.7 * (SMALL.curvature * x + noise)
    seen = (x**2 @ SMALL.curvature) / 2
    expected = SMALL.loss(0.7, 4, 9)
    assert_mean(seen, expected, effect=0.05 * expected)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(seen, 1.05 * expected, effect=0.05 * expected)


@given(positive_floats(10, 1e8))
def test_best_step_per_sample_is_the_least_of_a_brute_grid(budget: float) -> None:
    best = SMALL.best_step_per_sample(budget)
    grid = np.geomspace(1e-9 / budget, 1e4 / budget, 3000)
    assert best.value <= SMALL.ridge_loss(grid, budget).min() * (1 + 1e-9)
    assert best.value == pytest.approx(SMALL.ridge_loss(best.at, budget))


@given(st.integers(1, 100), st.integers(1, 10**5))
def test_best_outer_step_is_the_least_of_a_brute_grid(n: int, updates: int) -> None:
    best = SMALL.best_outer_step(n, updates)
    grid = np.geomspace(1e-9, 2, 3000)
    assert best.value <= SMALL.loss(grid, n, updates).min() * (1 + 1e-9)
    assert best.value == pytest.approx(SMALL.loss(best.at, n, updates))


def test_ddr_noise() -> None:
    assert SMALL.ddr_noise(0.1) == pytest.approx(2 / (0.01 * 2.6))
    silent = Spectrum(np.ones(1), np.ones(1), np.zeros(1))
    assert silent.ddr_noise(1.0) == np.inf


# The search.


@given(positive_floats(1e-3, 1e3), nonnegative_fractions())
def test_least_equals_a_library(centre: float, shift: F) -> None:
    def bowl(x: Any) -> Any:
        return np.log(x / centre) ** 2 + np.log(x / centre) ** 4 + float(shift)

    found = least(bowl, 1e-6, 1e6)
    library = minimize_scalar(
        lambda z: bowl(np.exp(z)), bounds=np.log([1e-6, 1e6]), method="bounded"
    )
    assert found.value <= library.fun + 1e-9 * (1 + float(shift))
    assert found.at == pytest.approx(centre, rel=1e-3)


def test_least_at_an_end_and_case_by_case() -> None:
    assert least(lambda x: x, 2.0, 5.0).at == pytest.approx(2)
    centres = np.array([0.1, 1.0, 50.0])
    found = least(lambda x: np.log(x / centres) ** 2, 1e-3, np.full(3, 20.0))
    assert found.at == pytest.approx([0.1, 1.0, 20.0], rel=1e-6)
    assert least(lambda x: np.where(x < 3, np.nan, x), 1.0, 9.0).at == pytest.approx(
        3, rel=1e-6
    )


ONE = np.ones(1)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Spectrum(np.empty(0), np.empty(0), np.empty(0)), "curvature"),
        (lambda: Spectrum(np.zeros(1), ONE, ONE), "curvature"),
        (lambda: Spectrum(ONE, -ONE, ONE), "initial"),
        (lambda: Spectrum(ONE, ONE, ONE * np.nan), "noise"),
        (lambda: Spectrum(ONE, ONE, np.ones(2)), "must agree"),
        (lambda: SMALL.loss(-1, 1, 1), "outer_step"),
        (lambda: SMALL.loss(1, 0, 1), "samples_per_update"),
        (lambda: SMALL.loss(1, 1, -1), "updates"),
        (lambda: SMALL.ridge_loss(-1, 1), "step_per_sample"),
        (lambda: SMALL.ridge_loss(1, np.inf), "budget"),
        (lambda: SMALL.best_step_per_sample(0), "budget"),
        (lambda: SMALL.best_outer_step(0, 1), "samples_per_update"),
        (lambda: SMALL.best_outer_step(1, 0), "updates"),
        (lambda: SMALL.ddr_noise(0), "step_per_sample"),
        (lambda: least(lambda x: x, 2.0, 1.0), "low and high"),
        (lambda: least(lambda x: x * np.nan, 1.0, 2.0), "no finite value"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
