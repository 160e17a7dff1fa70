"""Covariance and Fisher matrices: what is refused."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import check_finite, floats

Array = NDArray[np.float64]

ROUNDING = 1e-8


def check_vector(name: str, values: ArrayLike) -> Array:
    """A finite, non-empty vector.

    Raises:
        ValueError: if it is not one.
    """
    vector = floats(name, values)
    if vector.ndim != 1 or not vector.size:
        msg = f"{name} has shape {vector.shape}; it must be a vector with entries."
        raise ValueError(msg)
    check_finite(name, vector)
    return vector


def check_metric(name: str, values: ArrayLike, size: int | None = None) -> Array:
    """A finite, symmetric, positive semi-definite matrix, up to rounding.

    Args:
        name: what to call it in the error.
        values: shape [parameter, parameter].
        size: the number of parameters, if it is already known.

    Returns:
        The matrix.

    Raises:
        ValueError: if it is not one.
    """
    matrix = floats(name, values)
    right = size is None or matrix.shape[:1] == (size,)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not right:
        wanted = "square" if size is None else f"({size}, {size})"
        msg = f"{name} has shape {matrix.shape}; it must be {wanted}."
        raise ValueError(msg)
    if not matrix.size:
        msg = f"{name} is empty; it must have at least one row."
        raise ValueError(msg)
    check_finite(name, matrix)
    scale = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > ROUNDING * scale:
        msg = f"{name} differs from its transpose; it must be symmetric."
        raise ValueError(msg)
    least = np.linalg.eigvalsh(matrix)[0]
    if least < -ROUNDING * scale:
        msg = f"{name} has the eigenvalue {least}; none may be below 0."
        raise ValueError(msg)
    return matrix
