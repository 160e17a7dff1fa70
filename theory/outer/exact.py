"""Small linear algebra without rounding, for `Fraction` and sympy expressions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from theory.arithmetic import Number, is_symbolic

Rows = Sequence[Sequence[Number]]


def solve_exactly(matrix: Rows, right: Sequence[Number]) -> list:
    """The solution of a small linear system, by elimination without rounding.

    Args:
        matrix: square, by rows; numbers of one exact kind.
        right: the right-hand side.

    Returns:
        The solution.

    Raises:
        ValueError: if the matrix is singular.
    """
    rows = [[*row, end] for row, end in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        found = next((i for i in range(column, size) if rows[i][column] != 0), None)
        if found is None:
            msg = f"matrix is {matrix}; it must not be singular."
            raise ValueError(msg)
        rows[column], rows[found] = rows[found], rows[column]
        pivot = rows[column]
        pivot[:] = [_reduced(entry / pivot[column]) for entry in pivot]
        for i, row in enumerate(rows):
            if i != column and row[column] != 0:
                factor = row[column]
                row[:] = [
                    _reduced(a - factor * b) for a, b in zip(row, pivot, strict=True)
                ]
    return [row[-1] for row in rows]


def characteristic_polynomial(matrix: Rows) -> list[Number]:
    """Coefficients of det(λ − M), the highest power first (Faddeev & LeVerrier).

    Args:
        matrix: M, square, by rows; numbers of one exact kind.

    Returns:
        1, −tr M, …, ±det M.
    """
    size = len(matrix)
    power: list[list[Number]] = [[0 * entry for entry in row] for row in matrix]
    coefficients: list[Number] = [1]
    for degree in range(1, size + 1):
        shifted = [
            [power[i][j] + (coefficients[-1] if i == j else 0) for j in range(size)]
            for i in range(size)
        ]
        power = product(matrix, shifted)
        trace = sum((power[i][i] for i in range(1, size)), power[0][0])
        coefficients.append(-trace / degree)
    return coefficients


def product(one: Rows, two: Rows) -> list[list[Number]]:
    """The matrix product of rows of numbers."""
    columns = list(zip(*two, strict=True))
    return [
        [
            sum((a * b for a, b in zip(row[1:], col[1:], strict=True)), row[0] * col[0])
            for col in columns
        ]
        for row in one
    ]


def is_exact(matrix: Any) -> bool:
    """Whether it is rows of numbers, none of them a float or an array."""
    if isinstance(matrix, np.ndarray):
        return False
    return all(
        isinstance(entry, int | Fraction) or is_symbolic(entry)
        for row in matrix
        for entry in row
    )


def _reduced(value: Number) -> Number:
    """A sympy expression as one reduced quotient, so that a zero is seen as one."""
    return value.cancel() if is_symbolic(value) else value
