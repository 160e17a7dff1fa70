"""`theory.saturating`: formula, optimum by search, limits, scalings, refusals."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.support.strategies import positive_floats
from theory import laws
from theory.saturating import SaturatingLaw

saturating_laws = st.builds(
    SaturatingLaw,
    st.just(0.0) | positive_floats(1e-3, 1),
    positive_floats(1e-2, 1e2),
    positive_floats(1e-1, 1e2),
    positive_floats(1e-3, 1),
    positive_floats(0.1, 100),
)
budgets = positive_floats(1e4, 1e9)


@given(saturating_laws, budgets, positive_floats(1e2, 1e12))
def test_gap_equals_its_formula(law: SaturatingLaw, budget: float, ddr: float) -> None:
    z = budget / math.sqrt(ddr)
    left = float(law.bias) * (1 + float(law.rate) * z / float(law.source)) ** -float(
        law.source
    )
    expected = float(law.floor) + left + float(law.noise) / math.sqrt(ddr)
    assert law.gap(budget, ddr) == pytest.approx(expected, rel=1e-9)


@given(saturating_laws, budgets)
def test_best_ddr_equals_a_search(law: SaturatingLaw, budget: float) -> None:
    assume(float(law.bias * law.rate) * budget > 1.5 * float(law.noise))
    best = float(law.best_ddr(budget))
    found = minimize_scalar(
        lambda x: float(law.gap(budget, math.exp(x))),
        bracket=(math.log(best) - 1, math.log(best) + 0.7),
        tol=1e-10,
    )
    assert law.best_gap(budget) <= found.fun * (1 + 1e-9)
    assert law.gap(budget, best) == pytest.approx(law.best_gap(budget), rel=1e-12)
    assert found.x == pytest.approx(math.log(best), abs=1e-2)


@given(saturating_laws, budgets, positive_floats(1e2, 1e12), positive_floats(1, 1e3))
def test_more_budget_never_hurts_and_no_ddr_beats_the_best(
    law: SaturatingLaw, budget: float, ddr: float, factor: float
) -> None:
    assert law.gap(budget * factor, ddr) <= law.gap(budget, ddr) * (1 + 1e-12)
    assert law.regret(budget, ddr) >= -1e-12
    assert law.best_gap(budget * factor) <= law.best_gap(budget) * (1 + 1e-12)


@given(saturating_laws, budgets, positive_floats(1e2, 1e12), positive_floats(1e-2, 1e2))
def test_units(law: SaturatingLaw, budget: float, ddr: float, unit: float) -> None:
    # Transitions in another unit: B and D both change, z as its root.
    other = SaturatingLaw(
        law.floor, law.bias, law.noise * unit**0.5, law.rate / unit**0.5, law.source
    )
    moved = other.gap(budget * unit, ddr * unit)
    assert moved == pytest.approx(law.gap(budget, ddr), rel=1e-9)


def test_far_from_the_start_it_is_the_joint_law() -> None:
    law = SaturatingLaw(0.01, 5.0, 12.0, 50.0, 1.5)
    joint = laws.JointLaw(0.01, 5.0 * (50 / 1.5) ** -1.5, 12.0, 1.5)
    budget = 1e12
    assert law.gap(budget, 1e9) == pytest.approx(joint.gap(budget, 1e9), rel=1e-6)
    assert law.best_ddr(budget) == pytest.approx(joint.best_ddr(budget), rel=1e-3)
    assert law.optimum_exponent(1e18) == pytest.approx(joint.optimum_exponent, abs=1e-4)


def test_a_large_source_is_the_strongly_convex_optimum() -> None:
    # Unit Fisher, d coordinates: C = √(dσ²/8), A = ½·d·h·x₀², r = h/C.
    curvature, start, noise, dimension, budget = 2.0, 0.25, 9.0, 5, 1e6
    level = math.sqrt(dimension * noise / 8)
    law = SaturatingLaw(
        0, dimension * curvature * start / 2, level, curvature / level, 1e6
    )
    exact = laws.strongly_convex_optimum(curvature, start, noise, dimension, budget)
    assert law.best_ddr(budget) == pytest.approx(exact.ddr, rel=1e-4)
    assert law.best_gap(budget) == pytest.approx(exact.loss, rel=1e-4)


def test_slope_of_the_optimum() -> None:
    law = SaturatingLaw(0.0, 5.0, 12.0, 0.08, 4.0)
    low, high = (float(law.best_ddr(1e6 * math.exp(x))) for x in (-1e-4, 1e-4))
    assert law.optimum_exponent(1e6) == pytest.approx(
        math.log(high / low) / 2e-4, rel=1e-5
    )


def test_where_training_cannot_pay() -> None:
    law = SaturatingLaw(0.1, 1.0, 1e9, 1e-3, 2.0)
    assert law.best_ddr(1e6) == math.inf
    assert law.best_gap(1e6) == pytest.approx(1.1)
    quiet = SaturatingLaw(0.1, 1.0, 0.0, 1e-3, 2.0)
    assert quiet.best_ddr(1e6) == 0
    assert quiet.best_gap(1e6) == pytest.approx(0.1)


@pytest.mark.parametrize("field", ["floor", "bias", "noise", "rate", "source"])
def test_impossible_parameters_are_refused(field: str) -> None:
    good = {"floor": 0.0, "bias": 1.0, "noise": 1.0, "rate": 1.0, "source": 1.0}
    for value in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"{field} should be finite"):
            SaturatingLaw(**{**good, field: value})
    if field in ("rate", "source"):
        with pytest.raises(ValueError, match="> 0"):
            SaturatingLaw(**{**good, field: 0.0})


def test_impossible_arguments_are_refused() -> None:
    law = SaturatingLaw(0.0, 1.0, 1.0, 1.0, 1.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="budget should be"):
            law.gap(bad, 1.0)
        with pytest.raises(ValueError, match="ddr should be"):
            law.gap(1.0, bad)
        with pytest.raises(ValueError, match="budget should be"):
            law.best_ddr(bad)
