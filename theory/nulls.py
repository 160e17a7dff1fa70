"""Null models: what a forecast of the law must beat.

Each is fitted to the same cells as the law, sees the same DDR map, and has a spread of
its own, so that its CRPS is fair: bootstrap over configurations for its coefficients,
its own residuals for configurations, the data's seed noise for seeds. With y the
outcome (log gap or score, see `theory.scores`) and x = log D∞:

- `constant_ddr`: y = c₀ + c₁·log B + c₂·x + c₃·x²: the best DDR does not move.
- `persistence`: y at a new budget is the curve over x at the nearest training budget.
- `moving_optimum`: a parabola in x per budget; its apex x*, y* on straight lines in
  log B, with the mean curvature.

Where a parabola bends the wrong way there is no apex, and the stated fallback holds:
`constant_ddr` drops x²; `moving_optimum` takes the best cell of that budget for the
apex, and no curvature from it (none at all if every budget fails).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from jaxtyping import Float

from theory import scores
from theory.cells import Cells
from theory.ddr_map import DdrMap, KnobValues, Values
from theory.fit.map_fit import weighted_least_squares
from theory.fit.two_stage import Fit
from theory.forecast import cell_noise


class Forecaster(Protocol):
    """Anything that forecasts scores from a budget and knobs."""

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""


@dataclass(frozen=True, kw_only=True)
class Training:
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
        return y if self.asymptote is None else self.asymptote - np.exp(y)

    def position(self, knobs: KnobValues) -> Float[np.ndarray, "cell"]:
        """Positions x of a forecast's cells."""
        return self.ddr_map.log_limit(self.coefficients, knobs)


