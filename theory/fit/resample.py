"""Both stages fitted again with other weights of whole configurations.

The bootstrap draws one exponential weight per configuration (all budgets and seeds
together): the Bayesian bootstrap, under which no draw loses a knob level, as resampling
with replacement would. Their variance is raised by C/(C − k), for the k map
coefficients that C configurations have to pay for, and by (t/z)², so that percentiles
of few configurations are as wide as Student's. The jackknife leaves out one
configuration at a time.
"""

import dataclasses

import numpy as np
import scipy.stats
from jaxtyping import Float

from theory.cells import Cells
from theory.fit import law_fit, map_fit
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.options import MEASURED, Options
from theory.fit.problem import Problem
from theory.forecast import LIMIT

Weights = Float[np.ndarray, "draw cell"]


def refit(
    cells: Cells,
    options: Options,
    stage_one: MapFit,
    problem: Problem,
    stage_two: LawFit,
    weights: Weights,
) -> tuple[MapFit, LawFit]:
    """Both stages per row of weights, starting from their estimates.

    Args:
        cells: the data.
        options: of the fit.
        stage_one: the map.
        problem: stage 2 with one row of weights, the reliability of each cell.
        stage_two: its fit.
        weights: of cells, on top of their reliability.
    """
    one = map_fit.refit(
        stage_one.ddr_map, cells, weights, start=stage_one.coefficients[0]
    )
    again = dataclasses.replace(
        problem,
        log_ddr=log_ddr(cells, options, one),
        weights=weights * problem.weights,
    )
    return one, law_fit.fit_law(again, start=stage_two.theta[0])


def log_ddr(
    cells: Cells, options: Options, stage_one: MapFit
) -> Float[np.ndarray, "draw cell"]:
    """What the law takes for log DDR, per row of the map's coefficients."""
    coefficients = stage_one.coefficients
    if options.regressor == MEASURED:
        return np.tile(np.log(cells.ddr), (len(coefficients), 1))
    if options.law_ddr == LIMIT:
        return stage_one.ddr_map.log_limit(coefficients, cells.knobs)
    return stage_one.ddr_map.log_ddr(coefficients, cells.transitions, cells.knobs)


def bootstrap_weights(cells: Cells, stage_one: MapFit, options: Options) -> Weights:
    """Weights per draw and cell: one random weight per configuration, mean one."""
    configs, index = np.unique(cells.config, return_inverse=True)
    count, k = len(configs), 1 + len(stage_one.ddr_map.terms)
    freedom = max(count - k, 1)
    student = scipy.stats.t.ppf(0.975, freedom) / scipy.stats.norm.ppf(0.975)
    shape = freedom / count / student**2
    rng = np.random.default_rng(options.seed)
    drawn = rng.gamma(shape, 1 / shape, size=(options.draws, count))
    drawn /= np.mean(drawn, axis=-1, keepdims=True)
    return drawn[:, index]


def without_each(cells: Cells) -> Weights:
    """One row per configuration, which weighs nothing in it."""
    configs = np.unique(cells.config)
    return (cells.config[None, :] != configs[:, None]).astype(float)
