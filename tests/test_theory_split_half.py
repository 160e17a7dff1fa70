"""The split-half meter: its factors, and that it is unbiased on quadratics."""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from tests.support.statistical import assert_mean
from tests.support.strategies import nonnegative_fractions
from theory import kl, noise

F = Fraction
RNG = 20_261_202


def test_factors_by_algebra() -> None:
    """Unbiased for any F, S and C in two dimensions, σ applied to the step."""
    sigma = sympy.Symbol("sigma", positive=True)
    step = sympy.Matrix(sympy.symbols("S:2"))
    first, second = (sympy.Matrix(sympy.symbols(f"{n}:2")) for n in "uv")
    f = sympy.Matrix(2, 2, sympy.symbols("F00 F01 F01 F11"))
    c = sympy.Matrix(2, 2, sympy.symbols("C00 C01 C01 C11"))

    def divergence(move: sympy.Matrix) -> sympy.Expr:
        return (move.T * f * move)[0] / 2

    def mean(expression: sympy.Expr) -> sympy.Expr:
        """E over e₁, e₂ with mean 0, covariance 2C each and none between them."""
        total = 0
        names = [*first, *second]
        for powers, factor in sympy.Poly(sympy.expand(expression), *names).terms():
            used = [i for i, power in enumerate(powers) for _ in range(power)]
            if len(used) == 2 and used[0] // 2 == used[1] // 2:
                factor = factor * 2 * c[used[0] % 2, used[1] % 2]
            elif used:
                factor = 0
            total += factor
        return sympy.expand(total)

    parts = noise.outer_parts(
        divergence(sigma * (step + first)),
        divergence(sigma * (step + second)),
        divergence(sigma * (first - second)),
    )
    assert sympy.expand(mean(parts.signal) - divergence(sigma * step)) == 0
    trace = sum(f[i, j] * c[j, i] for i in range(2) for j in range(2))
    assert sympy.expand(mean(parts.noise) - sigma**2 * trace / 2) == 0


@given(nonnegative_fractions(), nonnegative_fractions(), nonnegative_fractions())
def test_parts_are_exact(one: F, two: F, between: F) -> None:
    parts = noise.outer_parts(one, two, between)
    assert parts.noise == between / 4
    assert 2 * (parts.signal + 2 * parts.noise) == one + two
    assert parts == noise.outer_parts(two, one, between)


def halves(units: int, shrink: float = 1.0) -> tuple[np.ndarray, ...]:
    """KLs of three SGD steps of momentum .5 on each half; unit Fisher, d = 3."""
    rng = np.random.default_rng(RNG)
    curvature = np.array([0.3, 1.0, 2.0])
    moves = []
    for _ in range(2):
        x, velocity = np.ones((units, 3)), np.zeros((units, 3))
        xi = shrink * rng.normal(size=(units, 3)) * np.sqrt(5.0 / 32)
        for _ in range(3):
            velocity = 0.5 * velocity - 0.1 * (curvature * x + xi)
            x = x + velocity
        moves.append(x - 1)
    one, two = moves
    return tuple(np.sum(m**2, axis=1) / 2 for m in (one, two, one - two))


def truth() -> tuple[float, float]:
    """The same loop by hand: signal from ξ = 0, noise from the response to ξ."""
    curvature = np.array([0.3, 1.0, 2.0])
    response = []
    for start, push in ((1.0, 0.0), (0.0, 1.0)):
        x, velocity = np.full(3, start), np.zeros(3)
        for _ in range(3):
            velocity = 0.5 * velocity - 0.1 * (curvature * x + push)
            x = x + velocity
        response.append(x - start)
    signal = 0.5 * np.sum(response[0] ** 2)
    return signal, 0.5 * np.sum(response[1] ** 2) * 5.0 / 64


def test_unbiased_for_several_steps_with_momentum() -> None:
    signal, spread = truth()
    parts = noise.outer_parts(*halves(60_000))
    assert_mean(parts.signal, signal, effect=0.03 * signal)
    assert_mean(parts.noise, spread, effect=0.04 * spread)


