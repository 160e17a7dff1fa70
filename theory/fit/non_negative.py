"""Non-negative least squares with three columns, exactly, for many rows at once.

With three columns there are seven sets of active ones, each with a solution in closed
form (Cramer's rule on columns of unit length); the best admissible one is the solution.
"""

import numpy as np
from jaxtyping import Float

RIDGE = 1e-12  # on squared lengths of one, so that twin columns share their level
SINGULAR = 1e-13  # a determinant that is rounding error
PAIRS = ((0, 1), (0, 2), (1, 2))


def solve(
    columns: Float[np.ndarray, "draw three cell"],
    target: Float[np.ndarray, "cell"],
    weights: Float[np.ndarray, "draw cell"],
    *,
    free_level: bool,
) -> Float[np.ndarray, "draw three"]:
    """Minimise Σ w·(y − Σ level·column)² per row, levels ≥ 0.

    Args:
        columns: what the levels multiply.
        target: y.
        weights: w ≥ 0.
        free_level: whether the first level may be negative.
    """
    weighted = columns * weights[:, None]
    normal = weighted @ np.swapaxes(columns, -1, -2)
    right = weighted @ target
    # A column of zeros gets the length of nothing to divide by, and the level 0.
    length = np.sqrt(np.diagonal(normal, axis1=1, axis2=2))
    length = np.where(length > 0, length, 1.0)
    cosine = normal / (length[:, :, None] * length[:, None, :])
    return _best(cosine, right / length, first=1 if free_level else 0) / length


def _best(cosine: np.ndarray, right: np.ndarray, *, first: int) -> np.ndarray:
    """The best admissible solution over all sets of active columns."""
    whole = _three(cosine, right)
    # The unconstrained solution is the answer wherever it is admissible.
    rest = np.flatnonzero(np.any(whole[:, first:] < 0, axis=-1))
    if len(rest) == 0:
        return whole
    cosine, right = cosine[rest], right[rest]
    sets = [*_pairs(cosine, right, first), *_ones(right, first)]
    levels = np.stack(sets)
    # At a restricted minimum the reduction of the squares is levels·right.
    gain = np.sum(levels * right, axis=-1)
    gain[np.any(levels[..., first:] < 0, axis=-1)] = -np.inf
    found = levels[np.argmax(gain, axis=0), np.arange(len(rest))]
    whole[rest] = np.where(np.isfinite(np.max(gain, axis=0))[:, None], found, 0.0)
    return whole


def _three(cosine: np.ndarray, right: np.ndarray) -> np.ndarray:
    """All columns active; negative levels where they cannot be told apart."""
    one = 1 + RIDGE
    a, b, c = cosine[:, 0, 1], cosine[:, 0, 2], cosine[:, 1, 2]
    x, y, z = right.T
    ab, ac, bc = a * b - one * c, a * c - one * b, b * c - one * a
    determinant = one * (one**2 - c * c) + a * bc + b * ac
    levels = (
        (one**2 - c * c) * x + bc * y + ac * z,
        bc * x + (one**2 - b * b) * y + ab * z,
        ac * x + ab * y + (one**2 - a * a) * z,
    )
    told_apart = determinant > SINGULAR
    determinant = np.where(told_apart, determinant, 1.0)
    solved = np.stack(levels, axis=-1) / determinant[:, None]
    return np.where(told_apart[:, None], solved, -1.0)


def _pairs(cosine: np.ndarray, right: np.ndarray, first: int) -> list[np.ndarray]:
    """Two columns active, the first among them if its level is free."""
    found = []
    for i, j in PAIRS[: 3 - first]:
        shared = cosine[:, i, j]
        levels = np.zeros_like(right)
        levels[:, i] = (1 + RIDGE) * right[:, i] - shared * right[:, j]
        levels[:, j] = (1 + RIDGE) * right[:, j] - shared * right[:, i]
        found.append(levels / ((1 + RIDGE) ** 2 - shared**2)[:, None])
    return found


def _ones(right: np.ndarray, first: int) -> list[np.ndarray]:
    """One column active, the first if its level is free."""
    active = range(1 if first else 3)
    return [np.where(np.arange(3) == i, right / (1 + RIDGE), 0.0) for i in active]
