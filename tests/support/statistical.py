"""Assertions about random numbers, each with a declared false-failure rate.

Every assertion states how often it may fail although the code is right
(`false_failure_rate`, 10⁻⁶ unless said) and which deviation it must be able to see
(`effect`); it refuses samples too few to see that. "See" means: a deviation of that
size is missed no more often than `false_failure_rate` either. Each call is entered in
`DECLARED`, so that the rates of a whole test run can be added up.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

DEFAULT_RATE = 1e-6


class Declaration(NamedTuple):
    """One assertion made: its false-failure rate and what it could have seen."""

    false_failure_rate: float
    smallest_detectable_effect: float


DECLARED: list[Declaration] = []


def total_declared_rate() -> float:
    """Bound on the chance that any assertion made so far failed falsely."""
    return math.fsum(declared.false_failure_rate for declared in DECLARED)


def smallest_detectable_effect(
    samples: ArrayLike, *, false_failure_rate: float = DEFAULT_RATE
) -> NDArray[np.float64]:
    """Deviation of the mean that a two-sided t test on the samples would not miss.

    Args:
        samples: shape [sample, ...], independent along the first axis.
        false_failure_rate: of the test, shared among the trailing components.

    Returns:
        Shape [...]: threshold plus the same margin again.
    """
    values = np.asarray(samples, dtype=np.float64)
    return 2 * _margin(values, false_failure_rate)


def assert_mean(
    samples: ArrayLike,
    expected: ArrayLike,
    *,
    effect: float,
    false_failure_rate: float = DEFAULT_RATE,
) -> float:
    """Assert that independent samples have an expected mean, per trailing component.

    Args:
        samples: shape [sample, ...], independent along the first axis; sums of at least
            thousands, or nearly normal, for the t distribution to hold.
        expected: shape [...].
        effect: largest deviation, in the unit of the samples, that may go unnoticed.
        false_failure_rate: of the whole call (Bonferroni over components).

    Returns:
        The smallest detectable effect, the worst over components.

    Raises:
        AssertionError: if a mean deviates, or the samples could not show `effect`.
    """
    values = np.asarray(samples, dtype=np.float64)
    margin = _margin(values, false_failure_rate)
    detectable = float(np.max(2 * margin))
    _declare(false_failure_rate, detectable, effect)
    deviation = np.abs(values.mean(axis=0) - np.asarray(expected, dtype=np.float64))
    worst = np.argmax(deviation - margin)
    assert np.all(deviation <= margin), (
        f"mean deviates by {deviation.flat[worst]:.6g}, "
        f"allowed {margin.flat[worst]:.6g} "
        f"at a false-failure rate of {false_failure_rate:g} "
        f"(smallest detectable effect {detectable:.6g})"
    )
    return detectable


def assert_proportion(
    successes: int,
    trials: int,
    expected: float,
    *,
    effect: float,
    false_failure_rate: float = DEFAULT_RATE,
) -> float:
    """Assert that independent trials succeed with an expected probability (exact).

    Args:
        successes: how many succeeded.
        trials: how many were made.
        expected: the probability.
        effect: largest deviation of the probability that may go unnoticed.
        false_failure_rate: of the call.

    Returns:
        The smallest detectable effect.

    Raises:
        AssertionError: if the count is improbable, or too few trials were made.
    """
    quantile = float(stats.norm.isf(false_failure_rate / 2))
    detectable = (
        2 * quantile * math.sqrt(max(expected * (1 - expected), 1e-12) / trials)
    )
    _declare(false_failure_rate, detectable, effect)
    probability = stats.binomtest(successes, trials, expected).pvalue
    assert probability >= false_failure_rate, (
        f"{successes} of {trials} succeeded, {expected:g} expected "
        f"(p = {probability:.3g}, smallest detectable effect {detectable:.6g})"
    )
    return detectable


def batch_means(series: ArrayLike, batches: int) -> NDArray[np.float64]:
    """Means of equal stretches of a correlated series, nearly independent if long.

    Args:
        series: shape [time, ...]; a remainder at the start is left out.
        batches: how many stretches.

    Returns:
        Shape [batch, ...].
    """
    values = np.asarray(series, dtype=np.float64)
    length = len(values) // batches
    if length < 1:
        msg = f"batches is {batches}; the series has only {len(values)} entries."
        raise ValueError(msg)
    kept = values[len(values) - length * batches :]
    return kept.reshape(batches, length, *values.shape[1:]).mean(axis=1)


def _margin(values: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    number = len(values)
    components = max(1, values[0].size)
    quantile = stats.t.isf(rate / (2 * components), number - 1)
    return np.asarray(quantile * values.std(axis=0, ddof=1) / math.sqrt(number))


def _declare(rate: float, detectable: float, effect: float) -> None:
    DECLARED.append(Declaration(rate, detectable))
    assert detectable <= effect, (
        f"too few samples: they show effects above {detectable:.6g}, "
        f"but {effect:.6g} must be seen"
    )
