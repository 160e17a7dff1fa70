"""`theory.finite_horizon` and `theory.power_law`: search, recursions, local slopes."""

import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.strategies import fractions_between, positive_floats
from theory import laws
from theory.finite_horizon import (
    decaying_step,
    fixed_step_optimum,
    isotropic_optimum,
)
from theory.power_law import PowerLaw
from theory.search import least
from theory.spectrum import Spectrum

SIZES = positive_floats(1e-2, 1e2)


def isotropic(h: float, start: float, noise: float, d: int) -> Spectrum:
    return Spectrum(*(np.full(d, value) for value in (h, start, noise)))


@given(SIZES, SIZES, SIZES, st.integers(1, 5), positive_floats(1e-3, 1e9))
def test_isotropic_optimum_is_the_minimum(
    h: float, start: float, noise: float, d: int, budget: float
) -> None:
    """Property 31: u* is the minimum, at any R."""
    best = isotropic_optimum(h, start, noise, d, budget)
    spectrum = isotropic(h, start, noise, d)
    found = spectrum.ridge_loss(best.step_per_sample, budget)
    assert best.loss == pytest.approx(found, rel=1e-9)
    around = best.step_per_sample * np.geomspace(1e-3, 1e3, 200)
    assert best.loss <= spectrum.ridge_loss(around, budget).min() * (1 + 1e-9)
    assert best.ddr == pytest.approx(spectrum.ddr_noise(best.step_per_sample))


@given(SIZES, SIZES, SIZES, positive_floats(1e-1, 1e6), positive_floats(0.1, 10))
def test_best_decay_time_depends_on_the_ratio_only(
    h: float, start: float, noise: float, budget: float, k: float
) -> None:
    """Property 31: h·u*·B is a function of R = 4h²x₀²B/σ² alone."""
    one = isotropic_optimum(h, start, noise, 1, budget).step_per_sample * h * budget
    # The same R, from another h, start and budget.
    two = isotropic_optimum(h * k, start / k, noise, 3, budget / k)
    assert two.step_per_sample * h * budget == pytest.approx(one)


def test_isotropic_optimum_is_the_asymptote_of_the_laws() -> None:
    for budget, error in ((1e2, 0.1), (1e4, 1e-3), (1e8, 1e-7)):
        exact = isotropic_optimum(1.0, 2.0, 3.0, 4, budget)
        rough = laws.strongly_convex_optimum(1.0, 2.0, 3.0, 4, budget)
        assert rough.loss == pytest.approx(exact.loss, rel=error)
        assert rough.step_per_sample == pytest.approx(exact.step_per_sample, rel=error)
        assert rough.ddr == pytest.approx(exact.ddr, rel=3 * error)


def test_a_small_budget_leaves_the_start() -> None:
    best = isotropic_optimum(1.0, 1.0, 1.0, 2, 1e-9)
    assert best.loss == pytest.approx(1.0, rel=1e-6)
    assert best.step_per_sample == pytest.approx(1.0, rel=1e-6)  # y = R/2


@given(st.floats(0.01, 0.99), SIZES, SIZES, SIZES, positive_floats(1e2, 1e9))
def test_fixed_step_optimum_is_the_minimum(
    a: float, h: float, start: float, noise: float, budget: float
) -> None:
    best = fixed_step_optimum(a / h, h, start, noise, 3, budget)
    spectrum = isotropic(h, start, noise, 3)
    n = best.samples_per_update
    found = spectrum.loss(a / h, n, budget / n)
    assert best.loss == pytest.approx(found, rel=1e-9)
    around = n * np.geomspace(1e-2, 1e2, 200)
    losses = spectrum.loss(a / h, around, budget / around)
    assert best.loss <= losses.min() * (1 + 1e-9)
    assert best.ddr == pytest.approx(spectrum.ddr_noise(a / h / n))


def test_fixed_step_optimum_is_nearly_linear_in_the_budget() -> None:
    """N* ∝ B/ln B when the step is held: its local exponent is 1 − 1/ln A."""
    budgets = np.array([1e8, 1.01e8])
    n = fixed_step_optimum(0.1, 1.0, 1.0, 1.0, 1, budgets).samples_per_update
    w, c = -2e8 * np.log1p(-0.1), 0.1 / 1.9
    slope = np.diff(np.log(n))[0] / np.log(1.01)
    assert slope == pytest.approx(1 - 1 / math.log(w / c), abs=1e-3)


def test_small_fixed_steps_follow_the_ridge() -> None:
    fixed = fixed_step_optimum(1e-5, 1.0, 2.0, 3.0, 4, 1e4)
    best = isotropic_optimum(1.0, 2.0, 3.0, 4, 1e4)
    assert fixed.loss == pytest.approx(best.loss, rel=1e-4)
    assert 1e-5 / fixed.samples_per_update == pytest.approx(
        best.step_per_sample, rel=1e-4
    )
    assert fixed.ddr == pytest.approx(best.ddr, rel=1e-4)


