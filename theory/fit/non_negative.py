"""Non-negative least squares with three columns, exactly, for many rows at once.

With three columns there are seven sets of active ones; the best admissible restricted
solution is the solution.
"""

import itertools

import numpy as np
from jaxtyping import Float


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
    best = _restricted(normal, right, (0, 1, 2))
    first = 1 if free_level else 0
    # The unconstrained solution is the answer wherever it is admissible.
    rest = np.flatnonzero(np.any(best[:, first:] < 0, axis=-1))
    if len(rest):
        best[rest] = _best_subset(normal[rest], right[rest], first)
    return best


def _best_subset(normal: np.ndarray, right: np.ndarray, first: int) -> np.ndarray:
    """The best admissible solution over all proper subsets of columns."""
    best = np.zeros_like(right)
    gain = np.full(len(right), -np.inf)
    for active in _active_sets(free_level=first == 1):
        levels = _restricted(normal, right, active)
        admissible = np.all(levels[:, first:] >= 0, axis=-1)
        # At a restricted minimum the reduction of the squares is levels·right.
        value = np.where(admissible, np.sum(levels * right, axis=-1), -np.inf)
        better = value > gain
        gain = np.where(better, value, gain)
        best = np.where(better[:, None], levels, best)
    return best


def _active_sets(*, free_level: bool) -> list[tuple[int, ...]]:
    sizes = [s for k in (1, 2) for s in itertools.combinations(range(3), k)]
    return [s for s in sizes if 0 in s or not free_level]


def _restricted(
    normal: np.ndarray, right: np.ndarray, active: tuple[int, ...]
) -> np.ndarray:
    """Unconstrained solution with only the active columns."""
    index = np.array(active)
    small = normal[:, index[:, None], index]
    scale = np.sqrt(np.einsum("dii->di", small)) + 1e-300
    small = small / (scale[:, :, None] * scale[:, None, :])
    small[:, np.arange(len(index)), np.arange(len(index))] += 1e-12
    solved = np.linalg.solve(small, (right[:, index] / scale)[..., None])[..., 0]
    levels = np.zeros_like(right)
    levels[:, index] = solved / scale
    return levels
