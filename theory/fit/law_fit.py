"""Stage 2: the search over exponents, around the projection of the levels.

Levenberg–Marquardt on deviance residuals, from several starts for an estimate and from
the estimate for its bootstrap draws, all of them side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.fit import levenberg, projection
from theory.fit.problem import SEARCHED, Problem
from theory.fit.projection import Solution

SOURCE_RANGE = {"joint": (0.1, 12.0), "saturating": (0.1, 50.0)}
FREE_RANGE = ((0.02, 0.02, 0.05), (12.0, 8.0, 3.0))
STARTS: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "joint": ((0.5,), (2.0,), (6.0,)),
    "free": ((1.0, 0.5, 0.5), (3.0, 1.5, 0.5), (0.3, 0.15, 0.5), (6.0, 3.0, 0.4)),
    "saturating": ((1.0, 1.0), (1.0, 10.0), (10.0, 1.0), (10.0, 10.0), (100.0, 3.0)),
}
# The rate is searched in units of 1/z at the geometric mean of the cells' z.
RATE_RANGE = (1e-3, 1e4)
PACE_RANGE = (-5.0, 5.0)
CHUNK = 250  # rows solved together: few enough for the processor's cache


@dataclass(frozen=True, kw_only=True)
class LawFit:
    """Fitted exponents and levels, one row per row of weights.

    Attributes:
        theta: what was searched, in the order of `law_columns.log_columns`.
        solution: the levels.
        converged: per row.
    """

    theta: Float[np.ndarray, "draw q"]
    solution: Solution
    converged: Bool[np.ndarray, "draw"]

    def parameters(self, family: str, *, known: bool) -> Float[np.ndarray, "draw p"]:
        """The law's parameters in the order of `theory.forecast.LAW_PARAMETERS`.

        Args:
            family: of the law.
            known: whether the optimum is known; if not the floor is 0 (a floor and a
                free asymptote cannot be told apart).
        """
        level = self.solution.level if known else np.zeros_like(self.solution.level)
        levels = [
            level,
            np.exp(self.solution.log_bias),
            np.exp(self.solution.log_noise),
        ]
        searched = self.theta[:, : len(SEARCHED[family])]
        return np.stack([*levels, *np.exp(searched).T], axis=-1)

    def pace(self, family: str) -> Float[np.ndarray, "draw r"]:
        """Exponents of the pace."""
        return self.theta[:, len(SEARCHED[family]) :]


def fit_law(problem: Problem, start: Float[np.ndarray, "q"] | None = None) -> LawFit:
    """Fit the law, once per row of weights.

    Args:
        problem: cells, weights, family and noise model.
        start: where to start; several places by default.
    """
    theta, converged = [], []
    for first in range(0, len(problem.weights), CHUNK):
        rows = np.arange(first, min(first + CHUNK, len(problem.weights)))
        part = problem.rows(rows)
        found = _search(part, start, *search_range(part))
        theta.append(found[0])
        converged.append(found[1])
    joined = np.concatenate(theta)
    return LawFit(
        theta=joined,
        solution=projection.solve(problem, joined),
        converged=np.concatenate(converged),
    )


def source_grid(family: str, points: int) -> Float[np.ndarray, "grid"]:
    """Values of s, evenly spaced in log s over the searched range."""
    return np.geomspace(*SOURCE_RANGE[family], points)


def search_range(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest values of what is searched."""
    if problem.family == "free":
        law = np.log(FREE_RANGE)
    else:
        law = np.log(SOURCE_RANGE[problem.family])[:, None]
    if problem.family == "saturating":
        rate = np.log(RATE_RANGE) + _log_rate_unit(problem)
        law = np.concatenate([rate[:, None], law], axis=-1)
    pace = np.repeat(np.array(PACE_RANGE)[:, None], problem.pace.shape[1], axis=-1)
    lower, upper = np.concatenate([law, pace], axis=-1)
    return lower, upper


def profile_deviance(
    problem: Problem, fitted: LawFit, source: Float[np.ndarray, "grid"]
) -> Float[np.ndarray, "grid"]:
    """Least deviance for each value of the source.

    Args:
        problem: one row of weights; joint or saturating.
        fitted: its fit, where the search for the rate starts.
        source: values of s.
    """
    repeated = problem.rows(np.zeros(len(source), dtype=int))
    lower, upper = (np.tile(bound, (len(source), 1)) for bound in search_range(problem))
    index = SEARCHED[problem.family].index("source")
    lower[:, index] = upper[:, index] = np.log(source)
    theta, _ = _search(repeated, fitted.theta[0], lower, upper)
    return projection.solve(repeated, theta).deviance


def _search(
    problem: Problem, start: np.ndarray | None, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg–Marquardt from one start or several; the best per row."""
    starts = np.stack(_starts(problem) if start is None else [start])
    count = len(problem.weights)
    row = np.tile(np.arange(count), len(starts))
    bounds = (np.broadcast_to(b, (count, starts.shape[1]))[row] for b in (lower, upper))
    theta, cost, settled = levenberg.minimise(
        _Residuals(problem.rows(row)),
        np.repeat(starts, count, axis=0),
        *bounds,
        iterations=40,
        tolerance=1e-7,
    )
    pick = np.argmin(cost.reshape(len(starts), count), axis=0) * count
    pick = pick + np.arange(count)
    return theta[pick], settled[pick]


def _starts(problem: Problem) -> list[np.ndarray]:
    """Places of the law's own parameters to start from, all at pace 0."""
    unit = np.zeros(len(SEARCHED[problem.family]))
    unit[0] = _log_rate_unit(problem) if problem.family == "saturating" else 0.0
    pace = np.zeros(problem.pace.shape[1])
    return [np.append(np.log(s) + unit, pace) for s in STARTS[problem.family]]


def _log_rate_unit(problem: Problem) -> float:
    return -float(np.mean(problem.log_budget - problem.log_ddr[0] / 2))


class _Residuals:
    """Deviance residuals of the projected problem, and their Jacobian."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.mean = np.tile(problem.target, (len(problem.weights), 1))

    def __call__(self, theta: np.ndarray, rows: np.ndarray) -> levenberg.Evaluation:
        part = self.problem.rows(rows)
        solution = projection.solve(part, theta, self.mean[rows])
        self.mean[rows] = solution.mean
        return solution.residuals, projection.jacobian(part, theta, solution)
