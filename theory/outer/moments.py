"""Linear loops as data: one update of the state, and of its second moments.

A loop z' = Mz + gξ, with z = (x, r, …) and E ξ² = s + k·x², maps the second moments of
z affinely. Affine maps compose, so t updates cost about 2·log₂ t compositions instead
of t, and remain exact in exact arithmetic.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from theory.arithmetic import Number

Row = tuple[Number, ...]
Rows = tuple[Row, ...]


class LinearMap(NamedTuple):
    """One update z' = Mz + gξ of a loop's state.

    Attributes:
        matrix: M, by rows.
        gain: g, what the update's gradient noise ξ is multiplied by.
    """

    matrix: Rows
    gain: Row


class AffineMap(NamedTuple):
    """An affine map v' = Lv + o.

    Attributes:
        linear: L, by rows.
        offset: o.
    """

    linear: Rows
    offset: Row

    def apply(self, vector: Row) -> Row:
        """The vector one application later."""
        rows = zip(self.linear, self.offset, strict=True)
        return tuple(_dot(row, vector) + shift for row, shift in rows)

    def after(self, earlier: "AffineMap") -> "AffineMap":
        """The map that applies `earlier` first and this one second."""
        columns = tuple(zip(*earlier.linear, strict=True))
        linear = tuple(
            tuple(_dot(row, column) for column in columns) for row in self.linear
        )
        return AffineMap(linear, self.apply(earlier.offset))

    def repeated(self, count: "int | np.ndarray") -> "AffineMap":
        """The map applied `count` times, by repeated squaring.

        Args:
            count: how often, not negative; an integer array gives one power per cell.

        Returns:
            The composed map; the identity where the count is 0.
        """
        result, square = _identity(len(self.offset)), self
        while True:
            result = _select(count % 2 == 1, square.after(result), result)
            count = count // 2
            if not np.any(count):
                return result
            square = square.after(square)


def pairs(size: int) -> tuple[tuple[int, int], ...]:
    """The moments of a state, in order: E z_i z_j for i ≤ j, that is xx, xr, rr."""
    return tuple(itertools.combinations_with_replacement(range(size), 2))


def moment_map(
    matrix: Rows, loading: Row, noise: Number, slope: Number = 0
) -> AffineMap:
    """The affine moment map of one update z' = Mz + gξ with E ξ² = noise + slope·x².

    Args:
        matrix: M, by rows.
        loading: g.
        noise: variance of ξ at x = 0.
        slope: growth of that variance with x².

    Returns:
        The map of the moments in the order of `pairs`. Exact; derived here (second
        moments of a linear recursion driven by noise that is uncorrelated with the
        past).
    """
    moments = pairs(len(loading))
    driven = tuple(loading[i] * loading[j] for i, j in moments)
    linear = []
    for (i, j), push in zip(moments, driven, strict=True):
        row = [
            matrix[i][k] * matrix[j][m] + int(k != m) * matrix[i][m] * matrix[j][k]
            for k, m in moments
        ]
        row[0] = row[0] + slope * push
        linear.append(tuple(row))
    return AffineMap(tuple(linear), tuple(noise * push for push in driven))


def _identity(size: int) -> AffineMap:
    rows = tuple(tuple(int(i == j) for j in range(size)) for i in range(size))
    return AffineMap(rows, (0,) * size)


def _dot(row: Row, column: Row) -> Number:
    first, *rest = (one * two for one, two in zip(row, column, strict=True))
    return sum(rest, first)


def _select(condition: Any, one: AffineMap, two: AffineMap) -> AffineMap:
    if not isinstance(condition, np.ndarray):
        return one if condition else two
    rows = zip(one.linear, two.linear, strict=True)
    linear = tuple(_select_row(condition, *pair) for pair in rows)
    return AffineMap(linear, _select_row(condition, one.offset, two.offset))


def _select_row(condition: np.ndarray, one: Row, two: Row) -> Row:
    return tuple(np.where(condition, x, y) for x, y in zip(one, two, strict=True))
