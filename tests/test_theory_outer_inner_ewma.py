"""`theory.outer.ewma_inner`: PPO-EWMA with the anchor averaged in the inner loop."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import loops
from tests.support.strategies import (
    coms,
    fractions_between,
    nonnegative_fractions,
    positive_floats,
)
from theory import outer
from theory.outer.lyapunov import spectral_radius

UNIT = fractions_between(0, 1)
STEPS = st.integers(1, 6)


def slow_rate(loop: outer.Loop) -> float:
    return 1 - spectral_radius(loops.as_floats(loop.linear_map().matrix))


@pytest.mark.parametrize(
    ("com", "acting", "reference", "moved", "rate", "ratio"),
    [
        (0, 1594, 1594, 877, 0.275, 1.00),
        (8, 907, 841, 359, 0.160, 1.04),
        (32, 428, 351, 191, 0.069, 1.19),
        (128, 184, 106, 158, 0.021, 1.73),
        (512, 107, 28, 154, 0.0056, 3.8),
        (8192, 81, 2, 154, 0.0004, 45),
    ],
)
def test_table_of_centres_of_mass(
    com: int, acting: float, reference: float, moved: float, rate: float, ratio: float
) -> None:
    loop = outer.ewma_inner(1, F(1, 100), F(1, 10), com, 32)
    state = loop.stationary(1, 1)
    assert float(state.acting_variance) == pytest.approx(acting, abs=0.5)
    assert float(state.reference_variance) == pytest.approx(reference, abs=0.5)
    assert float(state.step_second_moment) == pytest.approx(moved, abs=0.5)
    slow = slow_rate(loop)
    assert slow == pytest.approx(rate, rel=0.12)
    plain = slow / (1e-4 * (2 - slow))  # sgd that relaxes as fast
    assert float(state.acting_variance) / plain == pytest.approx(ratio, rel=0.01)


def test_table_without_averaging_across_updates() -> None:
    step = outer.effective_step(10, 1, F(1, 100), 32)
    state = outer.sgd(step, F(1, 100)).stationary(1, 1)
    assert float(state.acting_variance) == pytest.approx(464, abs=0.5)
    assert float(state.step_second_moment) == pytest.approx(82, abs=0.5)


@given(UNIT, UNIT, coms(), STEPS)
def test_update_is_the_gradient_steps_one_by_one(
    b: F, kappa: F, com: F, steps: int
) -> None:
    written = loops.ewma_inner(b, F(1), kappa, com, steps)
    matrix, gain = loops.matrix_of(written)
    assert written.loop.linear_map().matrix == matrix
    assert written.loop.linear_map().gain == tuple(entry for (entry,) in gain)


@given(UNIT, nonnegative_fractions(), coms())
def test_one_gradient_step_is_the_loop_of_fresh_batches(b: F, kappa: F, com: F) -> None:
    one = outer.ewma_inner(b, 1, kappa, com, 1)
    fresh = outer.ewma_gradient(b, 1, kappa, com)
    assert one.stability_limit == fresh.stability_limit
    assert one.stable == fresh.stable
    if one.stable:
        assert one.stationary(1, 3) == fresh.stationary(1, 3)
        assert one.second_moment(2, 3, 1, 3) == fresh.second_moment(2, 3, 1, 3)


@given(UNIT, nonnegative_fractions(), STEPS)
def test_no_average_is_an_inner_loop_without_penalty(
    b: F, kappa: F, steps: int
) -> None:
    """Property 13 for this variant: COM 0 is plain descent, whatever the penalty."""
    loop = outer.ewma_inner(b, 1, kappa, 0, steps)
    plain = outer.sgd(outer.effective_step(math.inf, b, 1, steps), 1)
    assert loop.stationary(1, 2) == plain.stationary(1, 2)
    assert loop.second_moment(3, 2, 1, 2) == plain.second_moment(3, 2, 1, 2)


@given(UNIT, UNIT, st.integers(1, 6), st.integers(0, 4))
def test_anchor_reset_at_each_update_is_one_outer_step(
    one: F, two: F, steps: int, updates: int
) -> None:
    """Property 45: r := x at each update, and held there, is PPO's effective step."""
    b, kappa = one * two, one * (1 - two)
    plain = outer.sgd(outer.effective_step(b / kappa, b, 1, steps), 1)
    x, noise = F(3), F(-1, 2)
    held = loops.ewma_inner(b, F(1), kappa, F(10**40), steps)
    (a, r), _ = held.loop.linear_map().matrix
    assert float(a + r - (1 - plain.outer_step)) == pytest.approx(0, abs=1e-30)
    gain = held.loop.linear_map().gain[0]
    assert float(gain + plain.outer_step) == pytest.approx(0, abs=1e-30)
    for _ in range(updates):
        expected = x - plain.outer_step * (x + noise)
        anchor = x
        for _ in range(steps):
            x = x - b * (x + noise) - kappa * (x - anchor)
        assert x == expected


