"""`theory.outer.damped`, `nesterov`, `averaged_gradient`: outer rate and momentum."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support import loops
from tests.support.strategies import coms, fractions_between, positive_fractions
from theory import outer

UNIT = fractions_between(0, 1)
ANCHORED: dict[str, Callable[[F, F], outer.Loop]] = {
    "linear": lambda a, com: outer.ewma_linear(a, 1, com),
    "proximal": lambda a, com: outer.ewma_proximal(a, 1, com),
    "gradient": lambda a, com: outer.ewma_gradient(a, 1, F(1, 3), com),
    "inner": lambda a, com: outer.ewma_inner(a, 1, F(1, 3), com, 3),
}


@pytest.mark.parametrize("kind", ANCHORED)
@given(UNIT, coms(), st.integers(0, 5))
@settings(max_examples=30)
def test_full_rate_is_the_loop_itself(kind: str, a: F, com: F, updates: int) -> None:
    loop = ANCHORED[kind](a, com)
    same = outer.damped(loop, 1)
    assert same.stable == loop.stable
    if loop.stable:
        assert same.stationary(1, 2) == loop.stationary(1, 2)
    later = loop.second_moment(3, updates, 1, 2)
    assert same.second_moment(3, updates, 1, 2) == later


@given(UNIT, positive_fractions(), fractions_between(0, 3), fractions_between(-1, 1))
def test_rate_and_momentum_on_descent(a: F, h: F, sigma: F, mu: F) -> None:
    """Property 11 for the outer knobs: σ and μ on SGD are a heavy ball of step ση."""
    assert outer.damped(outer.sgd(a / h, h), sigma, mu) == outer.heavy_ball(
        sigma * a / h, h, mu
    )
    plain = outer.sgd(sigma * a / h, h)
    assume(plain.stable)
    assert outer.damped(outer.sgd(a / h, h), sigma).stationary(1, 1) == (
        plain.stationary(1, 1)
    )


@given(UNIT, fractions_between(0, 3), positive_fractions())
def test_rate_on_multiplicative_noise(a: F, sigma: F, slope: F) -> None:
    found = outer.damped(outer.multiplicative(a, 1, slope, 5), sigma)
    assert found == outer.multiplicative(sigma * a, 1, slope, 5)


@given(UNIT, fractions_between(0, 2), coms())
def test_rate_on_no_average_is_a_smaller_step(a: F, sigma: F, com: F) -> None:
    damped = outer.damped(outer.ewma_linear(a, 1, 0), sigma)
    plain = outer.sgd(sigma * a, 1)
    assert damped.second_moment(2, 4, 1, 1) == plain.second_moment(2, 4, 1, 1)
    if damped.stable:  # the anchor's own mode, 1 − σ, must be stable too
        assert damped.stationary(1, 1) == plain.stationary(1, 1)


@pytest.mark.parametrize("kind", ANCHORED)
@given(UNIT, fractions_between(0, 20), fractions_between(0, 3))
@settings(max_examples=30)
def test_rates_multiply(kind: str, a: F, com: F, sigma: F) -> None:
    loop = ANCHORED[kind](a, com)
    twice = outer.damped(outer.damped(loop, sigma), sigma / 2)
    assert twice == outer.damped(loop, sigma * sigma / 2)


@pytest.mark.parametrize("kind", ANCHORED)
@given(
    fractions_between(0, 2),
    fractions_between(0, 20),
    fractions_between(0, 5),
    fractions_between(-1, 1) | st.just(F(0)),
)
@settings(max_examples=40, deadline=None)
def test_limit_is_the_supremum_of_stable_rates(
    kind: str, a: F, com: F, share: F, mu: F
) -> None:
    """The interval below the limit is stable, everything above it is not."""
    loop = ANCHORED[kind](a, com)
    limit = F(outer.damped(loop, 1, mu).stability_limit)
    if limit == 0:
        assert not outer.damped(loop, share, mu).stable
        return
    sigma = share * limit
    if abs(share - 1) > F(1, 10**6):
        assert outer.damped(loop, sigma, mu).stable == (share < 1)


@pytest.mark.parametrize("kind", ANCHORED)
@given(fractions_between(0, 3), coms(), positive_fractions())
def test_loops_turn_without_oscillating(kind: str, a: F, com: F, kappa: F) -> None:
    """The eigenvalues of every map with an anchor are real, as the limit assumes."""
    loop = ANCHORED[kind](a, com)
    if kind in ("gradient", "inner"):
        loop = dataclasses.replace(loop, penalty=kappa)  # type: ignore[call-arg]
    (p, q), (r, s) = loop.linear_map().matrix
    assert (p - s) ** 2 + 4 * q * r >= 0


def test_small_rates_follow_the_loops_own_flow() -> None:
    """In this model σ → 0 leaves one slow step, of size σa/(1 + …), and no floor."""
    a, com = F(1, 2), F(3)
    loop = outer.ewma_linear(a, 1, com)
    levels = [
        outer.damped(loop, F(1, 10**k)).stationary(1, 1).acting_variance
        for k in (3, 4, 5)
    ]
    assert float(levels[0] / levels[1]) == pytest.approx(10, rel=0.01)
    assert float(levels[1] / levels[2]) == pytest.approx(10, rel=0.001)
    # V/σ → ½ of a continuous Lyapunov equation, solved by hand for this loop.
    assert float(levels[2]) / 1e-5 == pytest.approx(continuous_variance(a, com), 1e-4)


def continuous_variance(a: F, com: F) -> float:
    """The acting variance of dz = (M − I)z dt + g dW, from a linear system."""
    update = outer.ewma_linear(a, 1, com).linear_map()
    drift = loops.as_floats(update.matrix) - np.eye(2)
    load = np.array([float(entry) for entry in update.gain])
    eye = np.eye(2)
    system = np.kron(drift, eye) + np.kron(eye, drift)
    return float(np.linalg.solve(system, -np.outer(load, load).ravel())[0])


def test_exact_vectors() -> None:
    loop = outer.damped(outer.ewma_linear(F(1, 2), 1, 1), F(1, 2))
    assert loop.linear_map().matrix == ((F(1, 4), F(1, 2)), (F(-1, 8), F(1)))
    assert loop.linear_map().gain == (F(-1, 4), F(-1, 8))
    state = loop.stationary(4, 1)
    assert state.acting_variance == F(180, 451)
    assert state.reference_variance == F(100, 451)
    ball = outer.damped(outer.sgd(F(1, 2), 1), F(1, 2), F(1, 2))
    assert ball.stationary(16, 1).acting_variance == F(48, 11)
    proximal = outer.damped(outer.ewma_proximal(F(1, 2), 1, 1), 1, F(1, 3))
    assert proximal.stability_limit == F(8, 3)
    irrational = outer.damped(outer.ewma_linear(F(1, 2), 1, 1), 1)
    assert irrational.stability_limit == pytest.approx(2 / (0.75 + 0.3125**0.5))


def test_arrays_and_symbols() -> None:
    rates = np.array([0.25, 1.0, 1.75, 3.0])
    momenta = np.array([[0.0], [0.5]])
    base = outer.ewma_linear(0.5, 1.0, 3.0)
    loop = outer.damped(base, rates, momenta)
    state, later = loop.stationary(1.0, 1), loop.second_moment(2.0, 9, 1.0, 1)
    for i, j in np.ndindex(2, 4):
        cell = outer.damped(base, float(rates[j]), float(momenta[i, 0]))
        assert bool(loop.stable[i, j]) == cell.stable
        assert later[i, j] == pytest.approx(cell.second_moment(2.0, 9, 1.0, 1))
        if cell.stable:
            expected = cell.stationary(1.0, 1)
            assert state.loss[i, j] == pytest.approx(expected.loss, rel=1e-9)
        else:
            assert state.loss[i, j] == math.inf
    sigma = sympy.Symbol("sigma", positive=True)
    symbolic = outer.damped(outer.ewma_linear(F(1, 2), 1, 1), sigma)
    variance = symbolic.stationary(4, 1).acting_variance
    assert variance.subs(sigma, F(1, 2)) == sympy.Rational(180, 451)
    assert variance.subs(sigma, 1) == sympy.Rational(28, 25)


# Nesterov's look-ahead and the averaged gradient.


@given(fractions_between(0, 3), UNIT)
def test_look_ahead_stability_and_moments(a: F, mu: F) -> None:
    loop = outer.nesterov(a, 1, mu)
    assert loop.stable == (a < loop.stability_limit)
    assert loop.stability_limit < outer.heavy_ball(a, 1, mu).stability_limit
    if loop.stable:
        state = loop.stationary(1, 1)
        w = mu * (1 - a)
        assert state.step_second_moment == 2 * a * state.acting_variance / (1 + w)


@given(fractions_between(0, 2), st.integers(0, 5))
def test_no_look_ahead_is_plain_descent(a: F, updates: int) -> None:
    """Property 11: momentum 0 is SGD, in every form of momentum."""
    plain = outer.sgd(a, 1)
    for loop in (outer.nesterov(a, 1, 0), outer.averaged_gradient(a, 1, 0)):
        assert loop.stationary(1, 1) == plain.stationary(1, 1)
        assert loop.second_moment(3, updates, 1, 1) == (
            plain.second_moment(3, updates, 1, 1)
        )
        assert loop.stability_limit == plain.stability_limit


@given(st.floats(0, 0.95))
def test_small_steps_forget_the_form_of_momentum(mu: float) -> None:
    """Property 12: at a small step momentum is a step of η/(1−μ)."""
    eta = 1e-7
    plain = outer.sgd(eta / (1 - mu), 1.0).stationary(1, 1).acting_variance
    ahead = outer.nesterov(eta, 1.0, mu).stationary(1, 1).acting_variance
    assert ahead == pytest.approx(plain, rel=1e-5)
    mean = outer.averaged_gradient(eta, 1.0, mu).stationary(1, 1).acting_variance
    assert mean == pytest.approx(outer.sgd(eta, 1.0).stationary(1, 1).acting_variance)


@given(UNIT, UNIT)
def test_averaged_gradient_is_a_heavy_ball(a: F, mu: F) -> None:
    assert outer.averaged_gradient(a, 1, mu) == outer.heavy_ball((1 - mu) * a, 1, mu)


SGD = outer.sgd(F(1, 2), 1)
LINEAR = outer.ewma_linear(F(1, 2), 1, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outer.damped(SGD, -1), "outer_learning_rate is -1"),
        (lambda: outer.damped(LINEAR, math.nan), "outer_learning_rate is nan"),
        (lambda: outer.damped(LINEAR, 1, math.inf), "outer_momentum is inf"),
        (lambda: outer.damped(outer.heavy_ball(1, 1, 0.5), 1), "loop is HeavyBall"),
        (lambda: outer.damped(outer.nesterov(1, 1, 0.5), 1), "loop is Nesterov"),
        (lambda: outer.damped(outer.multiplicative(1, 1, 1, 1), 1, 0.5), "it must be"),
        (lambda: outer.damped(outer.damped(LINEAR, 1, 0.5), 1), "loop is Damped"),
        (lambda: outer.damped(LINEAR, 9).stationary(1, 1), "no stationary state"),
        (lambda: outer.damped(LINEAR, 1, 1).stationary(1, 1), "no step would"),
        (lambda: outer.nesterov(1, 1, 1), "1 - momentum is 0"),
        (lambda: outer.nesterov(1, 1, -0.5), "momentum is -0.5"),
        (lambda: outer.averaged_gradient(1, 1, 2), "1 - momentum is -1"),
        (lambda: outer.averaged_gradient(-1, 1, 0.5), "outer_step is -1"),
        (lambda: outer.nesterov(2, 1, 0.5).stationary(1, 1), "no stationary state"),
    ],
)
def test_refusals(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("momentum", [1.0, -1.0])
def test_a_momentum_of_one_is_unstable_whatever_the_rounding(momentum: float) -> None:
    base = outer.ewma_linear(0.5, 1.0, 2.0)
    loop = outer.damped(base, 0.7, momentum)
    assert not loop.stable
    with pytest.raises(ValueError, match="has no stationary state"):
        loop.stationary(1.0, 4.0)
    cells = outer.damped(base, 0.7, np.array([momentum, 0.2]))
    assert cells.stable.tolist() == [False, True]
    levels = cells.stationary(1.0, 4.0).acting_variance
    assert np.isinf(levels[0])
    assert np.isfinite(levels[1])