def test_a_meter_that_forgets_that_halves_are_noisier_fails() -> None:
    """Negative control: ½·KL(1‖2), as if a half had the whole batch's noise."""
    _, spread = truth()
    _, _, between = halves(60_000)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_mean(between / 2, spread, effect=0.1 * spread)


def test_summary_equals_the_step_of_the_whole_batch() -> None:
    first, second, between = halves(20_000)
    signal, spread = truth()
    meter = noise.split_half(first, second, between, 64)
    assert meter.resolved
    assert (
        abs(meter.signal.value - signal)
        < 5 * meter.signal.standard_error
        < 0.05 * signal
    )
    assert (
        abs(meter.noise.value - spread) < 5 * meter.noise.standard_error < 0.05 * spread
    )
    assert meter.ddr_noise.value == pytest.approx(64 / meter.noise.value)
    expected = 64 * meter.noise.value / meter.signal.value
    assert meter.noise_scale.value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("size", "signal", "spread"),
    [(1e-3, 0.5, 0.5), (2.0, 0.779, 1.63), (3.0, 0.938, 6.19)],
)
def test_a_sign_step_reads_half_in_noise_and_too_much_noise_in_signal(
    size: float, signal: float, spread: float
) -> None:
    """By enumeration; size is that of the gradient in its standard errors."""
    half, whole = (2 * ndtr(size / np.sqrt(part)) - 1 for part in (2, 1))
    read = np.zeros(2)
    for one, two in itertools.product((-1, 1), repeat=2):
        chance = (1 + one * half) * (1 + two * half) / 4
        read += chance * np.array(
            noise.outer_parts(one**2 / 2, two**2 / 2, (one - two) ** 2 / 2)
        )
    assert read[0] / (whole**2 / 2) == pytest.approx(signal, rel=0.01)
    assert read[1] / ((1 - whole**2) / 2) == pytest.approx(spread, rel=0.01)


def test_one_natural_step_agrees_with_its_closed_form() -> None:
    """Against `kl.step_kl`, for the same F, Σ and η."""
    rng = np.random.default_rng(RNG)
    fisher = np.array([[2.0, 0.3], [0.3, 1.0]])
    cov = np.array([[1.0, -0.2], [-0.2, 3.0]])
    gradient, eta, n = np.array([0.5, -1.0]), 0.2, 50
    expected = kl.step_kl(gradient, cov, fisher, eta, n)
    root = np.linalg.cholesky(cov / (n / 2))
    samples = gradient + rng.normal(size=(2, 40_000, 2)) @ root.T
    moves = list(-eta * samples @ np.linalg.inv(fisher))
    kls = [
        0.5 * np.einsum("ui,ij,uj->u", m, fisher, m)
        for m in (*moves, moves[0] - moves[1])
    ]
    parts = noise.outer_parts(*kls)
    assert_mean(parts.signal, expected.signal, effect=0.03 * expected.signal)
    assert_mean(parts.noise, expected.noise, effect=0.07 * expected.noise)


@given(st.integers(1, 5))
def test_no_movement_is_no_signal_and_no_noise(units: int) -> None:
    zero = np.zeros(units)
    meter = noise.split_half(zero, zero, zero, 8)
    assert (meter.signal.value, meter.noise.value) == (0, 0)
    assert meter.ddr_noise.value == float("inf")
    assert meter.status == noise.UNRESOLVED


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: noise.outer_parts(-1, 0, 0), "kl_first is -1"),
        (lambda: noise.outer_parts(0, float("nan"), 0), "kl_second is nan"),
        (lambda: noise.outer_parts(0, 0, float("inf")), "kl_between is inf"),
        (lambda: noise.split_half([1], [1], [1, 2], 8), "must agree"),
        (lambda: noise.split_half([1], [1], [1], 0), "samples_per_update is 0"),
        (lambda: noise.split_half([], [], [], 8), "shape"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
