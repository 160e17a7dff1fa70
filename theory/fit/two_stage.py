"""Both stages, their bootstrap over configurations, and the result as data.

Stage 1 maps knobs to DDR, stage 2 fits the law to the DDR that the map *predicts*. The
measured DDR of a run is noisy and shares its luck with the run's score, so a regression
on it is attenuated; the knobs are instruments, and a forecast has nothing else anyway.

Scatter comes from refits with other weights of configurations (`theory.fit.resample`),
intervals from the refits (`theory.fit.intervals`).
"""

import dataclasses

import numpy as np

from theory import cells as cells_module
from theory.calibration import rows
from theory.cells import MIN_BUDGETS, Cells
from theory.fit import (
    floor,
    law_fit,
    map_fit,
    pace,
    resample,
)
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.options import FITTED, Options
from theory.fit.problem import GAMMA, GAUSSIAN, Problem
from theory.fit.result import Fit
from theory.fit.spread import Sds, Spread
from theory.fit.status import FAILED, NotConverged, Status
from theory.forecast import Model, Parameters
from theory.table import RunTable


def fit(table: RunTable, options: Options, *, throw: bool = True) -> Fit:
    """Fit map and law to a run table.

    Args:
        table: training runs.
        options: what to fit.
        throw: raise if the fit has no answer; otherwise see `status`.

    Raises:
        TableError: the table cannot be fitted, see `theory.cells`.
        NotConverged: too few configurations, confounded knobs, or no minimum.
    """
    cells = cells_module.from_table(
        table,
        ddr_column=options.ddr_column,
        knobs=options.knobs,
        min_budgets=MIN_BUDGETS,
    )
    _check_configurations(cells)
    _check_gaps(cells, options)
    result = fit_cells(cells, options)
    if throw and result.status in FAILED:
        raise NotConverged(result.status)
    return result


def fit_cells(cells: Cells, options: Options) -> Fit:
    """Fit map and law to cells. Raises NotConverged where stage 1 has no answer."""
    stage_one = map_fit.fit_map(cells)
    terms, problem, stage_two = _estimate(cells, options, stage_one)
    model = Model(
        ddr_map=stage_one.ddr_map,
        family=options.family,
        law_ddr=options.law_ddr,
        asymptote="free" if options.asymptote is None else "known",
        pace_terms=terms,
    )
    spread = Spread(cells, options, stage_one, stage_two)
    ones = np.ones((1, len(cells)))
    point = _parameters(stage_one, stage_two, options, spread.sds(ones))
    fitted = (cells, options, stage_one, problem, stage_two)
    weights = resample.bootstrap_weights(cells, stage_one, options)
    without = resample.without_each(cells)
    # All refits side by side; the first are the draws.
    both = np.concatenate([weights, without])
    again = resample.refit(*fitted, both)
    everything = _parameters(*again, options, spread.sds(both))
    settled = again[0].converged & again[1].converged
    count = np.arange(len(both))
    drawn = settled & (count < len(weights))
    if not np.any(drawn):  # all are shown, and the status says what they are
        drawn = count < len(weights)
    draws, left_out = (rows(everything, c) for c in (drawn, count >= len(weights)))
    return Fit(
        options=options,
        cells=cells,
        model=model,
        point=point,
        draws=draws,
        left_out=left_out,
        covariance=_covariance(draws),
        status=_status(stage_one, stage_two, settled[: len(weights)]),
        map_fit=stage_one,
        law_fit=stage_two,
        problem=problem,
        bootstrap_weights=weights,
    )


def _estimate(
    cells: Cells, options: Options, stage_one: MapFit
) -> tuple[tuple[str, ...], Problem, LawFit]:
    """Stage 2 with equal weights, then with the reliability that this shows."""
    problem = Problem(
        target=options.target(cells),
        log_budget=np.log(cells.transitions),
        log_ddr=resample.log_ddr(cells, options, stage_one),
        weights=np.ones((1, len(cells))),
        pace=np.zeros((len(cells), 0)),
        level=np.ones(len(cells)),
        noise_model=GAUSSIAN if options.asymptote is None else GAMMA,
        family=options.family,
    )
    terms: tuple[str, ...] = ()
    if options.pace == FITTED:
        terms, problem = pace.choose(problem, cells, stage_one)
    first = law_fit.fit_law(problem)
    weights = Spread(cells, options, stage_one, first).reliability()
    problem = dataclasses.replace(problem, weights=weights)
    return terms, *floor.choose(problem, first.theta[0])


def _check_configurations(cells: Cells) -> None:
    if len(np.unique(cells.config)) < 2:
        raise cells_module.TableError(
            "the run table has a single configuration; a map from knobs to DDR needs "
            "several"
        )


def _check_gaps(cells: Cells, options: Options) -> None:
    if options.asymptote is None:
        return
    above = cells.score >= options.asymptote
    if np.any(above):
        raise cells_module.TableError(
            f"a mean score of {cells.score[above][0]:.6g} is not below the asymptote "
            f"{options.asymptote:.6g}; give the true optimum, or --asymptote free"
        )


def _parameters(
    stage_one: MapFit, stage_two: LawFit, options: Options, sds: Sds
) -> Parameters:
    known = options.asymptote is not None
    level = stage_two.solution.level
    return Parameters(
        ddr_map=stage_one.coefficients,
        pace=stage_two.pace(options.family),
        law=stage_two.parameters(options.family, known=known),
        asymptote=np.full_like(level, options.asymptote) if known else level,
        config_sd=sds.config,
        seed_sd=sds.seed,
        ddr_sd=sds.ddr,
    )


def _covariance(draws: Parameters) -> np.ndarray:
    values = np.concatenate(
        [draws.ddr_map, draws.pace, draws.law, draws.asymptote[:, None]], axis=-1
    )
    return np.cov(values, rowvar=False)


def _status(stage_one: MapFit, stage_two: LawFit, settled: np.ndarray) -> Status:
    done = stage_one.converged[0] and stage_two.converged[0]
    enough = np.mean(settled) >= 0.9
    return Status.CONVERGED if done and enough else Status.NOT_CONVERGED
