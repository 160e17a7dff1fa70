"""A mean over independent units, seeds for instance, and Student's t over units."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnitMean:
    """A mean over independent units.

    (value − truth)/standard_error has a Student t distribution with units − 1 degrees
    of freedom where the numbers of the units are normal: exact whatever happens within
    a unit. Where one seed in five finds another solution they are not.

    Attributes:
        value: the mean.
        standard_error: of the mean, from the spread over units; inf for a single one.
        units: how many.
    """

    value: float
    standard_error: float
    units: int

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval of that confidence."""
        if self.units < 2:
            return -math.inf, math.inf
        reach = -float(special.stdtrit(self.units - 1, (1 - level) / 2))
        away = reach * self.standard_error
        return self.value - away, self.value + away

    def p_above(self, bound: float) -> float:
        """The p-value of "the truth is at most the bound"; small: it is above."""
        return self._tail(self.value - bound)

    def p_below(self, bound: float) -> float:
        """The p-value of "the truth is at least the bound"; small: it is below."""
        return self._tail(bound - self.value)

    def _tail(self, distance: float) -> float:
        if self.units < 2:
            return 1.0
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.units - 1, -distance / self.standard_error))


def unit_mean(values: Array) -> UnitMean:
    """Mean and standard error of one number per unit, shape [unit]."""
    units = len(values)
    error = math.inf if units < 2 else float(values.std(ddof=1)) / math.sqrt(units)
    return UnitMean(float(values.mean()), error, units)
