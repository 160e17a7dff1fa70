"""The least values of functions of one positive number, found together."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import Number

Array = NDArray[np.float64]

POINTS = 33
ROUNDS = 7


class Least(NamedTuple):
    """Where functions are least, and their values there.

    Attributes:
        at: the place, shape [...].
        value: the value, shape [...].
    """

    at: Number
    value: Number


def least(function: Callable[[Array], Array], low: Number, high: Number) -> Least:
    """Zoom into the least value, case by case, on grids even in the logarithm.

    Seven rounds of 33 points each; the place is good to about the square root of the
    rounding of the values. Finds the lowest of several minima if they are at least a
    grid cell wide, and an end of the interval if the function is least there.

    Args:
        function: of shape [point, ...] to shape [point, ...]; nan counts as inf.
        low: above 0, shape [...].
        high: not below `low`, shape [...].

    Returns:
        Place and value, shape [...].

    Raises:
        ValueError: if an interval is empty, or a function is finite nowhere on it.
    """
    ends = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float))
    if not np.all((ends[0] > 0) & (ends[0] <= ends[1]) & (ends[1] < np.inf)):
        msg = f"low and high are {low} and {high}; they must be 0 < low <= high < inf."
        raise ValueError(msg)
    first, last = ends
    at, value = np.full(first.shape, np.nan), np.full(first.shape, np.inf)
    for _ in range(ROUNDS):
        grid = np.exp(np.linspace(np.log(first), np.log(last), POINTS)).clip(*ends)
        found = np.asarray(function(grid), dtype=np.float64)
        found = np.where(np.isnan(found), np.inf, found)
        place = found.argmin(0)
        better = _pick(found, place) < value
        at = np.where(better, _pick(grid, place), at)
        value = np.where(better, _pick(found, place), value)
        first = _pick(grid, np.maximum(place - 1, 0))
        last = _pick(grid, np.minimum(place + 1, POINTS - 1))
    if not np.all(np.isfinite(value)):
        msg = f"function has no finite value between {low} and {high}."
        raise ValueError(msg)
    return Least(at[()], value[()])


def _pick(values: Array, place: Number) -> Number:
    return np.take_along_axis(values, np.asarray(place)[None], axis=0)[0]
