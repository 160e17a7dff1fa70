"""Both stages, their bootstrap over configurations, and the result as data.

Stage 1 maps knobs to DDR, stage 2 fits the law to the DDR that the map *predicts*. The
measured DDR of a run is noisy and shares its luck with the run's score, so a regression
on it is attenuated; the knobs are instruments, and a forecast has nothing else anyway.

The bootstrap draws weights for whole configurations (all budgets and seeds together):
exponential weights, the Bayesian bootstrap, under which no draw loses a knob level, as
resampling with replacement would. Their variance is raised by C/(C − k) for the k map
coefficients that C configurations have to pay for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory import cells as cells_module
from theory.calibration import rows
from theory.cells import MIN_BUDGETS, Cells
from theory.fit import identification, law_fit, map_fit, projection
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.options import MEASURED, Options
from theory.fit.projection import Problem
from theory.fit.spread import Sds, Spread
from theory.fit.status import FAILED, Estimate, NotConverged, Status
from theory.forecast import LAW_PARAMETERS, LIMIT, Model, Parameters
from theory.table import RunTable


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A two-stage fit.

    Attributes:
        options: what was asked.
        cells: the data.
        model: its form.
        point: the estimate.
        draws: the bootstrap.
        estimates: parameter name → estimate with its 95 % set and status.
        covariance: of `parameter_names`, over draws.
        status: of the whole fit.
        map_fit: stage 1.
        law_fit: stage 2.
        bootstrap_weights: weight of each cell in each draw.
        profile: the profile of the source; empty for the free law.
    """

    options: Options
    cells: Cells
    model: Model
    point: Parameters
    draws: Parameters
    estimates: Mapping[str, Estimate]
    covariance: Float[np.ndarray, "k k"]
    status: Status
    map_fit: MapFit
    law_fit: LawFit
    bootstrap_weights: Float[np.ndarray, "draw cell"]
    profile: identification.Profile

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names along the covariance: map, law, asymptote."""
        names = self.model.ddr_map.coefficient_names
        return (*names, *LAW_PARAMETERS[self.model.family], "asymptote")


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
    _check_gaps(cells, options)
    result = fit_cells(cells, options)
    if throw and result.status in FAILED:
        raise NotConverged(result.status)
    return result


def fit_cells(cells: Cells, options: Options) -> Fit:
    """Fit map and law to cells. Raises NotConverged where stage 1 has no answer."""
    stage_one = map_fit.fit_map(cells)
    reliability, problem, stage_two = _estimate(cells, options, stage_one)
    weights = bootstrap_weights(cells, stage_one, options)
    drawn_one = map_fit.refit(
        stage_one.ddr_map, cells, weights, start=stage_one.coefficients[0]
    )
    drawn_two = law_fit.fit_law(
        _problem(cells, options, drawn_one, weights * reliability),
        start=stage_two.theta[0],
    )
    model = Model(
        ddr_map=stage_one.ddr_map,
        family=options.family,
        law_ddr=options.law_ddr,
        asymptote="free" if options.asymptote is None else "known",
    )
    spread = Spread(cells, options, stage_one, stage_two)
    ones = np.ones((1, len(cells)))
    point = _parameters(stage_one, stage_two, options, spread.sds(ones))
    draws = _parameters(drawn_one, drawn_two, options, spread.sds(weights))
    settled = drawn_one.converged & drawn_two.converged
    draws = rows(draws, settled)
    profile = identification.profile(problem, stage_two)
    return Fit(
        options=options,
        cells=cells,
        model=model,
        point=point,
        draws=draws,
        estimates=identification.estimates(model, point, draws, profile),
        covariance=_covariance(draws),
        status=_status(stage_one, stage_two, settled),
        map_fit=stage_one,
        law_fit=stage_two,
        bootstrap_weights=weights,
        profile=profile,
    )


def _estimate(
    cells: Cells, options: Options, stage_one: MapFit
) -> tuple[np.ndarray, Problem, LawFit]:
    """Stage 2 with equal weights, then with the reliability that this shows."""
    weights = np.ones((1, len(cells)))
    for _ in range(2):
        problem = _problem(cells, options, stage_one, weights)
        stage_two = law_fit.fit_law(problem)
        last, weights = (
            weights,
            Spread(cells, options, stage_one, stage_two).reliability(),
        )
    return last, problem, stage_two


def bootstrap_weights(
    cells: Cells, stage_one: MapFit, options: Options
) -> Float[np.ndarray, "draw cell"]:
    """Weights per draw and cell: one random weight per configuration, mean one."""
    configs, index = np.unique(cells.config, return_inverse=True)
    count, k = len(configs), 1 + len(stage_one.ddr_map.terms)
    shape = max(count - k, 1) / count
    rng = np.random.default_rng(options.seed)
    drawn = rng.gamma(shape, 1 / shape, size=(options.draws, count))
    drawn /= np.mean(drawn, axis=-1, keepdims=True)
    return drawn[:, index]


def _check_gaps(cells: Cells, options: Options) -> None:
    if options.asymptote is None:
        return
    above = cells.score >= options.asymptote
    if np.any(above):
        raise cells_module.TableError(
            f"a mean score of {cells.score[above][0]:.6g} is not below the asymptote "
            f"{options.asymptote:.6g}; give the true optimum, or --asymptote free"
        )


def _problem(
    cells: Cells, options: Options, stage_one: MapFit, weights: np.ndarray
) -> Problem:
    if options.regressor == MEASURED:
        log_ddr = np.broadcast_to(np.log(cells.ddr), weights.shape)
    elif options.law_ddr == LIMIT:
        log_ddr = stage_one.ddr_map.log_limit(stage_one.coefficients, cells.knobs)
    else:
        log_ddr = stage_one.ddr_map.log_ddr(
            stage_one.coefficients, cells.transitions, cells.knobs
        )
    return Problem(
        target=options.target(cells),
        log_budget=np.log(cells.transitions),
        log_ddr=log_ddr,
        weights=weights,
        noise_model=projection.GAUSSIAN
        if options.asymptote is None
        else projection.GAMMA,
        family=options.family,
    )


def _parameters(
    stage_one: MapFit, stage_two: LawFit, options: Options, sds: Sds
) -> Parameters:
    known = options.asymptote is not None
    level = stage_two.solution.level
    return Parameters(
        ddr_map=stage_one.coefficients,
        law=stage_two.parameters(options.family, known=known),
        asymptote=np.full_like(level, options.asymptote) if known else level,
        config_sd=sds.config,
        seed_sd=sds.seed,
        ddr_sd=sds.ddr,
    )


def _covariance(draws: Parameters) -> np.ndarray:
    values = np.concatenate(
        [draws.ddr_map, draws.law, draws.asymptote[:, None]], axis=-1
    )
    return np.cov(values, rowvar=False)


def _status(stage_one: MapFit, stage_two: LawFit, settled: np.ndarray) -> Status:
    done = stage_one.converged[0] and stage_two.converged[0]
    enough = np.mean(settled) >= 0.9
    return Status.CONVERGED if done and enough else Status.NOT_CONVERGED
