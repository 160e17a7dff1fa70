"""All parameters of the law searched at once, some of them held where they are told.

Where `theory.fit.law_fit` projects the levels out, this search keeps them as
coordinates (floor or J∞, log bias, log noise, then what is searched anyway), so that
any of them can be held: that is a profile.
"""

import numpy as np
from jaxtyping import Float

from theory.fit import law_columns, law_fit, levenberg, projection
from theory.fit.law_fit import LawFit
from theory.fit.problem import GAMMA, GAUSSIAN, SEARCHED, Problem

LEVELS = ("level", "bias", "noise")
FLOOR_OF_LOG = -60.0  # a log coefficient, relative to the scale of gaps, that is none
Bounds = tuple[Float[np.ndarray, "row p"], Float[np.ndarray, "row p"]]


def coordinates(family: str) -> tuple[str, ...]:
    """Names of the coordinates, before those of the pace."""
    return (*LEVELS, *SEARCHED[family])


def held_deviance(
    problem: Problem, fitted: LawFit, name: str, values: Float[np.ndarray, "grid"]
) -> Float[np.ndarray, "grid"]:
    """Least deviance with one parameter held at each of some values.

    Args:
        problem: one row of weights.
        fitted: its fit, where the search starts.
        name: "level", "bias", "noise", or what is searched.
        values: of the parameter, positive unless it is the level.
    """
    index = coordinates(problem.family).index(name)
    rows = problem.rows(np.zeros(len(values), dtype=int))
    start = np.tile(_vector(problem, fitted), (len(values), 1))
    lower, upper = _bounds(problem, start)
    held = values if name == "level" else np.log(values)
    start[:, index] = lower[:, index] = upper[:, index] = held
    return levenberg.minimise(
        _Residuals(rows), start, lower, upper, iterations=60, tolerance=1e-8
    )[1]


def typical(problem: Problem, fitted: LawFit, name: str) -> float:
    """Log of a level ("bias" or "noise") that would explain a typical cell alone."""
    bias, noise = law_columns.log_columns(problem, fitted.theta)
    column = bias if name == "bias" else noise
    return _log_scale(problem) - float(np.median(column[0]))


def _vector(problem: Problem, fitted: LawFit) -> np.ndarray:
    """The fit as one vector of coordinates."""
    solution = fitted.solution
    lowest = _log_scale(problem) + FLOOR_OF_LOG
    logs = np.maximum([solution.log_bias[0], solution.log_noise[0]], lowest)
    return np.concatenate([solution.level[:1], logs, fitted.theta[0]])


def _bounds(problem: Problem, start: np.ndarray) -> Bounds:
    lower, upper = np.full_like(start, -np.inf), np.full_like(start, np.inf)
    if problem.noise_model == GAMMA:
        lower[:, 0] = 0.0
    lower[:, 1:3] = _log_scale(problem) + FLOOR_OF_LOG
    lower[:, 3:], upper[:, 3:] = law_fit.search_range(problem)
    return lower, upper


def _log_scale(problem: Problem) -> float:
    return float(np.log(np.ptp(problem.target) + np.finfo(float).tiny))


class _Residuals:
    """Deviance residuals of the law, and their Jacobian in all coordinates."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, vector: np.ndarray, rows: np.ndarray) -> levenberg.Evaluation:
        problem, theta = self.problem.rows(rows), vector[:, 3:]
        sign = -1.0 if problem.noise_model == GAUSSIAN else 1.0
        highest = _log_scale(problem) - FLOOR_OF_LOG
        parts = [
            sign * np.exp(np.minimum(level[:, None] + column, highest))
            for level, column in zip(
                vector.T[1:3], law_columns.log_columns(problem, theta), strict=True
            )
        ]
        mean = vector[:, :1] * problem.level + parts[0] + parts[1]
        if problem.noise_model == GAMMA:
            mean = np.maximum(mean, projection.TINY * np.min(problem.target))
        root = np.sqrt(problem.weights)
        slope = root * projection.residual_slopes(problem, mean)
        moved = law_columns.theta_slopes(problem, theta, parts[0], parts[1])
        levels = np.stack([np.broadcast_to(problem.level, mean.shape), *parts], axis=-1)
        jacobian = slope[..., None] * np.concatenate([levels, moved], axis=-1)
        return root * projection.residuals(problem, mean), jacobian
