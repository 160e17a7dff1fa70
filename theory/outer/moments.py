"""Exact propagation of second moments through a two-variable linear loop.

A loop z' = Mz + gξ, with z = (x, r) and E ξ² = s + k·x², maps the moments
(E x², E xr, E r²) affinely. Affine maps compose, so t updates cost about 2·log₂ t
compositions instead of t, and remain exact in exact arithmetic.
"""

from typing import NamedTuple

import numpy as np

from theory.arithmetic import Number

Triple = tuple[Number, Number, Number]
Pair = tuple[Number, Number]


class LinearMap(NamedTuple):
    """One update z' = Mz + gξ of a loop's state.

    Attributes:
        matrix: M, by rows.
        gain: g, what the update's gradient noise ξ is multiplied by.
    """

    matrix: tuple[tuple[Number, ...], ...]
    gain: tuple[Number, ...]


class MomentMap(NamedTuple):
    """An affine map of the moments (E x², E xr, E r²).

    Attributes:
        linear: three rows of the linear part.
        offset: the constant part.
    """

    linear: tuple[Triple, Triple, Triple]
    offset: Triple

    def apply(self, moments: Triple) -> Triple:
        """The moments one application later."""
        rows = zip(self.linear, self.offset, strict=True)
        first, second, third = (_dot(row, moments) + shift for row, shift in rows)
        return first, second, third

    def after(self, earlier: "MomentMap") -> "MomentMap":
        """The map that applies `earlier` first and this one second."""
        columns = tuple(zip(*earlier.linear, strict=True))
        first, second, third = (
            (_dot(row, columns[0]), _dot(row, columns[1]), _dot(row, columns[2]))
            for row in self.linear
        )
        return MomentMap((first, second, third), self.apply(earlier.offset))

    def repeated(self, count: "int | np.ndarray") -> "MomentMap":
        """The map applied `count` times, by repeated squaring.

        Args:
            count: how often, not negative; an integer array gives one power per cell.

        Returns:
            The composed map; the identity where the count is 0.
        """
        result, square = IDENTITY, self
        while True:
            result = _select(count % 2 == 1, square.after(result), result)
            count = count // 2
            if not np.any(count):
                return result
            square = square.after(square)


IDENTITY = MomentMap(((1, 0, 0), (0, 1, 0), (0, 0, 1)), (0, 0, 0))


def moment_map(
    matrix: tuple[Pair, Pair], loading: Pair, noise: Number, slope: Number = 0
) -> MomentMap:
    """The affine moment map of one update z' = Mz + gξ with E ξ² = noise + slope·x².

    Args:
        matrix: M, by rows.
        loading: g.
        noise: variance of ξ at x = 0.
        slope: growth of that variance with x².

    Returns:
        The map of (E x², E xr, E r²). Exact; derived here (second moments of a linear
        recursion driven by noise that is uncorrelated with the past).
    """
    (a, b), (c, d) = matrix
    e, f = loading
    linear = (
        (a * a + slope * e * e, 2 * a * b, b * b),
        (a * c + slope * e * f, a * d + b * c, b * d),
        (c * c + slope * f * f, 2 * c * d, d * d),
    )
    return MomentMap(linear, (noise * e * e, noise * e * f, noise * f * f))


def _dot(row: Triple, column: Triple) -> Number:
    return row[0] * column[0] + row[1] * column[1] + row[2] * column[2]


def _select(
    condition: "bool | np.ndarray", one: MomentMap, two: MomentMap
) -> MomentMap:
    if not isinstance(condition, np.ndarray):
        return one if condition else two
    first, second, third = (
        _select_triple(condition, x, y)
        for x, y in zip(one.linear, two.linear, strict=True)
    )
    offset = _select_triple(condition, one.offset, two.offset)
    return MomentMap((first, second, third), offset)


def _select_triple(condition: np.ndarray, one: Triple, two: Triple) -> Triple:
    first, second, third = (
        np.where(condition, x, y) for x, y in zip(one, two, strict=True)
    )
    return first, second, third