# Decaying steps.


@given(fractions_between(0, 5), st.integers(1, 50), st.integers(1, 9))
def test_decaying_step_is_exact_at_scale_one(h: F, updates: int, n: int) -> None:
    variance = F(7)
    for t in range(1, updates + 1):
        variance = (1 - F(1, t)) ** 2 * variance + (1 / (h * t)) ** 2 * F(5, n)
    found = decaying_step(float(h), 5, 3, updates * n)
    assert found.loss == pytest.approx(float(3 * h * variance / 2))
    last = 3 * (1 / (h * updates)) ** 2 * F(5, n) / 2  # noise KL of the last update
    assert found.ddr == pytest.approx(float(n / last))


@pytest.mark.parametrize("scale", [0.75, 1.0, 2.0, 5.0])
def test_decaying_step_is_the_limit_of_its_recursion(scale: float) -> None:
    variance, updates = 1.0, 100_000
    for t in range(1, updates + 1):
        variance = (1 - scale / t) ** 2 * variance + (scale / t) ** 2
    expected = decaying_step(1.0, 1.0, 1, updates, scale).loss
    # The start is forgotten as t^(1−2k) relatively: slowest near k = ½.
    assert variance / 2 == pytest.approx(expected, rel=2e-2)


def test_a_constant_step_beats_a_decaying_one_only_briefly() -> None:
    """(1 + ln R)/4 is the ratio of their losses at the end: R = e³ is even."""
    budget = math.exp(3) / 4
    best = isotropic_optimum(1.0, 1.0, 1.0, 1, np.array([budget / 5, 1e3 * budget]))
    decayed = decaying_step(1.0, 1.0, 1, np.array([budget / 5, 1e3 * budget]))
    assert (best.loss < decayed.loss).tolist() == [True, False]
    grown = decaying_step(1.0, 1.0, 1, np.array([1e3, 1e4])).ddr
    assert grown[1] == pytest.approx(100 * grown[0])


# Power laws.


def power_law(source: Any, decay: Any = 2, alignment: Any = 1) -> PowerLaw:
    return PowerLaw(1.5, decay, 0.7, source, 0.5, alignment)


def test_exponents_are_exact_fractions() -> None:
    aligned = power_law(F(1, 2))
    assert aligned.step_exponent == aligned.loss_exponent == F(1, 3)
    isotropic_noise = power_law(F(1, 2), alignment=0)
    assert isotropic_noise.step_exponent == F(1, 2)
    assert isotropic_noise.loss_exponent == F(1, 4)
    assert power_law(1, alignment=0).step_exponent == F(3, 5)
    assert power_law(1, alignment=0).loss_exponent == F(2, 5)
    assert isinstance(power_law(F(1), alignment=F(1, 4)).ddr_exponent, F)


@given(fractions_between(0, 4), fractions_between(1, 4), fractions_between(0, 2))
def test_ddr_exponent_is_twice_that_of_the_loss_for_finite_trace(
    source: F, decay: F, alignment: F
) -> None:
    """p_DDR = 2p_L exactly for noise of finite trace; above it otherwise."""
    assume(decay * alignment != 1)
    law = power_law(source, decay, alignment)
    if decay * alignment > 1:
        assert law.ddr_exponent == 2 * law.loss_exponent
        joint = law.joint_law().optimum_exponent
        assert joint == pytest.approx(float(law.ddr_exponent))
    else:
        assert law.ddr_exponent > 2 * law.loss_exponent
        excess = 1 + law.filling / source
        assert law.ddr_exponent == 2 * excess * law.loss_exponent


