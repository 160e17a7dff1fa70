"""What null models are fitted to, and what a forecaster is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from theory import scores
from theory.cells import Cells
from theory.ddr_map import DdrMap, KnobValues, Values
from theory.fit.result import Fit
from theory.forecast import cell_noise

FURTHEST = 15.0  # of log gap from those of the data


@runtime_checkable
class Forecaster(Protocol):
    """Anything that forecasts scores from a budget and knobs."""

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""


@dataclass(frozen=True, kw_only=True)
class NullData:
    """What every null is fitted to.

    Attributes:
        x: log D∞ of the map.
        log_budget: log of transitions.
        y: outcome.
        weights: bootstrap weights; the first row is all ones.
        cells: the cells.
        ddr_map: knobs → DDR.
        coefficients: of the map.
        asymptote: the known optimum, or None.
        seed_sd: of one seed, in units of y.
    """

    x: Float[np.ndarray, "cell"]
    log_budget: Float[np.ndarray, "cell"]
    y: Float[np.ndarray, "cell"]
    weights: Float[np.ndarray, "draw cell"]
    cells: Cells
    ddr_map: DdrMap
    coefficients: Float[np.ndarray, "k"]
    asymptote: float | None
    seed_sd: float

    @property
    def sign(self) -> float:
        """+1 if a small outcome is good (log gap), −1 if a large one is (score)."""
        return -1.0 if self.asymptote is None else 1.0

    def scores(
        self,
        mean: Float[np.ndarray, "draw cell"],
        residual_sd: float,
        budget: Values,
        knobs: KnobValues,
        num_seeds: int,
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the score around draws of the mean outcome.

        `residual_sd` is of cell means; the part of it that seeds explain is replaced
        by that of `num_seeds` seeds.
        """
        trained = float(np.mean(self.seed_sd**2 / self.cells.num_seeds))
        variance = max(residual_sd**2 - trained, 0.0) + self.seed_sd**2 / num_seeds
        noise = cell_noise(self.ddr_map, budget, knobs, mean.shape)[0]
        y = mean + np.sqrt(variance) * noise
        if self.asymptote is None:
            return y
        # A wild extrapolation is wrong enough as it is; a gap that overflows, or that
        # rounding swallows, could not be scored.
        y = np.clip(y, np.min(self.y) - FURTHEST, np.max(self.y) + FURTHEST)
        return self.asymptote - np.exp(y)

    def position(self, knobs: KnobValues) -> Float[np.ndarray, "cell"]:
        """Positions x of a forecast's cells."""
        return self.ddr_map.log_limit(self.coefficients, knobs)


def null_data(fit: Fit) -> NullData:
    """The cells of a fit as the nulls see them."""
    cells, model = fit.cells, fit.model
    known = fit.options.asymptote
    coefficients = fit.point.ddr_map[0]
    drawn = fit.bootstrap_weights
    return NullData(
        x=model.ddr_map.log_limit(coefficients, cells.knobs),
        log_budget=np.log(cells.transitions),
        y=scores.outcome(cells.score, known),
        weights=np.concatenate([np.ones((1, len(cells))), drawn]),
        cells=cells,
        ddr_map=model.ddr_map,
        coefficients=coefficients,
        asymptote=known,
        seed_sd=_seed_sd(cells, known),
    )


def _seed_sd(cells: Cells, asymptote: float | None) -> float:
    """Sd of the outcome of one seed, the same for all cells; 0 without repeats."""
    several = cells.num_seeds > 1
    if not np.any(several):
        return 0.0
    scale = np.ones(len(cells)) if asymptote is None else asymptote - cells.score
    return float(np.sqrt(np.mean((cells.seed_variance / scale**2)[several])))


def draws_of(
    forecast: Callable[..., Float[np.ndarray, "draw cell"]], cells: Cells
) -> Float[np.ndarray, "draw cell"]:
    """Draws of the score of each cell, for its own number of seeds.

    Args:
        forecast: (budget, knobs, seeds) → draws, as a `Forecaster` has it.
        cells: whose transitions and knobs are taken.
    """
    result = np.empty((0, len(cells)))
    for seeds in np.unique(cells.num_seeds):
        here = cells.num_seeds == seeds
        knobs = {knob: values[here] for knob, values in cells.knobs.items()}
        draws = forecast(cells.transitions[here], knobs, int(seeds))
        if not len(result):
            result = np.empty((len(draws), len(cells)))
        result[:, here] = draws
    return result
