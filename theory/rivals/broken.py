"""A power law of the budget with one break, as a function of budget and DDR.

Of the broken neural scaling laws (Caballero et al. 2023) the one with a single break,
on the outcome y, a logarithm of the gap where the optimum is known:

    y = b + p·x − c₀·L − c₁·f·log(1 + exp((L − d − q·x)/f)),   L = log B, x = log D∞

−c₀ and −c₀ − c₁ are the slopes below and above the break, d + q·x its place and f its
width. For one DDR the form has six numbers (a, b, c₀, c₁, d, f), a being the optimum;
p and q let curve and break move with DDR. The joint law without a floor is the case
c₀ = s, c₁ = −s, f = 1/s. Where the optimum is free the same broken line is of the
score.

Not identified from the five or six budgets of a usual table: a break takes points on
both sides of it, for either slope and for its width. It is here to be scored on
held-out runs, not to be read. d, q and f are searched on a grid, the break inside the
budgets that were run; the rest is least squares, weighted in each draw of the
bootstrap.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.null_data import NullData
from theory.rivals.curve import Curve

PLACES, TILTS, WIDTHS = 9, (-1.0, -0.5, 0.0, 0.5, 1.0), (0.25, 0.5, 1.0, 2.0)
LINEAR, NUMBERS = 4, 6
RIDGE = 1e-9  # relative: keeps collinear columns solvable


@dataclass(frozen=True, kw_only=True)
class BrokenPowerLaw(Curve):
    """See the module.

    Attributes:
        origin: mean x and mean log B, which are subtracted.
        breaks: (d, q, f) per row, the first being the estimate.
        coefficients: (b, p, −c₀, −c₁) per row.
    """

    origin: tuple[float, float]
    breaks: Float[np.ndarray, "draw 3"]
    coefficients: Float[np.ndarray, "draw 4"]

    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The broken line at each x."""
        centre, middle = self.origin
        columns = _columns(x - centre, log_budget - middle, self.breaks)
        return np.sum(columns * self.coefficients[:, None, :], axis=-1)


def broken_power_law(data: NullData) -> BrokenPowerLaw:
    """Fit the law with one break."""
    centre, middle = float(np.mean(data.x)), float(np.mean(data.log_budget))
    x, log_budget = data.x - centre, data.log_budget - middle
    grid = _grid(log_budget)
    columns = _columns(x, log_budget, grid)
    coefficients, deviance = _solve(columns, data.y, data.weights)
    best = np.argmin(deviance, axis=-1)
    chosen = coefficients[np.arange(len(best)), best]
    fitted = BrokenPowerLaw(
        data=data,
        origin=(centre, middle),
        breaks=grid[best],
        coefficients=chosen,
    )
    return fitted.with_spread(NUMBERS)


def _grid(log_budget: np.ndarray) -> Float[np.ndarray, "grid 3"]:
    """Every (d, q, f) that is tried; d strictly inside the budgets."""
    inside = np.linspace(np.min(log_budget), np.max(log_budget), PLACES + 2)[1:-1]
    return np.array(list(itertools.product(inside, TILTS, WIDTHS)))


def _columns(
    x: np.ndarray, log_budget: np.ndarray, breaks: np.ndarray
) -> Float[np.ndarray, "grid cell 4"]:
    """1, x, L and the softened ramp, per row of breaks."""
    place, tilt, width = (part[:, None] for part in breaks.T)
    ramp = width * np.logaddexp(0.0, (log_budget - place - tilt * x) / width)
    flat = [np.broadcast_to(part, ramp.shape) for part in (1.0, x, log_budget)]
    return np.stack([*flat, ramp], axis=-1)


def _solve(
    columns: Float[np.ndarray, "grid cell 4"],
    y: Float[np.ndarray, "cell"],
    weights: Float[np.ndarray, "draw cell"],
) -> tuple[Float[np.ndarray, "draw grid 4"], Float[np.ndarray, "draw grid"]]:
    """Least squares per draw and grid point, by normal equations."""
    grid, cells, _ = columns.shape
    full = np.concatenate(
        [columns, np.broadcast_to(y[:, None], (grid, cells, 1))], axis=-1
    )
    products = np.einsum("gni,gnj->ngij", full, full).reshape(cells, -1)
    size = LINEAR + 1
    moments = (weights @ products).reshape(-1, grid, size, size)
    normal, right = moments[..., :LINEAR, :LINEAR], moments[..., :LINEAR, LINEAR]
    scale = np.trace(normal, axis1=-2, axis2=-1)[..., None, None]
    normal = normal + RIDGE * scale * np.eye(LINEAR)
    solution = np.linalg.solve(normal, right[..., None])[..., 0]
    explained = np.sum(solution * right, axis=-1)
    return solution, moments[..., LINEAR, LINEAR] - explained
