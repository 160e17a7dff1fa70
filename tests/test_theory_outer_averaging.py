"""`theory.outer.ema_variance`, `window_variance`: averages that are not fed back."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from tests.support.strategies import coms, fractions_between, positive_fractions
from theory import outer
from theory.outer import ema_variance, stationary_covariance, window_variance

STABLE = fractions_between(0, 2)
WINDOWS = st.integers(1, 25)


@given(STABLE, positive_fractions(), coms(), positive_fractions())
def test_exponential_average_equals_lyapunov(a: F, h: F, com: F, noise: F) -> None:
    loop = outer.sgd(a / h, h)
    mix = 1 / (1 + com)
    matrix = ((1 - a, F(0)), (mix * (1 - a), com * mix))
    solved = stationary_covariance(matrix, ((a / h,), (mix * a / h,)), ((noise,),))
    assert ema_variance(loop, com, noise, 1) == solved[1][1]


@given(STABLE, WINDOWS)
def test_window_equals_the_sum_of_covariances(a: F, window: int) -> None:
    loop = outer.sgd(a, 1)
    level = loop.stationary(3, 2).acting_variance
    both = sum(
        (1 - a) ** abs(i - j) * level for i in range(window) for j in range(window)
    )
    assert window_variance(loop, window, 3, 2) == both / window**2


@given(STABLE, fractions_between(0, 1), coms(), WINDOWS)
def test_growing_noise_keeps_the_same_correlations(
    a: F, share: F, com: F, window: int
) -> None:
    # Noise whose variance depends on x is still uncorrelated with the past.
    loop = outer.multiplicative(a, 1, share * 4 * (2 - a) / a, 4)
    plain = outer.sgd(a, 1)
    factor = loop.stationary(1, 4).acting_variance
    factor = factor / plain.stationary(1, 4).acting_variance
    for average, size in ((ema_variance, com), (window_variance, window)):
        assert average(loop, size, 1, 4) == factor * average(plain, size, 1, 4)


@given(STABLE, coms(), positive_fractions())
def test_exponential_averaging_reduces_variance(a: F, com: F, more: F) -> None:
    """Property 29: the longer the average, the less it varies; COM 0 is none."""
    loop = outer.sgd(a, 1)
    level = loop.stationary(1, 1).acting_variance
    found = ema_variance(loop, com, 1, 1)
    assert (found == level) == (com == 0)
    assert 0 < ema_variance(loop, com + more, 1, 1) < found <= level


@given(STABLE, positive_fractions(), st.integers(1, 10**6))
def test_window_average_is_bounded(a: F, h: F, window: int) -> None:
    """Property 30: 0 < W ≤ V, and W is near s²/(h²k) whatever the step."""
    found = outer.window_variance(outer.sgd(float(a / h), float(h)), window, 1.0, 1)
    level = outer.sgd(a / h, h).stationary(1, 1).acting_variance
    assert 0 < found <= float(level) * (1 + 1e-9)
    limit = 1 / (float(h) ** 2 * window)
    bound = (4 if a > 1 else 2) * limit / (window * float(a * (2 - a)))
    assert abs(found - limit) <= bound * (1 + 1e-9) + 1e-12 * limit


@given(STABLE, WINDOWS)
@settings(max_examples=50)
def test_window_bound_is_exact(a: F, window: int) -> None:
    """Property 30, without rounding."""
    found = window_variance(outer.sgd(a, 1), window, 1, 1)
    rest = abs(found - F(1, window))
    assert rest <= (4 if a > 1 else 2) / (window**2 * a * (2 - a))
    assert (found < F(1, window)) == (a < 1)


@given(st.floats(1e-6, 1.9), st.integers(1, 10**6))
def test_floats_lose_what_the_docstring_says(a: float, window: int) -> None:
    exact = window_variance(outer.sgd(F(a), 1), min(window, 30), 1, 1)
    found = window_variance(outer.sgd(a, 1.0), min(window, 30), 1.0, 1)
    assert found == pytest.approx(float(exact), rel=1e-14 / a + 1e-13)


def test_exact_vectors() -> None:
    loop = outer.sgd(F(1, 2), 1)
    assert ema_variance(loop, 1, 4, 1) == F(4, 3) * F(5, 9)
    assert window_variance(loop, 1, 4, 1) == F(4, 3)
    assert window_variance(loop, 2, 4, 1) == 1
    assert window_variance(outer.sgd(1, 1), 7, 1, 1) == F(1, 7)  # white noise


def test_arrays_and_symbols() -> None:
    steps = np.array([0.1, 1.0, 2.5])
    for average in (ema_variance, window_variance):
        found = average(outer.sgd(steps, 1.0), np.array([[1], [4]]), 1.0, 1)
        assert found.shape == (2, 3)
        assert np.isposinf(found[:, 2]).all()
        single = average(outer.sgd(0.1, 1.0), 4, 1.0, 1)
        assert found[1, 0] == pytest.approx(single, rel=1e-12)
    a, c = sympy.symbols("a c", positive=True)
    found = ema_variance(outer.sgd(a, 1), c, 1, 1)
    assert sympy.simplify(found.subs({a: F(1, 2), c: 1}) - F(5, 27)) == 0


@pytest.mark.parametrize("a", [0.2, 1.6])
def test_averages_equal_monte_carlo(a: float) -> None:
    loop = outer.sgd(a, 1.0)
    generator = np.random.default_rng(3)
    x = generator.normal(size=40_000) * math.sqrt(
        loop.stationary(1.0, 1).acting_variance
    )
    mean = x.copy()
    window: list[np.ndarray] = []
    for _ in range(150):
        x = (1 - a) * x + a * generator.normal(size=x.size)
        mean = (3 * mean + x) / 4
        window = [*window[-9:], x]
    for samples, expected in (
        (mean, ema_variance(loop, 3.0, 1.0, 1)),
        (np.mean(window, axis=0), window_variance(loop, 10, 1.0, 1)),
    ):
        assert_mean(samples**2, expected, effect=0.15 * expected)
        with pytest.raises(AssertionError, match="mean deviates"):  # negative control
            assert_mean(samples**2, 1.15 * expected, effect=0.15 * expected)


SGD = outer.sgd(F(1, 2), 1)
LINEAR = outer.ewma_linear(F(1, 2), 1, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ema_variance(SGD, -1, 1, 1), "com_updates is -1"),
        (lambda: ema_variance(SGD, math.inf, 1, 1), "com_updates is inf"),
        (lambda: ema_variance(LINEAR, 1, 1, 1), "it must be sgd or multiplicative"),
        (lambda: ema_variance(outer.sgd(3, 1), 1, 1, 1), "no stationary state"),
        (lambda: ema_variance(SGD, 1, -1, 1), "noise_variance is -1"),
        (lambda: window_variance(SGD, 0, 1, 1), "window is 0"),
        (lambda: window_variance(SGD, 1.5, 1, 1), "window is 1.5"),
        (lambda: window_variance(SGD, 2, 1, 0), "samples_per_update is 0"),
        (lambda: window_variance(LINEAR, 2, 1, 1), "it must be sgd or multiplicative"),
    ],
)
def test_refusals(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
