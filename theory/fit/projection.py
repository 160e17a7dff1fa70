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

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

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
        noise: the noise part of the gap.
        residuals: signed deviance residuals, weights included.
        deviance: their sum of squares.
    """

    level: Float[np.ndarray, "draw"]
    log_bias: Float[np.ndarray, "draw"]
    log_noise: Float[np.ndarray, "draw"]
    mean: Float[np.ndarray, "draw cell"]
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
        levels = _non_negative(
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
            noise=np.abs(levels[:, 2:] * columns[:, 2]),
            residuals=weighted,
            deviance=np.sum(weighted**2, axis=-1),
        )


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
        levels = _non_negative(columns, problem.target, weights, free_level=False)
        new = np.maximum((levels[:, None] @ columns)[:, 0], smallest)
        change = np.max(np.abs(new / mean - 1))
        mean = new
        if change < 1e-5:
            break
    return levels, mean


def _non_negative(
    columns: np.ndarray, target: np.ndarray, weights: np.ndarray, *, free_level: bool
) -> np.ndarray:
    """Least squares with non-negative levels, exactly: try every set of active columns.

    With three columns there are seven sets; the best admissible one is the solution of
    the non-negative problem.
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
