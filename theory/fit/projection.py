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
from jaxtyping import Float, Int

from theory.fit import non_negative

SEARCHED = {
    "joint": ("source",),
    "free": ("budget_exponent", "ddr_exponent", "noise_exponent"),
    "saturating": ("rate", "source"),
}
GAMMA, GAUSSIAN = "gamma", "gaussian"
MAX_ITERATIONS = 12
# Without a floor under the means, a cell that no column reaches would weigh infinitely.
TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Cells to fit, for many weightings at once.

    Attributes:
        target: gap (gamma) or score (gaussian), in score units.
        log_budget: log B, B in transitions.
        log_ddr: log D per row, D in transitions per nat.
        weights: weight of each cell in each row, zero for absent ones.
        pace: columns of the pace, see `theory.forecast`; no columns for none.
        noise_model: "gamma" or "gaussian".
        family: "joint", "free" or "saturating".
    """

    target: Float[np.ndarray, "cell"]
    log_budget: Float[np.ndarray, "cell"]
    log_ddr: Float[np.ndarray, "draw cell"]
    weights: Float[np.ndarray, "draw cell"]
    pace: Float[np.ndarray, "cell r"]
    noise_model: str
    family: str

    def rows(self, chosen: Int[np.ndarray, "chosen"]) -> "Problem":
        """The chosen rows of weights."""
        return Problem(
            target=self.target,
            log_budget=self.log_budget,
            log_ddr=self.log_ddr[chosen],
            weights=self.weights[chosen],
            pace=self.pace,
            noise_model=self.noise_model,
            family=self.family,
        )


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
            np.ones_like(log_bias),
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
    slope = (np.sqrt(problem.weights) * _residual_slopes(problem, solution.mean))[
        ..., None
    ]
    bias, noise = _log_slopes(problem, theta)
    moved = bias * solution.bias[..., None]
    if noise is not None:
        moved += noise * solution.noise[..., None]
    moved *= sign * slope
    active = np.stack([np.ones_like(solution.mean), solution.bias, solution.noise], -1)
    active[..., 0] *= (solution.level != 0)[:, None]
    return _without(moved, slope * active)


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


def _residual_slopes(problem: Problem, mean: np.ndarray) -> np.ndarray:
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
