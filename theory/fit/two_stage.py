"""Both stages, their bootstrap over configurations, and the result as data.

Stage 1 maps knobs to DDR, stage 2 fits the law to the DDR that the map *predicts*. The
measured DDR of a run is noisy and shares its luck with the run's score, so a regression
on it is attenuated; the knobs are instruments, and a forecast has nothing else anyway.

The bootstrap draws weights for whole configurations (all budgets and seeds together):
exponential weights, the Bayesian bootstrap, under which no draw loses a knob level, as
resampling with replacement would. Their variance is raised by C/(C − k), for the k map
coefficients that C configurations have to pay for, and by (t/z)², so that percentiles
of few configurations are as wide as Student's.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float

from theory import cells as cells_module
from theory.calibration import rows
from theory.cells import MIN_BUDGETS, Cells
from theory.fit import identification, law_fit, map_fit, pace, projection
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.options import FITTED, MEASURED, Options
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
        """Names along the covariance: map, pace, law, asymptote."""
        names = self.model.ddr_map.coefficient_names
        pace_names = (f"pace/{term}" for term in self.model.pace_terms)
        law_names = LAW_PARAMETERS[self.model.family]
        return (*names, *pace_names, *law_names, "asymptote")


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
    terms, problem, stage_two = _estimate(cells, options, stage_one)
    weights = bootstrap_weights(cells, stage_one, options)
    drawn_one = map_fit.refit(
        stage_one.ddr_map, cells, weights, start=stage_one.coefficients[0]
    )
    drawn_problem = dataclasses.replace(
        problem,
        log_ddr=_log_ddr(cells, options, drawn_one),
        weights=weights * problem.weights,
    )
    drawn_two = law_fit.fit_law(drawn_problem, start=stage_two.theta[0])
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
    draws = _parameters(drawn_one, drawn_two, options, spread.sds(weights))
    settled = drawn_one.converged & drawn_two.converged
    if np.any(settled):  # else all are shown, and the status says what they are
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
) -> tuple[tuple[str, ...], Problem, LawFit]:
    """Stage 2 with equal weights, then with the reliability that this shows."""
    problem = Problem(
        target=options.target(cells),
        log_budget=np.log(cells.transitions),
        log_ddr=_log_ddr(cells, options, stage_one),
        weights=np.ones((1, len(cells))),
        pace=np.zeros((len(cells), 0)),
        noise_model=projection.GAUSSIAN
        if options.asymptote is None
        else projection.GAMMA,
        family=options.family,
    )
    terms: tuple[str, ...] = ()
    if options.pace == FITTED:
        terms, problem = pace.choose(problem, cells, stage_one)
    first = Spread(cells, options, stage_one, law_fit.fit_law(problem))
    problem = dataclasses.replace(problem, weights=first.reliability())
    return terms, problem, law_fit.fit_law(problem)


def bootstrap_weights(
    cells: Cells, stage_one: MapFit, options: Options
) -> Float[np.ndarray, "draw cell"]:
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


def _check_gaps(cells: Cells, options: Options) -> None:
    if options.asymptote is None:
        return
    above = cells.score >= options.asymptote
    if np.any(above):
        raise cells_module.TableError(
            f"a mean score of {cells.score[above][0]:.6g} is not below the asymptote "
            f"{options.asymptote:.6g}; give the true optimum, or --asymptote free"
        )


def _log_ddr(cells: Cells, options: Options, stage_one: MapFit) -> np.ndarray:
    """What the law takes for log DDR, per row of the map's coefficients."""
    coefficients = stage_one.coefficients
    if options.regressor == MEASURED:
        return np.tile(np.log(cells.ddr), (len(coefficients), 1))
    if options.law_ddr == LIMIT:
        return stage_one.ddr_map.log_limit(coefficients, cells.knobs)
    return stage_one.ddr_map.log_ddr(coefficients, cells.transitions, cells.knobs)


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
