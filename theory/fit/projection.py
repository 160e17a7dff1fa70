"""Variable projection: given the law's exponents, its levels follow linearly.

    mean = floor + bias·b(B, D) + noise·n(D)        (known optimum: of the gap)
    mean = J∞ − bias·b(B, D) − noise·n(D)           (free asymptote: of the score)

Levels are non-negative (J∞ is not bounded). Two noise models:

*Gamma*, for gaps to a known optimum. A gap is a quadratic form of parameter
fluctuations, so its spread is proportional to its mean; the Gamma likelihood with
identity link says just that, and needs no logarithm of noisy means, which would bias a
small gap downwards. It is maximised by least squares with weights 1/mean², iterated,
so the projection stays linear. Its deviance is the objective of the search over
exponents.

*Gaussian*, for scores with a free asymptote: one variance for all cells.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.fit import non_negative
from theory.fit.law_columns import log_columns, theta_slopes
from theory.fit.problem import GAUSSIAN, Problem

MAX_ITERATIONS = 12
# Without a floor under the means, a cell that no column reaches would weigh infinitely.
TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Levels for given exponents.

    Attributes:
        level: floor (gamma) or J∞ (gaussian).
        log_bias: log of the bias coefficient; −∞ for none.
        log_noise: log of the noise coefficient; −∞ for none.
        mean: fitted means.
        bias: the bias part of the gap.
        noise: the noise part of the gap.
        residuals: signed deviance residuals, weights included.
        deviance: their sum of squares.
    """

    level: Float[np.ndarray, "draw"]
    log_bias: Float[np.ndarray, "draw"]
    log_noise: Float[np.ndarray, "draw"]
    mean: Float[np.ndarray, "draw cell"]
    bias: Float[np.ndarray, "draw cell"]
    noise: Float[np.ndarray, "draw cell"]
    residuals: Float[np.ndarray, "draw cell"]
    deviance: Float[np.ndarray, "draw"]


def solve(
    problem: Problem,
    theta: Float[np.ndarray, "draw q"],
    start: Float[np.ndarray, "draw cell"] | None = None,
) -> Solution:
    """The best levels for the given exponents, one set per row.

    Args:
        problem: cells and weights.
        theta: what is searched, in the order of `log_columns`.
        start: means to start the iteration from; the targets by default.
    """
    log_bias, log_noise = log_columns(problem, theta)
    bias_scale = np.max(log_bias, axis=-1, keepdims=True)
    noise_scale = np.max(log_noise, axis=-1, keepdims=True)
    columns = np.stack(
        [
            np.broadcast_to(problem.level, log_bias.shape),
            np.exp(log_bias - bias_scale),
            np.exp(log_noise - noise_scale),
        ],
        axis=1,
    )
    if problem.noise_model == GAUSSIAN:
        columns[:, 1:] *= -1
        levels = non_negative.solve(
            columns, problem.target, problem.weights, free_level=True
        )
        mean = (levels[:, None] @ columns)[:, 0]
    else:
        levels, mean = _gamma(columns, problem, start)
    weighted = np.sqrt(problem.weights) * residuals(problem, mean)
    with np.errstate(divide="ignore"):
        return Solution(
            level=levels[:, 0],
            log_bias=np.log(levels[:, 1]) - bias_scale[:, 0],
            log_noise=np.log(levels[:, 2]) - noise_scale[:, 0],
            mean=mean,
            bias=np.abs(levels[:, 1:2] * columns[:, 1]),
            noise=np.abs(levels[:, 2:] * columns[:, 2]),
            residuals=weighted,
            deviance=np.sum(weighted**2, axis=-1),
        )


def jacobian(
    problem: Problem, theta: Float[np.ndarray, "draw q"], solution: Solution
) -> Float[np.ndarray, "draw cell q"]:
    """Derivatives of the weighted residuals, levels following (Kaufman 1975).

    Levels at their optimum do not change the deviance to first order, so the gradient
    is that at fixed levels, exactly; what moving levels could mend is projected out of
    the columns, which makes the Gauss–Newton step that of the projected problem.

    Args:
        problem: cells and weights.
        theta: what is searched.
        solution: its levels.
    """
    sign = -1.0 if problem.noise_model == GAUSSIAN else 1.0
    slope = (np.sqrt(problem.weights) * residual_slopes(problem, solution.mean))[
        ..., None
    ]
    moved = slope * theta_slopes(
        problem, theta, sign * solution.bias, sign * solution.noise
    )
    level = problem.level * (solution.level != 0)[:, None]
    active = np.stack([level, solution.bias, solution.noise], axis=-1)
    return _without(moved, slope * active)


def residual_slopes(problem: Problem, mean: np.ndarray) -> np.ndarray:
    """Derivative of each residual with respect to its mean."""
    if problem.noise_model == GAUSSIAN:
        return np.full_like(mean, -1.0)
    ratio = problem.target / mean
    root = residuals(problem, mean)
    near = np.abs(root) < 1e-6
    return -np.where(near, 1.0, (ratio - 1) / np.where(near, 1.0, root)) / mean


def _without(moved: np.ndarray, active: np.ndarray) -> np.ndarray:
    """What is left of columns after projection on the active ones."""
    scale = np.sqrt(np.sum(active**2, axis=1, keepdims=True)) + 1e-300
    unit = active / scale
    transposed = np.swapaxes(unit, 1, 2)
    normal = transposed @ unit
    normal[:, np.arange(3), np.arange(3)] += 1e-9
    return moved - unit @ np.linalg.solve(normal, transposed @ moved)


def residuals(
    problem: Problem, mean: Float[np.ndarray, "draw cell"]
) -> Float[np.ndarray, "draw cell"]:
    """Signed roots of each cell's deviance, without weights.

    Gaussian: y − m. Gamma: of 2·[y/m − 1 − log(y/m)], near (y − m)/m.
    """
    if problem.noise_model == GAUSSIAN:
        return problem.target - mean
    ratio = problem.target / mean
    deviance = 2 * np.maximum(ratio - 1 - np.log(ratio), 0.0)
    return np.sign(ratio - 1) * np.sqrt(deviance)


def _gamma(
    columns: np.ndarray, problem: Problem, start: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Iterated least squares with weights 1/mean²."""
    smallest = TINY * np.min(problem.target)
    mean = np.broadcast_to(problem.target, problem.weights.shape)
    mean = mean if start is None else start
    levels = np.zeros((len(mean), 3))
    for _ in range(MAX_ITERATIONS):
        weights = problem.weights / mean**2
        levels = non_negative.solve(columns, problem.target, weights, free_level=False)
        new = np.maximum((levels[:, None] @ columns)[:, 0], smallest)
        change = np.max(np.abs(new / mean - 1))
        mean = new
        if change < 1e-5:
            break
    return levels, mean