@given(
    st.floats(0.2, 3),
    st.floats(1.05, 3),
    st.floats(0, 2),
    positive_floats(1e2, 1e12),
)
def test_best_step_of_a_power_law_is_the_minimum(
    source: float, decay: float, alignment: float, budget: float
) -> None:
    assume(abs(decay * alignment - 1) > 0.05)
    law = power_law(source, decay, alignment)
    best = law.best_step_per_sample(budget)
    assert law.best_gap(budget) == pytest.approx(law.gap(best, budget))
    around = best * np.geomspace(1e-2, 1e2, 99)
    assert law.gap(around, budget).min() >= law.best_gap(budget) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("source", "alignment", "tolerance"),
    [(0.5, 1, 0.02), (1.0, 1, 0.03), (2.0, 1, 0.06), (0.5, 0, 0.02), (1.0, 0, 0.02)],
)
def test_constants_and_exponents_on_exact_spectra(
    source: float, alignment: int, tolerance: float
) -> None:
    """Infinite sums, by 20,000 directions: level and local exponents of u* and loss."""
    law = power_law(source, alignment=alignment)
    spectrum = law.spectrum(20_000)
    budgets = np.array([1e4, 1e5])
    found = [spectrum.best_step_per_sample(budget) for budget in budgets]
    steps = np.array([best.at for best in found])
    losses = np.array([best.value for best in found])
    assert steps == pytest.approx(law.best_step_per_sample(budgets), rel=tolerance)
    assert losses == pytest.approx(law.best_gap(budgets), rel=tolerance)
    p_step, p_loss = (-np.diff(np.log10(values))[0] for values in (steps, losses))
    assert p_step == pytest.approx(float(law.step_exponent), abs=0.005)
    assert p_loss == pytest.approx(float(law.loss_exponent), abs=0.01)
    if alignment == 1:
        assert 2 * p_step == pytest.approx(2 * p_loss, abs=0.03)  # p_DDR = 2p_L
    else:
        assert 2 * p_step > 2 * p_loss + 0.3


@pytest.mark.parametrize("alignment", [0.0, 0.25, 1.0, 1.5])
def test_parts_of_the_gap_are_the_limits_of_their_sums(alignment: float) -> None:
    law = power_law(1.5, alignment=alignment)
    u, budget = 1.0, 1e5
    i = np.arange(1.0, 1e6)
    h = 1.5 * i**-2
    bias = (0.7 * i**-4 * np.exp(-2 * h * u * budget)).sum() / 2
    found = law.bias_constant * (u * budget) ** -1.5
    assert found == pytest.approx(bias, rel=1e-3)
    filled = -np.expm1(-2 * h * u * budget)
    noise = u * (0.5 * i ** (-2 * alignment) * filled).sum() / 4
    found = law.noise_constant * u * (u * budget) ** law.filling
    assert found == pytest.approx(noise, rel=0.03)


@given(st.floats(0.2, 3), positive_floats(1e2, 1e10), positive_floats(1e-6, 1e-2))
def test_joint_law_is_the_same_gap(source: float, budget: float, u: float) -> None:
    power = power_law(source)
    law = power.joint_law()
    ddr = 2 / (u**2 * power.noise_trace)
    assert law.gap(budget, ddr) == pytest.approx(power.gap(u, budget))
    assert law.best_gap(budget) == pytest.approx(power.best_gap(budget))
    best = power.best_step_per_sample(budget)
    expected = 2 / (best**2 * power.noise_trace)
    assert law.best_ddr(budget) == pytest.approx(expected)


def test_joint_law_predicts_an_exact_spectrum_without_a_fit() -> None:
    power = power_law(1.0)
    law, spectrum = power.joint_law(), power.spectrum(20_000)
    ddr = law.best_ddr(1e6)
    u = math.sqrt(2 / (ddr * spectrum.noise_trace))
    found = least(lambda n: spectrum.loss(u * n, n, 1e6 / n), 0.1, 1.0).value
    assert law.gap(1e6, ddr) == pytest.approx(found, rel=0.02)


GOOD = (1.0, 2.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: isotropic_optimum(0, 1, 1, 1, 1), "curvature"),
        (lambda: isotropic_optimum(1, -1, 1, 1, 1), "initial_second_moment"),
        (lambda: isotropic_optimum(1, 1, np.nan, 1, 1), "noise_variance"),
        (lambda: isotropic_optimum(1, 1, 1, 1, np.inf), "budget"),
        (lambda: fixed_step_optimum(1, 1, 1, 1, 1, 1), "outer_step"),
        (lambda: fixed_step_optimum(-1, 1, 1, 1, 1, 1), "outer_step"),
        (lambda: decaying_step(1, 1, 1, 1, 0.5), "scale"),
        (lambda: decaying_step(1, 1, 0, 1), "dimension"),
        (lambda: PowerLaw(*GOOD[:4], -1.0), "noise"),
        (lambda: PowerLaw(1.0, 2.0, 1.0, 0.0, 1.0), "source"),
        (lambda: PowerLaw(*GOOD, 0.5), "alignment"),
        (lambda: PowerLaw(1.0, 0.5, 1.0, 1.0, 1.0, 0.5), "alignment"),
        (lambda: PowerLaw(*GOOD, -1.0), "alignment"),
        (lambda: PowerLaw(*GOOD, 0.0).joint_law(), "finite trace"),
        (lambda: PowerLaw(*GOOD).spectrum(0), "size"),
        (lambda: PowerLaw(*GOOD).gap(0.0, 1.0), "step_per_sample"),
        (lambda: PowerLaw(*GOOD).gap(1.0, -1.0), "budget"),
        (lambda: PowerLaw(*GOOD).best_gap(0.0), "budget"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
