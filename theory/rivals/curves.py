"""Rivals that know no law: curves over log DDR, budget by budget.

With y the outcome (log gap or score, see `theory.scores`) and x = log D∞:

- `constant`: y = c₀, whatever is done.
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

import numpy as np
from jaxtyping import Float

from theory.fit.map_fit import weighted_least_squares
from theory.null_data import NullData
from theory.rivals.curve import Curve, residual_sd

BENT = 4  # coefficients of the curve of `constant_ddr`, x² being the last


@dataclass(frozen=True, kw_only=True)
class Constant(Curve):
    """See `constant`."""

    level: Float[np.ndarray, "draw"]

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The level, everywhere."""
        return np.repeat(self.level[:, None], len(x), axis=-1)


def constant(data: NullData) -> Constant:
    """Fit the null in which neither budget nor knobs matter."""
    level = weighted_least_squares(np.ones((len(data.y), 1)), data.y, data.weights)
    return Constant(data=data, level=level[:, 0]).with_spread(1)


@dataclass(frozen=True, kw_only=True)
class ConstantDdr(Curve):
    """See `constant_ddr`; three coefficients where x² was dropped."""

    coefficients: Float[np.ndarray, "draw k"]

    @property
    def bent(self) -> bool:
        """Whether x² was kept."""
        return self.coefficients.shape[1] == BENT

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The parabola, or the plane."""
        columns = _columns(x, log_budget)[:, : self.coefficients.shape[1]]
        return self.coefficients @ columns.T


def constant_ddr(data: NullData) -> ConstantDdr:
    """Fit the null whose best DDR does not move with the budget."""
    design = _columns(data.x, data.log_budget)
    coefficients = weighted_least_squares(design, data.y, data.weights)
    if data.sign * coefficients[0, -1] <= 0:
        coefficients = weighted_least_squares(design[:, :-1], data.y, data.weights)
    fitted = ConstantDdr(data=data, coefficients=coefficients)
    return fitted.with_spread(coefficients.shape[1])


def _columns(x: np.ndarray, log_budget: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(x), log_budget, x, x**2], axis=-1)


@dataclass(frozen=True, kw_only=True)
class Persistence(Curve):
    """See `persistence`.

    Attributes:
        curves: budget → (x, y), x increasing.
    """

    curves: Mapping[int, tuple[np.ndarray, np.ndarray]]

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The nearest budget's curve; no draw differs from the estimate."""
        known = np.array(list(self.curves))
        nearest = np.argmin(np.abs(log_budget[:, None] - np.log(known)), axis=-1)
        y = np.array(
            [
                np.interp(position, *self.curves[int(known[pick])])
                for position, pick in zip(x, nearest, strict=True)
            ]
        )
        return np.broadcast_to(y, (len(self.data.weights), len(y)))


def persistence(data: NullData) -> Persistence:
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
        data=data,
        curves={budget: curves[budget] for budget in order},
        residual_sd=residual_sd(np.concatenate(errors), 0),
    )


@dataclass(frozen=True, kw_only=True)
class MovingOptimum(Curve):
    """See `moving_optimum`.

    Attributes:
        place: coefficients of x* over (1, log B).
        height: coefficients of y* over (1, log B).
        curvature: mean curvature.
        fallbacks: budgets whose parabola bends the wrong way.
    """

    place: Float[np.ndarray, "draw two"]
    height: Float[np.ndarray, "draw two"]
    curvature: Float[np.ndarray, "draw"]
    fallbacks: tuple[int, ...] = field(default=())

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The parabola around the apex of that budget."""
        line = np.stack([np.ones_like(log_budget), log_budget])
        return (
            self.height @ line + self.curvature[:, None] * (x - self.place @ line) ** 2
        )


def moving_optimum(data: NullData) -> MovingOptimum:
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
    fitted = MovingOptimum(
        data=data,
        place=place @ projector,
        height=height @ projector,
        curvature=mean,
        fallbacks=tuple(
            int(b) for b, ok in zip(budgets, found[0], strict=True) if not ok
        ),
    )
    return fitted.with_spread(5)


def _apex(
    data: NullData, here: np.ndarray
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
