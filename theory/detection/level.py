"""The level of a plateau, with a standard error that knows of correlation.

The score of one run is correlated over about 1/a updates, and its mean over T
evaluations varies as that of T/τ independent ones, τ = 1 + 2Σρₖ. For an AR(1) curve
ρₖ = φᵏ and τ = (1+φ)/(1−φ).
"""

import enum
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.arithmetic import check_finite
from theory.detection.seeds import Array, check_seeds
from theory.unit_mean import UnitMean, unit_mean

BATCHES = 10
FEWEST_TIMES = 50


class Unit(enum.Enum):
    """What was counted as independent; the value is the sentence to show."""

    SEEDS = "Seeds are the unit: exact for any correlation within a run."
    BATCHES = "Batch means of one curve are the unit: the curve is long enough."
    SHORT = "The curve is too short for its correlation: the error is understated."


@dataclass(frozen=True)
class Level:
    """A plateau level.

    Attributes:
        mean: level and standard error.
        unit: what the units are.
        correlation_time: τ of one curve, in evaluations; None where seeds are the unit.
    """

    mean: UnitMean
    unit: Unit
    correlation_time: float | None = None


def plateau_level(curves: ArrayLike) -> Level:
    """The level of a plateau from independent seeds.

    The mean of each seed is one number; a t over seeds gives the error. Curves must
    lie on the plateau already (`plateau_test`): what is left of the transient is bias
    that no standard error holds.

    Args:
        curves: scores on the plateau, shape [seed, eval].

    Returns:
        Level whose intervals cover at their nominal rate for any correlation within
        a run, where seed means are normal.

    Raises:
        ValueError: if there are fewer than five seeds; use `single_curve_level` then,
            for one at a time.
    """
    return Level(unit_mean(check_seeds("curves", curves, 1).mean(axis=1)), Unit.SEEDS)


def single_curve_level(curve: ArrayLike) -> Level:
    """The level of one run: means of ten equal stretches count as independent.

    They are if a stretch is much longer than τ. Below 50 τ in all (τ by Geyer's initial
    positive sequence) the status says that the error is understated. The error is that
    of the mean of this run; how levels vary between seeds it cannot know.

    Coverage of the 95 % interval for AR(1) curves (s.e. .006), where evaluations
    taken for independent give .74 at best:

        length/τ     133     21      4     1333    211     40
        coverage     .94    .91    .73     .95    .95    .94

    Args:
        curve: scores on the plateau, shape [eval]; a remainder at the start is left
            out of the standard error and the mean alike.

    Returns:
        Level, with ten units.

    Raises:
        ValueError: if there are fewer than twenty evaluations or one is not finite.
    """
    scores = np.asarray(curve, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2 * BATCHES:
        msg = f"curve has shape {scores.shape}; it must hold {2 * BATCHES} evaluations."
        raise ValueError(msg)
    check_finite("curve", scores)
    time = correlation_time(scores)
    length = len(scores) // BATCHES
    means = scores[len(scores) - length * BATCHES :].reshape(BATCHES, length).mean(1)
    unit = Unit.BATCHES if len(scores) >= FEWEST_TIMES * time else Unit.SHORT
    return Level(unit_mean(means), unit, time)


def correlation_time(series: Array) -> float:
    """τ = 1 + 2Σρₖ, summed over Geyer's initial positive sequence.

    The sums of neighbouring autocovariances γ₂ₖ + γ₂ₖ₊₁ of a reversible chain are
    positive; the first that is not, is noise, and the sum stops before it (Geyer 1992).
    At least 1 − 2/T here, whatever the series; a constant one has 1.
    """
    centred = series - series.mean()
    size = 2 ** math.ceil(math.log2(2 * len(centred)))
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariances = np.fft.irfft(power, size)[: len(centred) // 2 * 2]
    if not covariances[0] > 0:
        return 1.0
    pairs = covariances.reshape(-1, 2).sum(axis=1) / covariances[0]
    negative = np.flatnonzero(pairs <= 0)
    stop = int(negative[0]) if negative.size else len(pairs)
    return max(1.0, 2 * float(pairs[:stop].sum()) - 1)
