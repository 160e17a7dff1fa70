"""The stationary covariance of any linear loop, and whether it has one.

The slow and general twin of the closed forms, and the only form of the loops that have
no compact one. Exact numbers are solved exactly, floats by doubling.
"""

from typing import Any

import numpy as np

from theory.arithmetic import Number, align, check_finite, decided
from theory.outer.exact import (
    characteristic_polynomial,
    is_exact,
    product,
    solve_exactly,
)
from theory.outer.loop import Moments
from theory.outer.moments import LinearMap, Rows, moment_map, pairs

Matrix = Any  # an array [..., row, column], or rows of numbers
Shape = tuple[int, ...]

NAMES = ("matrix", "gain", "noise_covariance")


def stationary_covariance(
    matrix: Matrix, gain: Matrix, noise_covariance: Matrix
) -> Matrix:
    """The covariance P = MPMᵀ + GSGᵀ of z' = Mz + Gξ with Cov ξ = S.

    Valid where every eigenvalue of M is inside the unit circle; P is then unique.
    Floats: P = Σ MⁱGSGᵀ(Mᵀ)ⁱ, summed by doubling, so that P stays symmetric and
    positive; the relative error is about 10⁻¹⁶/(1 − spectral radius).

    Args:
        matrix: M, shape [..., state, state], or a tuple of rows of exact numbers.
        gain: G, shape [..., state, noise], likewise.
        noise_covariance: S, shape [..., noise, noise], likewise.

    Returns:
        P, shape [..., state, state], inf in unstable cells of a batch; rows of exact
        numbers if all three arguments are.

    Raises:
        ValueError: if the shapes do not fit, a number is not finite, or a single
            matrix is unstable.
    """
    if all(is_exact(given) for given in (matrix, gain, noise_covariance)):
        return _exact_covariance(*_exact(matrix, gain, noise_covariance))
    M, G, S = _floats(matrix, gain, noise_covariance)
    radius = np.asarray(spectral_radius(M))
    if not radius.ndim and radius >= 1:
        msg = f"matrix has the spectral radius {radius}; it must be below 1."
        raise ValueError(msg)
    stable = (radius < 1)[..., None, None]
    P = _doubled(np.where(stable, M, 0), G @ S @ np.swapaxes(G, -1, -2))
    return np.where(stable, P, np.inf)


def spectral_radius(matrix: Matrix) -> Any:
    """Largest absolute eigenvalue of M.

    Args:
        matrix: M, shape [..., state, state].

    Returns:
        A float, or an array [...].

    Raises:
        ValueError: if M is not square or not finite.
    """
    (M,) = _floats(matrix)
    return np.abs(np.linalg.eigvals(M)).max(axis=-1)[()]


def is_stable(matrix: Matrix) -> Any:
    """Whether every eigenvalue of M is inside the unit circle.

    Exact for exact numbers, by the criterion of Schur and Cohn on the characteristic
    polynomial: λⁿ + … + c₀ is stable iff |c₀| < 1 and its reduction by one degree is.

    Args:
        matrix: M, shape [..., state, state], or a tuple of rows of numbers.

    Returns:
        A truth value, an array [...] of them, or a sympy relation.

    Raises:
        ValueError: if M is not square or not finite.
    """
    if not is_exact(matrix):
        stable = spectral_radius(matrix) < 1
        return stable if isinstance(stable, np.ndarray) else bool(stable)
    (rows,) = _exact(matrix)
    coefficients = characteristic_polynomial(rows)
    stable = True
    while len(coefficients) > 1:
        first, last = coefficients[0], coefficients[-1]
        inside = first * first - last * last > 0
        if decided(inside) is False:
            return False
        stable = inside & stable
        turned = zip(coefficients, coefficients[::-1], strict=True)
        coefficients = [first * one - last * two for one, two in turned][:-1]
    return stable


