"""Two-batch noise scale, DDR and ratios of means."""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.statistical import assert_mean
from tests.support.strategies import fractions_between, positive_fractions
from theory import noise, outer

F = Fraction
RNG = 20_261_201


def test_moments_are_unbiased_by_enumeration() -> None:
    """Property 43: the mean over every possible batch is the truth, exactly."""
    atoms = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]])
    truth = atoms.mean(axis=0)
    trace = np.sum((atoms - truth) ** 2) / len(atoms)
    nested, apart = [], []
    for chosen in itertools.product(range(3), repeat=4):
        batch = atoms[list(chosen)]
        large = np.sum(batch.mean(axis=0) ** 2)
        nested.append(noise.gradient_moments(np.sum(batch[0] ** 2), large, 1, 4))
        apart.append(noise.group_moments(batch.reshape(2, 2, 2).mean(axis=1), 2))
    for estimates in (nested, apart):
        signal, spread = np.mean(estimates, axis=0)
        assert signal == pytest.approx(truth @ truth, rel=1e-12)
        assert spread == pytest.approx(trace, rel=1e-12)


def test_the_naive_square_is_biased_by_enumeration() -> None:
    """Negative control: |ĝ|² of the batch itself is above |g|² by tr Σ/n."""
    atoms = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]])
    squares = [
        np.sum(atoms[list(chosen)].mean(axis=0) ** 2)
        for chosen in itertools.product(range(3), repeat=4)
    ]
    truth = atoms.mean(axis=0)
    trace = np.sum((atoms - truth) ** 2) / len(atoms)
    assert np.mean(squares) == pytest.approx(truth @ truth + trace / 4)


def sampled(steps: int, offset: float) -> np.ndarray:
    rng = np.random.default_rng(RNG)
    gradient = np.array([offset, -0.3])
    return gradient + rng.normal(size=(steps, 4, 2)) * np.sqrt([2 / 8, 1 / 8])


def test_noise_scale_is_consistent_although_single_estimates_are_negative() -> None:
    """Property 43: the ratio of means settles where no single ratio does."""
    signal, spread = noise.group_moments(sampled(40_000, 0.4), 8)
    assert np.any(signal < 0)
    assert_mean(signal, 0.25, effect=0.015)
    assert_mean(spread, 3.0, effect=0.1)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_mean(signal, 0.25 * 1.1, effect=0.025)
    scale = noise.noise_scale(signal, spread)
    assert scale.status == noise.RESOLVED
    assert abs(scale.value - 12.0) < 5 * scale.standard_error < 1.0
    singles = spread / signal
    assert abs(np.mean(singles) - 12.0) > 1.0


def test_a_hidden_signal_is_unresolved() -> None:
    signal, spread = noise.group_moments(sampled(20, 0.0) * 100 + 30, 8)
    rng = np.random.default_rng(RNG)
    scale = noise.noise_scale(signal - signal.mean() + 0.1 * signal.std(), spread)
    assert scale.status == noise.UNRESOLVED
    signal, spread = noise.group_moments(rng.normal(size=(50, 2, 3)), 1)
    assert noise.noise_scale(signal, spread).status == noise.UNRESOLVED


@given(fractions_between(0, 2), positive_fractions())
def test_noise_scale_at_a_plateau_tells_the_step(a: F, n: F) -> None:
    """Property 32: B_simple = n(2 − a)/a, and a = 2n/(n + B_simple)."""
    state = outer.sgd(a, 1).stationary(1, n)
    scale = 1 / state.acting_variance
    assert scale == n * (2 - a) / a
    assert a == 2 * n / (n + scale)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_ddr_depends_on_the_sums_only(
    log: list[tuple[int, int]], random: object
) -> None:
    """Property 42: cutting a log into parts, or reordering it, leaves DDR alone."""
    samples, kl = np.array(log, dtype=float).T
    whole = noise.ddr([samples.sum()], [kl.sum()]).value
    assert noise.ddr(samples, kl).value == pytest.approx(whole, rel=1e-12)
    halves = np.repeat(samples / 2, 2), np.repeat(kl / 2, 2)
    assert noise.ddr(*halves).value == pytest.approx(whole, rel=1e-12)


def test_a_mean_of_ratios_is_biased_where_the_ratio_of_sums_is_not() -> None:
    """χ²₆ KL: the mean of ratios is d/(d − 2) = 1.5 times too large."""
    kl = np.random.default_rng(RNG).chisquare(6, size=200_000) / 6
    assert_mean(1 / kl, 1.5, effect=0.05)
    ratio = noise.ddr(np.ones(len(kl)), kl)
    assert abs(ratio.value - 1) < 5 * ratio.standard_error < 0.02
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_mean(1 / kl, 1.0, effect=0.05)


def test_standard_errors_equal_the_spread_of_repetitions() -> None:
    rng = np.random.default_rng(RNG)
    top = rng.gamma(3.0, size=(4000, 40))
    bottom = rng.gamma(5.0, size=(4000, 40)) + 0.5 * top
    made = [noise.ratio_of_means(t, b) for t, b in zip(top, bottom, strict=True)]
    spread = np.std([ratio.value for ratio in made])
    mean_error = np.mean([ratio.standard_error for ratio in made])
    assert mean_error == pytest.approx(spread, rel=0.1)


@given(hnp.arrays(float, 6, elements=st.floats(0.1, 10)), st.floats(0.01, 100))
def test_ratios_scale(values: np.ndarray, factor: float) -> None:
    one = noise.ratio_of_means(values, values[::-1] + 1)
    two = noise.ratio_of_means(factor * values, values[::-1] + 1)
    assert two.value == pytest.approx(factor * one.value)
    assert two.standard_error == pytest.approx(factor * one.standard_error, abs=1e-12)


def test_one_unit_has_no_error_to_show() -> None:
    ratio = noise.ratio_of_means([2.0], [4.0])
    assert (ratio.value, ratio.status) == (0.5, noise.UNRESOLVED)
    assert ratio.standard_error == float("inf")


def test_a_policy_that_does_not_move_has_infinite_ddr() -> None:
    assert noise.ddr([10, 10], [0.0, 0.0]).value == float("inf")


NAN = float("nan")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: noise.gradient_moments(1, 1, 0, 2), "small is 0"),
        (lambda: noise.gradient_moments(1, 1, 4, 2), "large is 2"),
        (lambda: noise.gradient_moments(-1, 1, 1, 2), "small_square is -1"),
        (lambda: noise.gradient_moments(1, NAN, 1, 2), "large_square is nan"),
        (lambda: noise.group_moments(np.ones((1, 3)), 2), "at least 2 groups"),
        (lambda: noise.group_moments(np.full((2, 3), NAN), 2), "nan"),
        (lambda: noise.ratio_of_means([], []), "numerator has shape"),
        (lambda: noise.ratio_of_means([1, 2], [1]), "the same"),
        (lambda: noise.ratio_of_means([1, NAN], [1, 1]), "numerator holds nan"),
        (lambda: noise.ddr([1, 0], [1, 1]), "transitions holds 0"),
        (lambda: noise.ddr([1, 1], [1, -1]), "outer_kl holds -1"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
