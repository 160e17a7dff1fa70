"""Ratios of means: average numerator and denominator first, divide once.

A mean of ratios is biased by the noise of its denominators: where KL is χ² with d
degrees of freedom, by d/(d − 2), half as much again at d = 6, without end at d ≤ 2. A
ratio of means errs by O(1/units) only, and does not change if a log is cut into parts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import check_nonnegative, check_positive
from theory.jackknife import standard_error
from theory.matrices import check_vector

Array = NDArray[np.float64]

RESOLVED, UNRESOLVED = "resolved", "unresolved"
SIGNIFICANT = 3.0


@dataclass(frozen=True)
class Ratio:
    """A ratio of two means over independent units.

    Attributes:
        value: mean numerator over mean denominator; may be negative, or inf.
        standard_error: by the jackknife over units; inf for a single unit.
        units: how many.
        status: "resolved", or "unresolved" where the mean denominator is not three
            standard errors above zero: the value is then no more than its sign tells.
    """

    value: float
    standard_error: float
    units: int
    status: str


def ratio_of_means(numerator: ArrayLike, denominator: ArrayLike) -> Ratio:
    """Mean numerator over mean denominator, with a jackknife over units.

    Args:
        numerator: shape [unit], one entry per independent unit (seeds, or updates far
            apart).
        denominator: same shape.

    Returns:
        The ratio; consistent, with a bias of order 1/units.

    Raises:
        ValueError: if the shapes differ, are not [unit], or a number is not finite.
    """
    top = check_vector("numerator", numerator)
    bottom = check_vector("denominator", denominator)
    if top.shape != bottom.shape:
        msg = (
            f"numerator has {len(top)} units and denominator {len(bottom)}; they must "
            "have the same."
        )
        raise ValueError(msg)
    units = len(top)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(top.sum() / bottom.sum())
        if units == 1:
            return Ratio(value, float("inf"), 1, UNRESOLVED)
        left_out = (top.sum() - top) / (bottom.sum() - bottom)
    sure = bottom.mean() > SIGNIFICANT * bottom.std(ddof=1) / np.sqrt(units)
    status = RESOLVED if sure else UNRESOLVED
    return Ratio(value, standard_error(left_out), units, status)


def ddr(transitions: ArrayLike, outer_kl: ArrayLike) -> Ratio:
    """DDR in transitions per nat: all transitions over all KL.

    Its value depends on the two sums alone: cutting updates into parts, or joining
    them, changes nothing.

    Args:
        transitions: of each update (or seed), above 0, shape [unit].
        outer_kl: KL of the policy before from the policy after, nats, not negative,
            same shape; or noise KL, for DDR_noise.

    Returns:
        DDR; inf if no update moved the policy.

    Raises:
        ValueError: if a number is out of range or the shapes differ.
    """
    check_positive("transitions", transitions)
    check_nonnegative("outer_kl", outer_kl)
    return ratio_of_means(transitions, outer_kl)
