"""Terms of the pace: does a run learn as fast as its DDR says?

Theory has one number, the outer step per sample, behind both the speed of learning and
the plateau: no terms. Terms are added (all knobs together or else one by one, then
products, then squares) only if they lower the left-out deviance, the mean over cells of
the deviance from a law that was fitted without the cell's configuration, by more than
`MIN_GAIN`.
"""

import dataclasses

import numpy as np

from theory.cells import Cells
from theory.fit import law_fit, projection
from theory.fit.map_fit import MapFit, curved_terms
from theory.fit.problem import Problem

MIN_GAIN = 0.1


def choose(
    problem: Problem, cells: Cells, stage_one: MapFit
) -> tuple[tuple[str, ...], Problem]:
    """The terms that earn their place, and the problem with them.

    Args:
        problem: one row of weights, without a pace.
        cells: the data.
        stage_one: the map, whose knobs are candidates.
    """
    terms: tuple[str, ...] = ()
    best = left_out_deviance(problem, cells)
    singles = (*cells.knobs, *curved_terms(cells))
    for added in (tuple(cells.knobs), *((term,) for term in singles)):
        if set(added) <= set(terms):
            continue
        candidate = with_terms(problem, (*terms, *added), cells, stage_one)
        deviance = left_out_deviance(candidate, cells)
        if deviance < (1 - MIN_GAIN) * best:
            terms, best, problem = (*terms, *added), deviance, candidate
    return terms, problem


def with_terms(
    problem: Problem, terms: tuple[str, ...], cells: Cells, stage_one: MapFit
) -> Problem:
    """The problem with a pace of these terms."""
    columns = stage_one.ddr_map.design(terms, cells.knobs)[:, 1:]
    return dataclasses.replace(problem, pace=columns)


def left_out_deviance(problem: Problem, cells: Cells) -> float:
    """Mean deviance of cells, each forecast without its configuration.

    Args:
        problem: one row of weights.
        cells: the data.
    """
    start = law_fit.fit_law(problem).theta[0]
    configs = np.unique(cells.config)
    kept = cells.config[None, :] != configs[:, None]
    rows = problem.rows(np.zeros(len(configs), dtype=int))
    rows = dataclasses.replace(rows, weights=rows.weights * kept)
    mean = law_fit.fit_law(rows, start=start).solution.mean
    return float(np.mean(projection.residuals(problem, mean)[~kept] ** 2))