@given(UNIT, UNIT, st.integers(1, 6))
def test_anchor_that_never_moves_leaves_a_floor(one: F, two: F, steps: int) -> None:
    b, kappa = one * two, one * (1 - two)
    w = b + kappa
    state = outer.ewma_inner(b, 1, kappa, F(10**12), steps).stationary(1, 1)
    step = b * (1 - (1 - w) ** steps) / w
    floor = step**2 / (1 - (1 - w) ** (2 * steps))
    assert float(state.acting_variance) == pytest.approx(float(floor), rel=1e-5)
    assert float(state.reference_variance) < 1e-5 * float(floor)


@given(UNIT, UNIT, coms(), fractions_between(1, 5), st.integers(1, 6))
@settings(deadline=None)
def test_averaging_lowers_the_plateau_not_the_speed_alone(
    one: F, two: F, com: F, factor: F, steps: int
) -> None:
    """In this model, for b + κ < 1, the acting policy's plateau falls with COM."""
    b, kappa = one * two, one * (1 - two)
    low = outer.ewma_inner(b, 1, kappa, com, steps).stationary(1, 1)
    high = outer.ewma_inner(b, 1, kappa, factor * com + 1, steps).stationary(1, 1)
    assert high.acting_variance < low.acting_variance
    assert high.reference_variance < low.reference_variance


@given(fractions_between(0, 3), nonnegative_fractions(), coms(), STEPS)
def test_stability_does_not_depend_on_the_gradient_steps(
    b: F, kappa: F, com: F, steps: int
) -> None:
    loop = outer.ewma_inner(b, 1, kappa, com, steps)
    assert loop.stable == (b < loop.stability_limit)
    radius = spectral_radius(loops.as_floats(loop.linear_map().matrix))
    if abs(radius - 1) > 1e-6:
        assert loop.stable == (radius < 1)


@given(
    positive_floats(1e-7, 0.5),
    positive_floats(1e-4, 0.5),
    positive_floats(1e-2, 1e4),
    st.integers(1, 64),
)
@settings(max_examples=40, deadline=None)
def test_floats_lose_what_the_docstring_says(
    b: float, kappa: float, com: float, steps: int
) -> None:
    exact = outer.ewma_inner(F(b), 1, F(kappa), F(com), steps)
    found = outer.ewma_inner(b, 1.0, kappa, com, steps).stationary(1.0, 1)
    room = 1e-15 * (steps + 10) / slow_rate(exact)
    for key, value in vars(exact.stationary(1, 1)).items():
        assert getattr(found, key) == pytest.approx(float(value), rel=room)


def test_arrays_of_knobs_and_of_gradient_steps() -> None:
    coms_, steps = np.array([[0.0], [8.0], [64.0]]), np.array([1, 4, 32, 33])
    loop = outer.ewma_inner(0.1, 1.0, 0.2, coms_, steps)
    found, later = loop.stationary(1.0, 1), loop.second_moment(2.0, 3, 1.0, 1)
    for i, j in np.ndindex(3, 4):
        cell = outer.ewma_inner(0.1, 1.0, 0.2, float(coms_[i, 0]), int(steps[j]))
        for key, value in vars(cell.stationary(1.0, 1)).items():
            assert getattr(found, key)[i, j] == pytest.approx(value, rel=1e-9)
        expected = cell.second_moment(2.0, 3, 1.0, 1)
        assert later[i, j] == pytest.approx(expected, rel=1e-9)
    unstable = outer.ewma_inner(np.array([0.1, 9.0]), 1.0, 0.0, 1.0, 2)
    assert unstable.stable.tolist() == [True, False]
    assert unstable.stationary(1.0, 1).loss[1] == math.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outer.ewma_inner(-1, 1, 1, 1, 1), "learning_rate is -1"),
        (lambda: outer.ewma_inner(1, math.nan, 1, 1, 1), "curvature is nan"),
        (lambda: outer.ewma_inner(1, 1, -1, 1, 1), "penalty is -1"),
        (lambda: outer.ewma_inner(1, 1, 1, math.inf, 1), "com is inf"),
        (lambda: outer.ewma_inner(1, 1, 1, 1, 0), "gradient_steps is 0"),
        (lambda: outer.ewma_inner(1, 1, 1, 1, 1.5), "gradient_steps is 1.5"),
        (lambda: outer.ewma_inner(3, 1, 0, 1, 2).stationary(1, 1), "no stationary"),
    ],
)
def test_refusals(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
