"""Many small nonlinear least-squares problems at once (Levenberg–Marquardt, numpy).

A bootstrap solves the same problem hundreds of times with other weights; solving the
draws side by side is some hundred times faster than a loop over a general solver.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Evaluation = tuple[Float[np.ndarray, "draw n"], Float[np.ndarray, "draw n q"]]


def minimise(
    evaluate: Callable[[Float[np.ndarray, "draw q"]], Evaluation],
    start: Float[np.ndarray, "draw q"],
    lower: Float[np.ndarray, "*draw q"],
    upper: Float[np.ndarray, "*draw q"],
    *,
    iterations: int = 60,
    tolerance: float = 1e-9,
) -> tuple[
    Float[np.ndarray, "draw q"], Float[np.ndarray, "draw"], Bool[np.ndarray, "draw"]
]:
    """Minimise ½|r(θ)|² per draw, θ clipped to a box.

    Args:
        evaluate: θ → residuals and their Jacobian.
        start: θ to begin with, one row per draw.
        lower: least θ, for all draws or per draw.
        upper: greatest θ, for all draws or per draw.
        iterations: at most this many steps.
        tolerance: a draw has converged when a step changes its cost by less than this
            fraction.

    Returns:
        θ, the cost |r|², and whether each draw converged.
    """
    theta = np.clip(start, lower, upper)
    damping = np.full(len(theta), 1e-3)
    residuals, jacobian = evaluate(theta)
    cost = np.sum(residuals**2, axis=-1)
    settled = np.zeros(len(theta), dtype=bool)
    for _ in range(iterations):
        free = _free(theta, residuals, jacobian, (lower, upper))
        step = _step(residuals, jacobian * free[:, None, :], damping)
        proposal = np.clip(theta + step, lower, upper)
        new_residuals, new_jacobian = evaluate(proposal)
        new_cost = np.sum(new_residuals**2, axis=-1)
        better = new_cost <= cost
        change = np.abs(cost - new_cost) <= tolerance * cost + 1e-300
        small = np.max(np.abs(proposal - theta), axis=-1, initial=0.0) <= 1e-10
        settled |= (better & change) | small
        damping = np.clip(np.where(better, damping / 5, damping * 8), 1e-12, 1e12)
        theta = np.where(better[:, None], proposal, theta)
        residuals = np.where(better[:, None], new_residuals, residuals)
        jacobian = np.where(better[:, None, None], new_jacobian, jacobian)
        cost = np.where(better, new_cost, cost)
        if np.all(settled):
            break
    return theta, cost, settled


def _free(
    theta: np.ndarray,
    residuals: np.ndarray,
    jacobian: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Coordinates that are not held at a bound by the gradient."""
    gradient = (np.swapaxes(jacobian, -1, -2) @ residuals[..., None])[..., 0]
    held = (theta <= box[0]) & (gradient > 0) | (theta >= box[1]) & (gradient < 0)
    return ~held


def _step(
    residuals: np.ndarray, jacobian: np.ndarray, damping: np.ndarray
) -> np.ndarray:
    """Damped Gauss–Newton steps; the damping scales with each diagonal entry."""
    transposed = np.swapaxes(jacobian, -1, -2)
    normal = transposed @ jacobian
    gradient = (transposed @ residuals[..., None])[..., 0]
    diagonal = np.einsum("...ii->...i", normal)
    scale = diagonal + 1e-12 * np.max(diagonal, axis=-1, keepdims=True) + 1e-30
    index = np.arange(normal.shape[-1])
    normal[..., index, index] += damping[:, None] * scale + 1e-30
    return -np.linalg.solve(normal, gradient[..., None])[..., 0]
