"""The shapes of bias and noise for given exponents, and how they change with these."""

import numpy as np
from jaxtyping import Float

from theory.fit.problem import SEARCHED, Problem


def log_columns(
    problem: Problem, theta: Float[np.ndarray, "draw q"]
) -> tuple[Float[np.ndarray, "draw cell"], Float[np.ndarray, "draw cell"]]:
    """Logarithms of what bias and noise are multiplied with.

    Args:
        problem: cells.
        theta: logarithms of the searched parameters, in the order of `SEARCHED`, then
            the exponents of the pace.
    """
    count = len(SEARCHED[problem.family])
    values = np.exp(theta[:, :count]).T[..., None]
    log_budget = problem.log_budget + theta[:, count:] @ problem.pace.T
    if problem.family == "free":
        b, d, gamma = values
        return d * problem.log_ddr - b * log_budget, -gamma * problem.log_ddr
    log_z = log_budget - problem.log_ddr / 2
    noise = -problem.log_ddr / 2
    if problem.family == "joint":
        return -values[0] * log_z, noise
    rate, source = values
    return -source * np.log1p(rate * np.exp(log_z) / source), noise


def theta_slopes(
    problem: Problem,
    theta: Float[np.ndarray, "draw q"],
    bias: Float[np.ndarray, "draw cell"],
    noise: Float[np.ndarray, "draw cell"],
) -> Float[np.ndarray, "draw cell q"]:
    """Derivatives of the mean with respect to theta, levels fixed.

    Args:
        problem: cells.
        theta: what is searched.
        bias: the part of the mean that bias makes, with its sign.
        noise: the part that noise makes.
    """
    by_bias, by_noise = _log_slopes(problem, theta)
    moved = by_bias * bias[..., None]
    return moved if by_noise is None else moved + by_noise * noise[..., None]


def _log_slopes(
    problem: Problem, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Derivatives of `log_columns` with respect to theta; None for none at all."""
    count = len(SEARCHED[problem.family])
    values = np.exp(theta[:, :count]).T[..., None]
    log_budget = problem.log_budget + theta[:, count:] @ problem.pace.T
    if problem.family == "free":
        b, d, gamma = values
        by_budget = -b * np.ones_like(log_budget)
        own = [-b * log_budget, d * problem.log_ddr, 0 * log_budget]
        noise = np.zeros((*log_budget.shape, theta.shape[1]))
        noise[..., 2] = -gamma * problem.log_ddr
        return _with_pace(own, by_budget, problem.pace), noise
    log_z = log_budget - problem.log_ddr / 2
    if problem.family == "joint":
        by_budget = -values[0] * np.ones_like(log_z)
        return _with_pace([-values[0] * log_z], by_budget, problem.pace), None
    rate, source = values
    gone = rate * np.exp(log_z) / source
    by_budget = -source * gone / (1 + gone)
    own = [by_budget, -source * np.log1p(gone) - by_budget]
    return _with_pace(own, by_budget, problem.pace), None


def _with_pace(
    own: list[np.ndarray], by_budget: np.ndarray, pace: np.ndarray
) -> np.ndarray:
    """Slopes of the law's own parameters, then those of the pace."""
    return np.concatenate(
        [np.stack(own, axis=-1), by_budget[..., None] * pace], axis=-1
    )
