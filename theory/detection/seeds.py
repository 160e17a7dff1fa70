"""Curves of independent seeds: what is refused, and a slope for each."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import check_finite

Array = NDArray[np.float64]
FEWEST_SEEDS = 5


def check_seeds(name: str, values: ArrayLike, columns: int) -> Array:
    """Values as floats of shape [seed, column].

    Args:
        name: what to call them in the error.
        values: shape [seed, column].
        columns: fewest columns.

    Raises:
        ValueError: if the shape is another, a value is not finite, or there are fewer
            than five seeds or too few columns.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        msg = f"{name} has shape {table.shape}; it must be [seed, column]."
        raise ValueError(msg)
    check_finite(name, table)
    if len(table) < FEWEST_SEEDS:
        msg = f"{name} has {len(table)} seeds; at least {FEWEST_SEEDS} are needed."
        raise ValueError(msg)
    if table.shape[1] < columns:
        msg = f"{name} has {table.shape[1]} columns; at least {columns} are needed."
        raise ValueError(msg)
    return table


def check_axis(name: str, values: ArrayLike, columns: int) -> Array:
    """Values of a column axis as floats, shape [column].

    Raises:
        ValueError: if they are not finite, positive, rising and one per column.
    """
    axis = np.asarray(values, dtype=np.float64)
    if axis.shape != (columns,):
        msg = f"{name} has shape {axis.shape}; there are {columns} columns."
        raise ValueError(msg)
    if not (np.isfinite(axis).all() and axis[0] > 0 and (np.diff(axis) > 0).all()):
        msg = f"{name} runs from {axis[0]} to {axis[-1]}; it must be positive and rise."
        raise ValueError(msg)
    return axis


def check_level(name: str, value: float, most: float) -> None:
    """Refuse an error rate or confidence that is not between 0 and a bound.

    Raises:
        ValueError: if it is not.
    """
    if not 0 < value < most:
        msg = f"{name} is {value}; it must be between 0 and {most}."
        raise ValueError(msg)


def slopes(table: Array, axis: Array) -> Array:
    """Least-squares slope of every row against the axis, shape [row]."""
    centred = axis - axis.mean()
    return np.asarray(table @ centred / (centred @ centred))
