"""Simulate from a fit and fit again: does the estimator find what was put in?

A fit that is right about its own model has no bias there, and its intervals hold the
truth as often as they say. What it finds on runs is another question.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.cells import Cells
from theory.fit.named import named
from theory.fit.result import Fit
from theory.fit.status import NotConverged, Status
from theory.fit.two_stage import fit_cells
from theory.forecast import KNOWN


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How well one parameter was found again.

    Attributes:
        truth: what was put in.
        estimates: one per table; NaN where the profile was open.
        held: whether the table's 95 % set held the truth.
    """

    truth: float
    estimates: Float[np.ndarray, "table"]
    held: Bool[np.ndarray, "table"]

    @property
    def bias(self) -> float:
        """Mean estimate less the truth, in the parameter's unit."""
        return float(np.nanmean(self.estimates)) - self.truth

    @property
    def sd(self) -> float:
        """Standard deviation of the estimates."""
        return float(np.nanstd(self.estimates, ddof=1))

    @property
    def coverage(self) -> float:
        """Share of tables whose set held the truth."""
        return float(np.mean(self.held))


def refit_simulated(fit: Fit, count: int, seed: int = 0) -> Mapping[str, Recovery]:
    """Draw tables from a fit, fit each, and compare with what was put in.

    Terms of map and pace are chosen anew in each table; one that was not chosen is
    found to be 0, a table whose fit has no answer is left out.

    Args:
        fit: the truth, with its cells, scatter and options.
        count: number of tables.
        seed: of the random numbers.

    Returns:
        Parameter → its recovery.

    Raises:
        ValueError: fewer than two tables.
        NotConverged: fewer than two tables can be fitted.
    """
    if count < 2:
        raise ValueError(f"count is {count}; it must be at least 2.")
    rng = np.random.default_rng(seed)
    truth = {name: float(v[0]) for name, v in named(fit.model, fit.point).items()}
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in truth}
    for number in range(count):
        options = dataclasses.replace(fit.options, seed=number)
        try:
            again = fit_cells(simulate(fit, rng), options)
        except NotConverged:
            continue
        for name, value in truth.items():
            estimate = again.estimates.get(name)
            known = 0.0 if estimate is None else estimate.value
            held = value == 0 if estimate is None else estimate.interval.holds(value)
            found[name].append((np.nan if known is None else known, held))
    if min(map(len, found.values())) < 2:
        raise NotConverged(Status.NOT_CONVERGED, "Fewer than two simulated tables.")
    return {
        name: Recovery(
            truth=truth[name],
            estimates=np.array([value for value, _ in rows], dtype=float),
            held=np.array([held for _, held in rows], dtype=bool),
        )
        for name, rows in found.items()
    }


def simulate(fit: Fit, rng: np.random.Generator) -> Cells:
    """Cells as the fitted model would make them, at the same knobs and budgets.

    Deviations from the law are one per cell, from the map one per configuration; seeds
    scatter as the model says they do.

    Args:
        fit: the truth.
        rng: consumed.
    """
    cells, point = fit.cells, fit.point
    exact = fit.model.expected(point, cells.transitions, cells.knobs)
    variance = fit.model.seed_variance(point, cells.transitions, cells.knobs)[0]
    index = np.unique(cells.config, return_inverse=True)[1]
    deviation = point.ddr_sd[0] * rng.standard_normal(index.max() + 1)[index]
    of_mean = rng.standard_normal(len(cells)) / np.sqrt(cells.num_seeds)
    freedom = cells.num_seeds - 1
    within = rng.chisquare(np.maximum(freedom, 1)) / np.maximum(freedom, 1)
    within = np.where(freedom > 0, within, np.nan)
    config = point.config_sd[0] * rng.standard_normal(len(cells))
    if fit.model.asymptote == KNOWN:
        gap = exact.gap[0] * np.exp(config - point.config_sd[0] ** 2 / 2)
        # Gamma seeds: positive gaps of the right relative variance.
        shape = cells.num_seeds / np.maximum(variance, 1e-12)
        score = point.asymptote[0] - gap * rng.gamma(shape) / shape
        variance = variance * gap**2
    else:
        score = exact.score[0] + config + np.sqrt(variance) * of_mean
    return dataclasses.replace(
        cells,
        ddr=exact.ddr[0] * np.exp(deviation),
        score=score,
        seed_variance=variance * within,
    )
