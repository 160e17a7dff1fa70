"""`theory.laws`: vectors, numerical minimisation, limits, scalings, refusals."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from tests.support.strategies import positive_floats
from theory import laws, outer

PREFACTORS = positive_floats(1e-3, 1e3)
BUDGETS = positive_floats(1e3, 1e12)
SOURCES = st.floats(0.05, 20)
FLOORS = st.just(0.0) | positive_floats(1e-3, 10)

joint_laws = st.builds(laws.JointLaw, FLOORS, PREFACTORS, PREFACTORS, SOURCES)
free_laws = st.builds(
    laws.FreeLaw,
    FLOORS,
    PREFACTORS,
    PREFACTORS,
    st.floats(0, 3),
    st.floats(0.05, 3),
    st.floats(0.05, 3),
)
any_law = joint_laws | free_laws


def test_joint_law_vector() -> None:
    law = laws.JointLaw(floor=0, bias=3, noise=2, source=0.7)
    assert law.best_ddr(1e3) == pytest.approx(279.035621242, rel=1e-11)
    assert law.best_gap(1e3) == pytest.approx(0.290770975158, rel=1e-11)
    assert law.optimum_exponent == pytest.approx(1.4 / 1.7, rel=1e-15)


def test_flatness_vectors() -> None:
    found = laws.flatness(np.array([2, 4, 10]), 1)
    assert found.tolist() == pytest.approx([1.06066, 1.25, 1.73925], rel=1e-5)


def test_strongly_convex_vector() -> None:
    # R = e² by choice of the budget: u* = 1/(hB), loss = 3dσ²/(8hB), DDR = 2h²B²/(dσ²).
    budget = math.exp(2) * 9 / (4 * 4 * 0.25)
    found = laws.strongly_convex_optimum(2, 0.25, 9, 5, budget)
    assert found.step_per_sample == pytest.approx(1 / (2 * budget), rel=1e-14)
    assert found.loss == pytest.approx(3 * 5 * 9 / (16 * budget), rel=1e-14)
    assert found.ddr == pytest.approx(8 * budget**2 / 45, rel=1e-14)


# Oracles.


@given(joint_laws, BUDGETS, positive_floats(1, 1e9))
def test_joint_gap_equals_its_formula(
    law: laws.JointLaw, budget: float, ddr: float
) -> None:
    s = law.source
    formula = (
        law.floor + law.bias * (budget**2 / ddr) ** (-s / 2) + law.noise / ddr**0.5
    )
    assert law.gap(budget, ddr) == pytest.approx(formula, rel=1e-10)


@given(any_law, BUDGETS)
@settings(max_examples=50)
def test_optimum_equals_numerical_minimum(law: Any, budget: float) -> None:
    best = law.best_ddr(budget)
    centre = math.log(best)
    found = minimize_scalar(
        lambda log_ddr: law.gap(budget, math.exp(log_ddr)),
        bounds=(centre - 3, centre + 5),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert law.best_gap(budget) == pytest.approx(found.fun, rel=1e-9)
    assert law.gap(budget, best) == pytest.approx(law.best_gap(budget), rel=1e-9)


@given(any_law, BUDGETS, positive_floats(1e-3, 1e3))
def test_no_ddr_beats_the_optimum(law: Any, budget: float, ratio: float) -> None:
    """Property 24, that D* is a minimum."""
    ddr = ratio * law.best_ddr(budget)
    assert law.gap(budget, ddr) >= law.best_gap(budget) * (1 - 1e-12)
    regret = law.regret(budget, ddr)
    assert regret >= 0
    expected = law.gap(budget, ddr) / law.best_gap(budget) - 1
    assert regret == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("budget", [1e5, 1e6])
def test_strongly_convex_optimum_equals_the_exact_loop(budget: float) -> None:
    h, start, noise, dimension = 0.7, 1.5, 2.0, 6

    def loss(log_step: float) -> float:
        loop = outer.sgd(math.exp(log_step), h)
        return dimension * h * loop.second_moment(start, int(budget), noise, 1) / 2

    best = laws.strongly_convex_optimum(h, start, noise, dimension, budget)
    centre = math.log(best.step_per_sample)
    found = minimize_scalar(
        loss, bounds=(centre - 1, centre + 1), method="bounded", options={"xatol": 1e-9}
    )
    assert math.exp(found.x - centre) == pytest.approx(1, rel=1e-3)
    assert best.loss == pytest.approx(found.fun, rel=1e-3)
    kl = dimension * best.step_per_sample**2 * noise / 2  # of one sample's noise
    assert best.ddr == pytest.approx(1 / kl, rel=1e-12)


def test_sympy_passes_through() -> None:
    floor, bias, noise, s, budget, ddr = sympy.symbols("E A C s B D", positive=True)
    law = laws.JointLaw(floor, bias, noise, s)
    assert sympy.simplify(law.optimum_exponent - 2 * s / (1 + s)) == 0
    best = law.best_ddr(budget)
    slope = sympy.diff(law.gap(budget, ddr), ddr).subs(ddr, best)
    point = {bias: 3, noise: 2, s: sympy.Rational(7, 10), budget: 1000, floor: 1}
    assert abs(slope.subs(point).evalf()) < 1e-15
    excess = law.gap(budget, best) - law.best_gap(budget)
    assert abs(excess.subs(point).evalf()) < 1e-14
    found = laws.strongly_convex_optimum(s, bias, noise, 1, budget)
    assert found.loss.has(sympy.log)
    assert laws.flatness(1, s) == 1
    assert law.regret(budget, ddr).has(ddr)


# Properties.


@given(joint_laws, BUDGETS)
def test_best_gap_is_one_plus_one_over_s_noises(
    law: laws.JointLaw, budget: float
) -> None:
    """Property 24, its gap."""
    noise = law.noise * law.best_ddr(budget) ** -0.5
    expected = law.floor + (1 + 1 / law.source) * noise
    assert law.best_gap(budget) == pytest.approx(expected, rel=1e-10)


@given(any_law, BUDGETS, positive_floats(1.1, 1e3))
def test_optimum_moves_by_its_exponent(law: Any, budget: float, more: float) -> None:
    grown = law.best_ddr(more * budget) / law.best_ddr(budget)
    assert grown == pytest.approx(more**law.optimum_exponent, rel=1e-9)


@given(joint_laws, BUDGETS, positive_floats(1.1, 1e3))
def test_more_budget_never_hurts(
    law: laws.JointLaw, budget: float, more: float
) -> None:
    """Property 25."""
    ddr = law.best_ddr(budget)
    assert law.gap(more * budget, ddr) <= law.gap(budget, ddr)
    assert law.best_gap(more * budget) <= law.best_gap(budget)


@given(joint_laws, BUDGETS)
def test_ddr_exponent_is_twice_the_gap_exponent(
    law: laws.JointLaw, budget: float
) -> None:
    one, two = law.best_gap(budget) - law.floor, law.best_gap(2 * budget) - law.floor
    if one > 1e-3 * law.floor:  # else the difference drowns in the floor's rounding
        expected = 2.0 ** (-law.optimum_exponent / 2)
        assert two / one == pytest.approx(expected, rel=1e-9)


@given(joint_laws, BUDGETS, positive_floats(1, 1e9), positive_floats(0.01, 100))
def test_rescaling_transitions_changes_the_noise_only(
    law: laws.JointLaw, budget: float, ddr: float, k: float
) -> None:
    # B → kB and D → k²D leave the bias alone.
    scaled = laws.JointLaw(law.floor, law.bias, k * law.noise, law.source)
    found = scaled.gap(k * budget, k**2 * ddr)
    assert found == pytest.approx(law.gap(budget, ddr), rel=1e-9)


@given(any_law, BUDGETS, positive_floats(1e-3, 1e3), positive_floats(0.01, 100))
def test_rescaling_the_score_leaves_the_choice(
    law: Any, budget: float, ratio: float, k: float
) -> None:
    fields = dict(vars(law))
    for name in ("floor", "bias", "noise"):
        fields[name] = k * fields[name]
    scaled = type(law)(**fields)
    ddr = law.best_ddr(budget)
    assert scaled.best_ddr(budget) == pytest.approx(ddr, rel=1e-9)
    found = scaled.regret(budget, ratio * ddr)
    assert found == pytest.approx(law.regret(budget, ratio * ddr), rel=1e-6, abs=1e-9)


@given(joint_laws, BUDGETS, positive_floats(1e-3, 1e3))
def test_flatness_is_the_ratio_of_gaps(
    law: laws.JointLaw, budget: float, ratio: float
) -> None:
    above = laws.JointLaw(0, law.bias, law.noise, law.source)
    found = above.regret(budget, ratio * above.best_ddr(budget)) + 1
    assert found == pytest.approx(laws.flatness(ratio, law.source), rel=1e-8)
    assert laws.flatness(ratio, law.source) >= 1 - 1e-12


@given(joint_laws, BUDGETS, positive_floats(1, 1e9))
def test_joint_law_is_a_free_law(law: laws.JointLaw, budget: float, ddr: float) -> None:
    s = law.source
    free = laws.FreeLaw(law.floor, law.bias, law.noise, s, s / 2, 0.5)
    assert free.gap(budget, ddr) == law.gap(budget, ddr)
    assert free.best_ddr(budget) == law.best_ddr(budget)
    assert free.best_gap(budget) == law.best_gap(budget)
    assert free.regret(budget, ddr) == law.regret(budget, ddr)
    assert free.optimum_exponent == law.optimum_exponent
    assert law.as_free() == free


@given(PREFACTORS, PREFACTORS, st.floats(0.05, 3), BUDGETS, BUDGETS)
def test_a_bias_without_budget_fixes_the_optimum(
    bias: float, noise: float, d: float, one: float, two: float
) -> None:
    law = laws.FreeLaw(0.1, bias, noise, 0, d, 0.5)
    assert law.best_ddr(one) == law.best_ddr(two)
    assert law.optimum_exponent == 0


@given(positive_floats(), positive_floats(), positive_floats(2, 1e6))
def test_strongly_convex_step_depends_on_the_ratio_only(
    h: float, start: float, ratio: float
) -> None:
    # h·u*·B is a function of R; the loss is proportional to the dimension.
    budget = ratio / (4 * h * h * start)
    one = laws.strongly_convex_optimum(h, start, 1, 1, budget)
    two = laws.strongly_convex_optimum(1, 1, 4, 2, ratio)
    expected = two.step_per_sample * ratio
    assert one.step_per_sample * h * budget == pytest.approx(expected, rel=1e-9)
    more = laws.strongly_convex_optimum(h, start, 1, 3, budget)
    assert more.loss == pytest.approx(3 * one.loss, rel=1e-12)


# Limits of the exponents.


def test_a_bias_that_never_falls() -> None:
    for source in (0, 1e-300):
        law = laws.JointLaw(1, 3, 2, source)
        assert law.best_ddr(1e3) == math.inf
        assert law.best_gap(1e3) == pytest.approx(4, rel=1e-14)
        assert law.optimum_exponent == pytest.approx(0, abs=1e-200)
        assert law.regret(1e3, 4.0) == pytest.approx(1 / 4, rel=1e-12)
    assert laws.flatness(7.0, 0) == 1


def test_a_start_forgotten_at_once() -> None:
    for source in (1e7, 1e300):
        law = laws.JointLaw(1, 3, 2, source)
        assert law.best_ddr(1e3) == pytest.approx(1e6, rel=1e-4)
        assert law.best_gap(1e3) == pytest.approx(1 + 2 / 1e3, rel=1e-6)
        assert law.gap(1e3, 1e8) == math.inf
        assert law.gap(1e3, 1e4) == pytest.approx(1 + 2 / 1e2)
        assert law.optimum_exponent == pytest.approx(2)


def test_missing_terms() -> None:
    no_bias, no_noise, flat = (
        laws.JointLaw(0.0, bias, noise, 1.0) for bias, noise in ((0, 2), (3, 0), (0, 0))
    )
    assert no_bias.best_ddr(1e3) == math.inf
    assert no_noise.best_ddr(1e3) == 0
    assert math.isnan(flat.best_ddr(1e3))
    assert [law.best_gap(1e3) for law in (no_bias, no_noise, flat)] == [0, 0, 0]
    regrets = [law.regret(1e3, 9.0) for law in (no_bias, no_noise, flat)]
    assert regrets == [math.inf, math.inf, 0]
    assert laws.JointLaw(0, 0, 2, 1e6).gap(1e3, 1e8) == 2e-4  # not 0·inf


def test_arrays_broadcast() -> None:
    bias = np.array([0.0, 1.0, 3.0])
    law = laws.JointLaw(0.1, bias, 2.0, np.array([1.0, 0.0, 0.7]))
    budgets = np.array([[1e3], [1e6]])
    for name, arguments in (
        ("gap", (budgets, 50.0)),
        ("best_ddr", (budgets,)),
        ("best_gap", (budgets,)),
        ("regret", (budgets, 50.0)),
    ):
        found = getattr(law, name)(*arguments)
        assert found.shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            single = laws.JointLaw(0.1, bias[j], 2.0, law.source[j])
            cell = [arguments[0][i, 0], *arguments[1:]]
            assert found[i, j] == pytest.approx(getattr(single, name)(*cell))
    many = laws.strongly_convex_optimum(1, 1, 1, np.array([1, 2]), budgets)
    assert many.loss.shape == (2, 2)


LAW = laws.JointLaw(0, 1, 1, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: laws.JointLaw(-1, 1, 1, 1), "floor is -1"),
        (lambda: laws.JointLaw(0, math.nan, 1, 1), "bias is nan"),
        (lambda: laws.JointLaw(0, 1, np.array([1, -2]), 1), "noise holds -2"),
        (lambda: laws.JointLaw(0, 1, 1, math.inf), "source is inf"),
        (lambda: laws.FreeLaw(0, 1, 1, -1, 1, 1), "budget_exponent is -1"),
        (lambda: laws.FreeLaw(0, 1, 1, 1, -1, 1), "ddr_exponent is -1"),
        (lambda: laws.FreeLaw(0, 1, 1, 1, 1, 0), "noise_exponent is 0"),
        (lambda: LAW.gap(0, 1), "budget is 0"),
        (lambda: LAW.gap(1, -3), "ddr is -3"),
        (lambda: LAW.best_ddr(math.inf), "budget is inf"),
        (lambda: LAW.best_gap(-1), "budget is -1"),
        (lambda: LAW.regret(1, math.nan), "ddr is nan"),
        (lambda: laws.flatness(0, 1), "ratio is 0"),
        (lambda: laws.flatness(1, -1), "source is -1"),
        (lambda: laws.strongly_convex_optimum(1, 1, 1, 1, 0.2), "must be above 0.25"),
        (lambda: laws.strongly_convex_optimum(0, 1, 1, 1, 9), "curvature is 0"),
        (lambda: laws.strongly_convex_optimum(1, 1, 1, 0, 9), "dimension is 0"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
