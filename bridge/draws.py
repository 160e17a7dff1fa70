"""Quantiles of draws, for commands that must start fast.

They equal `numpy.quantile`, whose first use imports `numpy.ma`: a fiftieth of a second.
"""

import math

import numpy as np

from theory.shapes import Float, Int


def quantile(draws: Float[np.ndarray, "draw"], level: float) -> float:
    """The quantile at a level in [0, 1], linear between order statistics."""
    ordered = np.sort(draws)
    position = level * (len(ordered) - 1)
    return float(np.interp(position, np.arange(len(ordered)), ordered))


def member(draws: Int[np.ndarray, "draw"], level: float) -> int:
    """The least draw that a share `level` > 0 of the draws does not exceed."""
    ordered = np.sort(draws)
    # The tolerance keeps 0.1 · 30 from being counted as 4 by rounding.
    return int(ordered[max(math.ceil(level * len(ordered) - 1e-9) - 1, 0)])
