"""`theory.outer`: exact, symbolic, array and huge inputs; refusals."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy

from theory import outer


def test_sympy_passes_through() -> None:
    eta, h, c, noise, n = sympy.symbols("eta h c noise n", positive=True)
    state = outer.ewma_linear(eta, h, c).stationary(noise, n)
    a = eta * h
    formula = (
        (eta**2 * noise / n)
        * ((1 + c) + c * (1 + 2 * c) * a)
        / (a * (1 + c + c * a) * (2 * (1 + c) - (1 + 2 * c) * a))
    )
    assert sympy.simplify(state.acting_variance - formula) == 0
    two = outer.sgd(eta, h).second_moment(c, 2, noise, n)
    by_hand = (1 - a) ** 4 * c + eta**2 * noise / n * (1 + (1 - a) ** 2)
    assert sympy.expand(two - by_hand) == 0
    steps = sympy.Symbol("K", integer=True, positive=True)
    assert outer.effective_step(eta, n, h, steps).has(steps)
    found = outer.effective_step(1, F(1, 4), 1, steps)
    assert found == (1 - sympy.Rational(1, 2) ** steps) / 2


def test_arrays_broadcast_and_mark_unstable_cells() -> None:
    steps = np.array([[0.5], [1.9], [2.5]])
    com = np.array([0.0, 1.0])
    loop = outer.ewma_linear(steps, 1, com)
    state = loop.stationary(F(1, 2), 4)
    for i, j in np.ndindex(3, 2):
        cell = outer.ewma_linear(float(steps[i, 0]), 1, float(com[j]))
        assert bool(loop.stable[i, j]) == cell.stable
        for name, value in vars(state).items():
            assert value.shape == (3, 2)
            if cell.stable:
                assert value[i, j] == getattr(cell.stationary(0.5, 4), name)
            else:
                assert value[i, j] == np.inf
    assert np.array_equal(loop.stability_limit, np.array([2.0, 4 / 3]))
    assert outer.ewma_proximal(steps, 1, com).stable.shape == (3, 2)


def test_transient_takes_an_array_of_updates() -> None:
    counts = np.array([0, 1, 2, 7, 1000])
    loop = outer.ewma_gradient(0.1, 1.0, 0.2, 8.0)
    together = loop.second_moment(3.0, counts, 1.0, 5)
    one_by_one = [loop.second_moment(3.0, int(count), 1.0, 5) for count in counts]
    assert together.tolist() == pytest.approx(one_by_one, rel=1e-12)


def test_transient_is_cheap_and_right_at_a_billion_updates() -> None:
    loop = outer.sgd(1e-9, 1.0)
    expected = math.exp(-2) * 5
    assert loop.second_moment(5.0, 10**9, 0.0, 1) == pytest.approx(expected, rel=1e-6)
    still = outer.ewma_linear(0.3, 1.0, 4.0)
    limit = still.stationary(1.0, 2).acting_variance
    assert still.second_moment(5.0, 10**9, 1.0, 2) == pytest.approx(limit, rel=1e-12)
    assert outer.sgd(3.0, 1.0).second_moment(1.0, 10**9, 1.0, 1) == math.inf
    both = outer.sgd(np.array([0.5, 3.0]), 1.0).second_moment(1.0, 10**9, 1.0, 1)
    assert both.tolist() == pytest.approx([1 / 3, math.inf])


def test_flat_direction_only_diffuses() -> None:
    loop = outer.sgd(F(1, 2), 0)
    assert not loop.stable
    assert loop.stability_limit == 0
    assert loop.second_moment(1, 8, 3, 1) == 1 + 8 * F(3, 4)
    assert outer.ewma_proximal(1, 2, 3).stability_limit == math.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outer.sgd(-1, 1), "outer_step is -1"),
        (lambda: outer.sgd(math.nan, 1), "outer_step is nan"),
        (lambda: outer.sgd(sympy.oo, 1), "outer_step is oo"),
        (lambda: outer.sgd(1, -2), "curvature is -2"),
        (lambda: outer.sgd(np.array([1, np.inf]), 1), "outer_step holds inf"),
        (lambda: outer.heavy_ball(1, 1, math.inf), "momentum is inf"),
        (lambda: outer.ewma_linear(1, 1, -1), "com_updates is -1"),
        (lambda: outer.ewma_proximal(1, 1, math.inf), "com_updates is inf"),
        (lambda: outer.ewma_gradient(-1, 1, 0, 0), "learning_rate is -1"),
        (lambda: outer.ewma_gradient(1, 1, -0.5, 0), "penalty is -0.5"),
        (lambda: outer.multiplicative(1, 1, -1, 1), "noise_slope is -1"),
        (lambda: outer.multiplicative(1, 1, 1, 0), "samples_per_update is 0"),
        (lambda: outer.multiplicative(0.1, 1, 1, 3).stationary(1, 4), "must be 3"),
        (lambda: outer.sgd(1, 1).stationary(-1, 1), "noise_variance is -1"),
        (lambda: outer.sgd(1, 1).stationary(1, 0), "samples_per_update is 0"),
        (lambda: outer.sgd(1, 1).second_moment(-1, 1, 1, 1), "initial is -1"),
        (lambda: outer.sgd(1, 1).second_moment(1, 1.5, 1, 1), "updates is 1.5"),
        (lambda: outer.sgd(1, 1).second_moment(1, -1, 1, 1), "updates is -1"),
        (lambda: outer.effective_step(0, 1, 1, 1), "outer_step is 0"),
        (lambda: outer.effective_step(1, -1, 1, 1), "learning_rate is -1"),
        (lambda: outer.effective_step(1, 1, 1, 0.5), "gradient_steps is 0.5"),
        (lambda: outer.sgd(2, 1).stationary(1, 1), "no stationary state; a step above"),
        (lambda: outer.heavy_ball(1, 1, 1).stationary(1, 1), "no step would"),
        (lambda: outer.sgd(1, 0).stationary(1, 1), "no step would"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