def training(fit: Fit) -> Training:
    """The cells of a fit as the nulls see them."""
    cells, model = fit.cells, fit.model
    known = fit.options.asymptote
    coefficients = fit.point.ddr_map[0]
    drawn = fit.bootstrap_weights
    return Training(
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


@dataclass(frozen=True, kw_only=True)
class ConstantDdr:
    """See `constant_ddr`. `bent` tells whether x² was kept."""

    training: Training
    coefficients: Float[np.ndarray, "draw k"]
    residual_sd: float
    bent: bool

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        x = self.training.position(knobs)
        design = _plane(x, np.log(budget) + 0 * x, bent=self.bent)
        mean = self.coefficients[1:] @ design.T
        return self.training.scores(mean, self.residual_sd, budget, knobs, num_seeds)


def constant_ddr(data: Training) -> ConstantDdr:
    """Fit the null whose best DDR does not move with the budget."""
    for bent in (True, False):
        design = _plane(data.x, data.log_budget, bent=bent)
        coefficients = weighted_least_squares(design, data.y, data.weights)
        if not bent or data.sign * coefficients[0, -1] > 0:
            break
    residuals = data.y - design @ coefficients[0]
    return ConstantDdr(
        training=data,
        coefficients=coefficients,
        residual_sd=_sd(residuals, design.shape[1]),
        bent=bent,
    )


def _plane(x: np.ndarray, log_budget: np.ndarray, *, bent: bool) -> np.ndarray:
    columns = [np.ones_like(x), log_budget, x, x**2]
    return np.stack(columns if bent else columns[:3], axis=-1)


@dataclass(frozen=True, kw_only=True)
class Persistence:
    """See `persistence`.

    Attributes:
        curves: budget → (x, y), x increasing.
    """

    training: Training
    curves: Mapping[int, tuple[np.ndarray, np.ndarray]]
    residual_sd: float

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        x = self.training.position(knobs)
        budgets = np.broadcast_to(np.asarray(budget, float), x.shape)
        known = np.array(list(self.curves))
        nearest = np.argmin(np.abs(np.log(budgets[:, None] / known)), axis=-1)
        y = np.array(
            [
                np.interp(position, *self.curves[int(known[pick])])
                for position, pick in zip(x, nearest, strict=True)
            ]
        )
        mean = np.broadcast_to(y, (len(self.training.weights) - 1, len(y)))
        return self.training.scores(mean, self.residual_sd, budget, knobs, num_seeds)


def persistence(data: Training) -> Persistence:
    """Fit the null in which a new budget repeats the nearest one.

    Its spread is its own error in training: each budget forecast from the one below.
    """
    curves = {}
    for budget in np.unique(data.cells.budget):
        here = data.cells.budget == budget
        x, index = np.unique(data.x[here], return_inverse=True)
        curves[int(budget)] = (x, np.bincount(index, data.y[here]) / np.bincount(index))
    order = sorted(curves)
    errors = [
        curves[above][1] - np.interp(curves[above][0], *curves[below])
        for below, above in itertools.pairwise(order)
    ]
    return Persistence(
        training=data,
        curves={budget: curves[budget] for budget in order},
        residual_sd=_sd(np.concatenate(errors), 0),
    )


@dataclass(frozen=True, kw_only=True)
class MovingOptimum:
    """See `moving_optimum`.

    Attributes:
        place: coefficients of x* over (1, log B).
        height: coefficients of y* over (1, log B).
        curvature: mean curvature.
        fallbacks: budgets whose parabola bends the wrong way.
    """

    training: Training
    place: Float[np.ndarray, "draw two"]
    height: Float[np.ndarray, "draw two"]
    curvature: Float[np.ndarray, "draw"]
    residual_sd: float
    fallbacks: tuple[int, ...] = field(default=())

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        x = self.training.position(knobs)
        mean = self.mean(x, np.log(budget) + 0 * x)[1:]
        return self.training.scores(mean, self.residual_sd, budget, knobs, num_seeds)

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The outcome itself; the first row is the estimate."""
        line = np.stack([np.ones_like(log_budget), log_budget])
        return (
            self.height @ line + self.curvature[:, None] * (x - self.place @ line) ** 2
        )


def moving_optimum(data: Training) -> MovingOptimum:
    """Fit the null with an apex per budget and straight lines through the apexes."""
    budgets = np.unique(data.cells.budget)
    apexes = [_apex(data, data.cells.budget == budget) for budget in budgets]
    place, height, curvature = (
        np.stack(part, axis=-1) for part in zip(*apexes, strict=True)
    )
    log_budget = np.array(
        [np.mean(data.log_budget[data.cells.budget == budget]) for budget in budgets]
    )
    centred = np.stack([np.ones_like(log_budget), log_budget], axis=-1)
    projector = np.linalg.pinv(centred).T
    found = curvature != 0
    mean = np.sum(curvature, axis=-1) / np.maximum(np.sum(found, axis=-1), 1)
    model = MovingOptimum(
        training=data,
        place=place @ projector,
        height=height @ projector,
        curvature=mean,
        residual_sd=0.0,
        fallbacks=tuple(
            int(b) for b, ok in zip(budgets, found[0], strict=True) if not ok
        ),
    )
    residuals = data.y - model.mean(data.x, data.log_budget)[0]
    return MovingOptimum(**{**vars(model), "residual_sd": _sd(residuals, 5)})


def _apex(
    data: Training, here: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x*, y*, curvature) of one budget per row of weights; curvature 0 if none."""
    x, y, weights = data.x[here], data.y[here], data.weights[:, here]
    centre = np.mean(x)
    design = np.stack([np.ones_like(x), x - centre, (x - centre) ** 2], axis=-1)
    best = int(np.argmin(data.sign * y))
    if len(np.unique(x)) < 3:
        rows = len(weights)
        return np.full(rows, x[best]), np.full(rows, y[best]), np.zeros(rows)
    level, slope, bend = weighted_least_squares(design, y, weights).T
    convex = data.sign * bend > 0
    safe = np.where(convex, bend, 1.0)
    # An apex far outside the data is an extrapolation of noise: keep it within reach.
    reach = np.ptp(x)
    place = np.clip(-slope / (2 * safe), -reach, reach)
    height = level + slope * place + safe * place**2
    return (
        np.where(convex, centre + place, x[best]),
        np.where(convex, height, y[best]),
        np.where(convex, bend, 0.0),
    )


def _sd(residuals: np.ndarray, parameters: int) -> float:
    freedom = max(residuals.size - parameters, 1)
    return float(np.sqrt(np.sum(residuals**2) / freedom))


def fit_all(fit: Fit) -> Mapping[str, Forecaster]:
    """Every null, by name, fitted to the cells of a fit."""
    data = training(fit)
    return {
        "constant_ddr": constant_ddr(data),
        "persistence": persistence(data),
        "moving_optimum": moving_optimum(data),
    }
