"""Is there a floor, a gap that neither budget nor DDR removes?

With a known optimum theory has none, save for what an EWMA anchor leaves. A floor that
is fitted always, and cannot be negative, takes its share of every plateau: on the runs
of `lqr`, whose optimum is exact, it lowered the noise constant of the saturating law of
whole-run DDR from 14.2 to 10.9, and in tables simulated from fits to them by 15 to 30 %
(`theory.fit.simulate_refit`). So a floor is kept only if the data ask for it: if it
lowers the deviance by more than F₀.₉₀(1, n − p) dispersions, a test of 5 %, since half
of all estimates lie on the bound where there is none.
"""

import dataclasses

import numpy as np
import scipy.stats
from jaxtyping import Float

from theory.fit import law_fit
from theory.fit.law_fit import LawFit
from theory.fit.problem import GAUSSIAN, Problem

LEVEL = 0.90


def choose(problem: Problem, start: Float[np.ndarray, "q"]) -> tuple[Problem, LawFit]:
    """The problem with a floor or without, and its fit.

    Args:
        problem: one row of weights, with a floor; one with a free asymptote stays.
        start: where to start the search.
    """
    fitted = law_fit.fit_law(problem, start)
    if problem.noise_model == GAUSSIAN:
        return problem, fitted
    none = without(problem)
    plain = law_fit.fit_law(none, start)
    freedom = max(problem.target.size - 3 - len(fitted.theta[0]), 1)
    dispersion = fitted.solution.deviance[0] / freedom
    gain = plain.solution.deviance[0] - fitted.solution.deviance[0]
    asked_for = gain > scipy.stats.f.ppf(LEVEL, 1, freedom) * dispersion
    return (problem, fitted) if asked_for else (none, plain)


def without(problem: Problem) -> Problem:
    """The problem with a floor of 0."""
    return dataclasses.replace(problem, level=np.zeros_like(problem.level))
