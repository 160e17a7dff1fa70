"""Many small nonlinear least-squares problems at once (Levenberg–Marquardt, numpy).

A bootstrap solves the same problem hundreds of times with other weights; solving the
draws side by side is some hundred times faster than a loop over a general solver.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

Rows = Int[np.ndarray, "active"]
Evaluation = tuple[Float[np.ndarray, "active n"], Float[np.ndarray, "active n q"]]


def minimise(
    evaluate: Callable[[Float[np.ndarray, "active q"], Rows], Evaluation],
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
        evaluate: θ of some draws, and which → residuals and their Jacobian.
        start: θ to begin with, one row per draw.
        lower: least θ, for all draws or per draw.
        upper: greatest θ, for all draws or per draw.
        iterations: at most this many steps.
        tolerance: a draw has converged, and is left alone, when a step that is hardly
            damped changes its cost by less than this fraction.

    Returns:
        θ, the cost |r|², and whether each draw converged.
    """
    box = tuple(np.broadcast_to(bound, start.shape) for bound in (lower, upper))
    theta = np.clip(start, *box)
    rows = np.arange(len(theta))
    now = _State(theta, np.full(len(theta), 1e-3), *evaluate(theta, rows))
    cost, settled = now.cost.copy(), np.zeros(len(theta), dtype=bool)
    for _ in range(iterations):
        proposal = now.proposal(box[0][rows], box[1][rows])
        new = _State(proposal, now.damping / 5, *evaluate(proposal, rows))
        better = new.cost <= now.cost
        change = np.abs(now.cost - new.cost) <= tolerance * now.cost + 1e-300
        small = np.max(np.abs(proposal - now.theta), axis=-1, initial=0.0) <= 1e-10
        done = better & change & (now.damping <= 1) | small
        now.accept(new, better)
        theta[rows], cost[rows], settled[rows] = now.theta, now.cost, done
        if np.any(done):
            rows, now = rows[~done], now.kept(~done)
        if len(rows) == 0:
            break
    return theta, cost, settled


class _State:
    """Where the draws still at work stand."""

    def __init__(
        self,
        theta: np.ndarray,
        damping: np.ndarray,
        residuals: np.ndarray,
        jacobian: np.ndarray,
    ) -> None:
        self.theta = theta
        self.damping = np.clip(damping, 1e-12, 1e12)
        self.residuals = residuals
        self.jacobian = jacobian
        self.cost = np.einsum("dn,dn->d", residuals, residuals)

    def proposal(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Where the damped step leads."""
        free = _free(self.theta, self.residuals, self.jacobian, (lower, upper))
        step = _step(self.residuals, self.jacobian * free[:, None, :], self.damping)
        return np.clip(self.theta + step, lower, upper)

    def accept(self, new: "_State", better: np.ndarray) -> None:
        """Take the better rows of a new state; damp the others more."""
        self.damping = np.where(better, new.damping, np.minimum(self.damping * 8, 1e12))
        for name in ("theta", "residuals", "jacobian", "cost"):
            getattr(self, name)[better] = getattr(new, name)[better]

    def kept(self, chosen: np.ndarray) -> "_State":
        """The chosen rows."""
        return _State(
            self.theta[chosen],
            self.damping[chosen],
            self.residuals[chosen],
            self.jacobian[chosen],
        )


def _free(
    theta: np.ndarray,
    residuals: np.ndarray,
    jacobian: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Coordinates that are not held at a bound by the gradient."""
    gradient = np.einsum("dnq,dn->dq", jacobian, residuals)
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
