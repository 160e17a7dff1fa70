"""`theory.knob_table`: each row's exponent against searches on exact spectra."""

from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import fractions_between, positive_floats
from theory.knob_table import (
    KnobRow,
    best_com,
    best_samples,
    critical_samples,
    held_kl,
    held_step,
    knob_table,
)
from theory.power_law import PowerLaw
from theory.spectrum import Spectrum

BUDGETS = (1e5, 1e6)


def row(step_exponent: Any, held: str) -> KnobRow:
    (found,) = [r for r in knob_table(step_exponent) if r.held == held]
    return found


def law(source: float, alignment: float = 1) -> PowerLaw:
    return PowerLaw(1.0, 2.0, 1.0, source, 0.5, alignment)


def growth(place: Callable[[float], float]) -> float:
    one, two = (float(place(budget)) for budget in BUDGETS)
    return float(np.log10(two / one))


@given(fractions_between(0, 1))
def test_rows_follow_from_one_exponent(p: F) -> None:
    rows = {r.held: r for r in knob_table(p)}
    assert len(rows) == 6
    assert all(r.ddr_exponent == 2 * p for r in rows.values())
    assert rows["nothing"].samples_exponent is None
    assert rows["outer step"].samples_exponent == p
    assert rows["KL per update"].samples_exponent == 2 * p
    assert rows["samples per update"].tuned_exponent == -p
    assert isinstance(rows["outer step"].samples_exponent, F)


LAWS = [law(0.5), law(1.0), law(2.0), law(0.5, alignment=0)]


@pytest.mark.parametrize("power", LAWS, ids=str)
def test_exponents_on_exact_spectra(power: PowerLaw) -> None:
    p, spectrum = float(power.step_exponent), power.spectrum(2000)
    found = growth(lambda b: best_samples(spectrum, b, held_step(0.02)).at)
    assert found == pytest.approx(row(p, "outer step").samples_exponent, abs=0.02)
    rule = held_kl(1e-7, spectrum.noise_trace)
    found = growth(lambda b: best_samples(spectrum, b, rule).at)
    assert found == pytest.approx(row(p, "KL per update").samples_exponent, abs=0.03)
    found = growth(lambda b: spectrum.best_outer_step(2.0, b / 2).at)
    expected = row(p, "samples per update").tuned_exponent
    assert found == pytest.approx(expected, abs=0.02)
    found = growth(lambda b: critical_samples(spectrum, b, 0.05))
    assert found == pytest.approx(p, abs=0.04)


@pytest.mark.parametrize("power", LAWS, ids=str)
def test_levels_follow_the_best_step_per_sample(power: PowerLaw) -> None:
    """N* = η/u* at a held step, 2δ/(u*²tr Σ) at a held KL, η* = u*N at a held N."""
    spectrum, budget, step = power.spectrum(2000), 1e5, 0.002
    u = spectrum.best_step_per_sample(budget).at
    found = best_samples(spectrum, budget, held_step(step)).at
    assert found == pytest.approx(step / u, rel=0.01)
    kl = 0.5 * (step * u) * spectrum.noise_trace  # so that the step is again `step`
    found = best_samples(spectrum, budget, held_kl(kl, spectrum.noise_trace)).at
    assert found == pytest.approx(2 * kl / (u**2 * spectrum.noise_trace), rel=0.02)
    n = step / u
    assert spectrum.best_outer_step(n, budget / n).at == pytest.approx(step, rel=0.01)


def test_a_held_kl_ends_at_the_stability_limit() -> None:
    """p = 1/3: n* ∝ B^(2p) until the step η(n*) ∝ B^p is too long; then n stays.

    So the row ends at every p, not only where n* would overtake the budget (p > 1/2).
    """
    power = law(0.5)
    spectrum = power.spectrum(2000)
    rule = held_kl(1e-2, spectrum.noise_trace)
    places = np.array([best_samples(spectrum, b, rule).at for b in (1e7, 1e9)])
    assert np.log10(places[1] / places[0]) < 0.2 * 2 * 2 * float(power.step_exponent)
    assert np.all(rule(places) > 0.5)
    best = spectrum.best_step_per_sample(1e9)
    assert best_samples(spectrum, 1e9, rule).value > 2 * best.value
    assert not row(F(1, 3), "KL per update").feasible


@pytest.mark.parametrize(("source", "step"), [(2.0, 0.01), (1.0, 0.03)])
def test_best_com_follows_the_budget_on_the_ridge(source: float, step: float) -> None:
    """In this model 1 + c* = η/((1+a)nu*) ∝ B^p, while c* is far from its limit."""
    power = law(source)
    spectrum, n = power.spectrum(200), 2.0
    memory = [best_com(spectrum, budget, step, n).at for budget in BUDGETS]
    for found, budget in zip(memory, BUDGETS, strict=True):
        u = spectrum.best_step_per_sample(budget).at
        assert found == pytest.approx(step / ((1 + step) * n * u), rel=0.03)
    p = float(power.step_exponent)
    expected = row(p, "outer step and samples per update").tuned_exponent
    assert np.log10(memory[1] / memory[0]) == pytest.approx(expected, abs=0.02)


def test_com_cannot_replace_a_smaller_step_for_ever() -> None:
    """In this model the acting policy's floor stays: at large η the loss does not fall.

    A smaller outer step at the same budget does far better than the best memory.
    """
    spectrum = law(2.0).spectrum(200)
    held = best_com(spectrum, 1e6, 1.0, 2.0)
    assert held.value > 10 * spectrum.best_outer_step(2.0, 5e5).value
    longer = best_com(spectrum, 1e7, 1.0, 2.0)
    assert longer.value > 0.5 * held.value


def test_the_ridge_and_its_end() -> None:
    """Loss +2 % at h₁nu* = .11, +8 % at .39, +35 % at 1.04 (α = 2, s = 1)."""
    spectrum, budget = law(1.0).spectrum(1000), 1e5
    u = spectrum.best_step_per_sample(budget).at
    found = [critical_samples(spectrum, budget, e) * u for e in (0.02, 0.08, 0.35)]
    assert found == pytest.approx([0.114, 0.391, 1.041], abs=0.002)


@given(positive_floats(1e2, 1e8), st.floats(0.01, 0.5))
def test_critical_samples_cost_what_they_may(budget: float, excess: float) -> None:
    spectrum = Spectrum(np.array([1.0, 0.2]), np.ones(2), np.ones(2))
    n = critical_samples(spectrum, budget, excess)
    best = spectrum.best_step_per_sample(budget)
    loss = spectrum.loss(best.at * n, n, budget / n)
    assert loss <= (1 + excess) * best.value * (1 + 1e-9)
    assert n == pytest.approx(budget) or loss > (1 + excess) * best.value * 0.999


SMALL = law(1.0).spectrum(5)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: knob_table(0), "step_exponent"),
        (lambda: knob_table(1), "step_exponent"),
        (lambda: knob_table(float("nan")), "step_exponent"),
        (lambda: held_step(0), "outer_step"),
        (lambda: held_kl(-1, 1), "kl_per_update"),
        (lambda: held_kl(1, 0), "noise_trace"),
        (lambda: best_samples(SMALL, 0, held_step(0.1)), "budget"),
        (lambda: critical_samples(SMALL, 1e3, 0), "excess"),
        (lambda: critical_samples(SMALL, -1, 0.1), "budget"),
        (lambda: best_com(SMALL, np.inf, 0.1, 1), "budget"),
        (lambda: best_com(SMALL, 1e3, -0.1, 1), "outer_step"),
        (lambda: best_com(SMALL, 1e3, 0.1, 0), "samples_per_update"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
