"""Loops of `theory.outer` with an averaged anchor: identities, orderings, limits."""

import math
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loops import as_floats
from tests.support.strategies import (
    coms,
    fractions_between,
    nonnegative_fractions,
    positive_fractions,
)
from theory import outer
from theory.outer.lyapunov import spectral_radius

STABLE = fractions_between(0, 2)
UNIT = fractions_between(0, 1)


def linear(a: F, com: F) -> outer.Stationary:
    """Variant A at h = 1 and q = 1."""
    return outer.ewma_linear(a, 1, com).stationary(1 / a**2, 1)


@given(STABLE, st.integers(0, 6), nonnegative_fractions())
def test_no_average_is_plain_descent(a: F, t: int, kappa: F) -> None:
    """Property 13: COM 0 is SGD."""
    plain = outer.sgd(a, 1)
    inner = outer.sgd(a / (1 + a), 1)
    for loop, same in (
        (outer.ewma_linear(a, 1, 0), plain),
        (outer.ewma_gradient(a, 1, kappa, 0), plain),
        (outer.ewma_proximal(a, 1, 0), inner),
    ):
        assert loop.stationary(1, 1) == same.stationary(1, 1)
        assert loop.second_moment(3, t, 1, 1) == same.second_moment(3, t, 1, 1)


@given(fractions_between(0, 3), coms())
def test_linear_anchor_stability_in_centre_of_mass(a: F, com: F) -> None:
    """Property 15: stable iff a < 2(1+c)/(1+2c)."""
    loop = outer.ewma_linear(a, 1, com)
    assert loop.stable == (a < 2 * (1 + com) / (1 + 2 * com))
    assert 1 < loop.stability_limit <= 2


@given(UNIT, coms(), positive_fractions())
def test_linear_anchor_kl_rises_with_averaging(a: F, com: F, more: F) -> None:
    """Property 16: KL per update increases in COM."""
    assert linear(a, com + more).kl_per_update > linear(a, com).kl_per_update


@given(fractions_between(0, F(1, 3)), coms(), positive_fractions())
def test_linear_anchor_helps_small_steps(a: F, com: F, more: F) -> None:
    """Property 17: V_x decreases in COM for a ≤ 1/3."""
    assert linear(a, com + more).acting_variance < linear(a, com).acting_variance


@given(fractions_between(1, 2), UNIT, UNIT)
def test_linear_anchor_hurts_large_steps(a: F, one: F, two: F) -> None:
    """Property 18: V_x increases in COM for a ≥ 1."""
    # Only centres of mass that keep the loop stable: a < 1 + 1/(1 + 2c).
    low, high = sorted(share * (2 - a) / (2 * (a - 1)) for share in (one, two))
    if low != high:
        assert linear(a, high).acting_variance > linear(a, low).acting_variance


@given(fractions_between(F(1, 3), 1), positive_fractions())
def test_linear_anchor_has_a_best_centre_of_mass(a: F, factor: F) -> None:
    """Property 19: the minimiser between, β* = (1−a)/(2a)."""
    best = (1 - a) / (3 * a - 1)
    least = linear(a, best).acting_variance
    assert least == (6 * a - 1 - a**2) / (a**2 * (3 - a) ** 2)
    if factor != 1:
        assert linear(a, factor * best).acting_variance > least


@given(UNIT, positive_fractions())
def test_linear_anchor_against_descent_of_equal_speed(a: F, com: F) -> None:
    """Property 20: at equal long-run speed V_x > V_SGD > V_r, by exact amounts."""
    state = linear(a, com)
    slow = outer.sgd(a / (1 + com), 1).stationary(1 / a**2, 1).acting_variance
    assert state.acting_variance > slow > state.reference_variance
    margin = (1 + com + a * com) * (2 * (1 + com) - (1 + 2 * com) * a)
    excess = 2 * a * com * (1 + com) * (1 + 2 * com) / margin
    saving = 2 * a * com * (1 - a) * (1 + com) / margin
    assert state.acting_variance == (1 + excess) * slow
    assert state.reference_variance == (1 - saving) * slow


@given(UNIT, coms())
def test_linear_anchor_speed(a: F, com: F) -> None:
    """The slow mode relaxes as ½((1+a) − √((1+a)² − 4a/(1+c))) per update."""
    matrix = as_floats(outer.ewma_linear(a, 1, com).linear_map().matrix)
    root = math.sqrt((1 + a) ** 2 - 4 * a / (1 + com))
    assert 1 - spectral_radius(matrix) == pytest.approx(
        (1 + float(a) - root) / 2, abs=1e-7
    )


@given(UNIT)
def test_linear_anchor_limits(a: F) -> None:
    """Property 21: COM → ∞ gives q/(1−a²), 0 and 2q/(1−a)."""
    state = linear(a, F(10**15))
    assert float(state.acting_variance) == pytest.approx(float(1 / (1 - a**2)))
    assert float(state.step_second_moment) == pytest.approx(float(2 / (1 - a)))
    assert state.reference_variance < F(1, 10**9)


@given(positive_fractions(), positive_fractions(), coms(), positive_fractions())
def test_proximal_anchor_is_descent_plus_a_floor(a: F, h: F, com: F, more: F) -> None:
    """Property 22: V_r is SGD with a smaller step; V_x has a floor."""
    eta = a / h
    state = outer.ewma_proximal(eta, h, com).stationary(1, 1)
    small = eta / ((1 + com) * (1 + a))
    assert (
        state.reference_variance == outer.sgd(small, h).stationary(1, 1).acting_variance
    )
    assert state.acting_variance > eta**2 / (1 + a) ** 2
    later = outer.ewma_proximal(eta, h, com + more).stationary(1, 1)
    assert later.acting_variance < state.acting_variance
    assert later.kl_per_update > state.kl_per_update


@given(positive_fractions())
def test_proximal_anchor_at_most_doubles_the_kl(a: F) -> None:
    first = outer.ewma_proximal(a, 1, 0).stationary(1, 1).kl_per_update
    last = outer.ewma_proximal(a, 1, 10**15).stationary(1, 1).kl_per_update
    assert float(last / first) == pytest.approx(float((2 + a) / (1 + a)))


@given(UNIT, UNIT, coms(), positive_fractions())
def test_gradient_anchor_falls_with_averaging(one: F, two: F, com: F, more: F) -> None:
    b, kappa = one * two, one * (1 - two)  # b + κ < 1
    state = outer.ewma_gradient(b, 1, kappa, com).stationary(1, 1)
    later = outer.ewma_gradient(b, 1, kappa, com + more).stationary(1, 1)
    assert later.acting_variance < state.acting_variance
    assert later.acting_variance > b**2 / ((b + kappa) * (2 - b - kappa))


@given(STABLE, coms())
def test_gradient_anchor_without_penalty_ignores_the_anchor(b: F, com: F) -> None:
    state = outer.ewma_gradient(b, 1, 0, com).stationary(1, 1)
    plain = outer.sgd(b, 1).stationary(1, 1)
    assert state.acting_variance == plain.acting_variance
    assert state.step_second_moment == plain.step_second_moment
    assert state.reference_variance <= plain.acting_variance


@given(STABLE, coms())
def test_averaging_without_feedback_reduces_variance(b: F, com: F) -> None:
    """Property 29: an average without feedback, κ = 0."""
    state = outer.ewma_gradient(b, 1, 0, com).stationary(1, 1)
    rho, beta = 1 - b, com / (1 + com)
    share = (1 - beta) / (1 + beta) * (1 + beta * rho) / (1 - beta * rho)
    assert state.reference_variance == state.acting_variance * share