def solved_moments(update: LinearMap) -> Moments:
    """Stationary moments per unit noise variance, from the map of one update.

    E (x'−x)² = dPdᵀ + g₀² with d the first row of M less that of the identity.

    Args:
        update: a stable map; state x, r, … of exact numbers, floats or arrays.

    Returns:
        The moments; exact for exact numbers.
    """
    gain = tuple((entry,) for entry in update.gain)
    P = stationary_covariance(update.matrix, gain, ((1,),))

    def moment(i: int, j: int) -> Number:
        return P[..., i, j][()] if isinstance(P, np.ndarray) else P[i][j]

    first = update.matrix[0]
    row = (first[0] - 1, *first[1:])
    step = update.gain[0] * update.gain[0]
    for i, j in pairs(len(row)):
        step = step + (1 + int(i != j)) * row[i] * row[j] * moment(i, j)
    return Moments(moment(0, 0), moment(1, 1), moment(0, 1), step)


def _exact_covariance(M: Rows, G: Rows, S: Rows) -> Rows:
    if decided(is_stable(M)) is False:
        msg = f"matrix is {M}; its spectral radius must be below 1."
        raise ValueError(msg)
    size, moments = len(M), pairs(len(M))
    driven = product(product(G, S), list(zip(*G, strict=True)))
    linear = moment_map(M, (0,) * size, 0).linear
    system = [
        [int(i == j) - entry for j, entry in enumerate(row)]
        for i, row in enumerate(linear)
    ]
    solved = solve_exactly(system, [driven[i][j] for i, j in moments])
    by_pair = dict(zip(moments, solved, strict=True))
    return tuple(
        tuple(by_pair[min(i, j), max(i, j)] for j in range(size)) for i in range(size)
    )


def _doubled(M: np.ndarray, driven: np.ndarray) -> np.ndarray:
    """Σ Mⁱ·driven·(Mᵀ)ⁱ: each round adds as many terms as there were."""
    P = (driven + np.swapaxes(driven, -1, -2)) / 2 + np.zeros_like(M)
    while True:
        more = M @ P @ np.swapaxes(M, -1, -2)
        P = P + (more + np.swapaxes(more, -1, -2)) / 2
        M = M @ M
        if not np.any(np.abs(M) > 1e-20):
            return P


def _exact(*matrices: Matrix) -> list[Rows]:
    """Matrices of one exact kind."""
    _check_shapes(*(np.asarray(matrix, dtype=object).shape for matrix in matrices))
    entries = iter(align(*(entry for m in matrices for row in m for entry in row)))
    found = [tuple(tuple(next(entries) for _ in row) for row in m) for m in matrices]
    for name, matrix in zip(NAMES, found, strict=False):
        check_finite(name, sum(abs(entry) for row in matrix for entry in row))
    return found


def _floats(*matrices: Matrix) -> list[np.ndarray]:
    """Matrices as float arrays, those given by rows stacked."""
    found = [_stacked(matrix) for matrix in matrices]
    _check_shapes(*(array.shape for array in found))
    for name, array in zip(NAMES, found, strict=False):
        check_finite(name, array)
    return found


def _check_shapes(matrix: Shape, gain: Shape = (), noise: Shape = ()) -> None:
    """M square and not empty; G, if given, as high as M; S square, as wide as G."""
    states, sources = matrix[-2:-1], gain[-1:]
    rules = (
        ("matrix", matrix, states + states),
        ("gain", gain, states + sources),
        ("noise_covariance", noise, sources + sources),
    )
    for name, shape, right in rules[: 3 if gain else 1]:
        if shape[-2:] != right or len(right) < 2 or not all(right):
            wanted = ", ".join(str(size) for size in right) or "state, state"
            msg = f"{name} has shape {shape}; it must end in ({wanted})."
            raise ValueError(msg)


def _stacked(matrix: Matrix) -> np.ndarray:
    if isinstance(matrix, np.ndarray) or not matrix:
        return np.asarray(matrix, dtype=np.float64)
    cells = np.broadcast_arrays(*(np.float64(v) for row in matrix for v in row))
    flat = np.stack(cells, axis=-1)
    return flat.reshape(*flat.shape[:-1], len(matrix), -1)
