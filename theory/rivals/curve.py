"""A rival that is a curve over log DDR and log budget, with a spread of its own."""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from theory.ddr_map import KnobValues, Values
from theory.null_data import NullData

Fitted = TypeVar("Fitted", bound="Curve")


@dataclass(frozen=True, kw_only=True)
class Curve(ABC):
    """Mean outcome as a function of x = log D∞ and log B.

    Attributes:
        data: what it was fitted to.
        residual_sd: of cells around the estimate.
    """

    data: NullData
    residual_sd: float = 0.0

    @abstractmethod
    def mean(
        self, x: Float[np.ndarray, "cell"], log_budget: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """The outcome itself; the first row is the estimate, the others are draws."""

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        x = self.data.position(knobs)
        mean = self.mean(x, np.log(budget) + 0 * x)[1:]
        return self.data.scores(mean, self.residual_sd, budget, knobs, num_seeds)

    def residuals(self) -> Float[np.ndarray, "cell"]:
        """Of the cells it was fitted to, around the estimate."""
        return self.data.y - self.mean(self.data.x, self.data.log_budget)[0]

    def with_spread(self: Fitted, parameters: int) -> Fitted:
        """The same curve, its spread that of its residuals with so many parameters."""
        spread = residual_sd(self.residuals(), parameters)
        return dataclasses.replace(self, residual_sd=spread)


def residual_sd(residuals: Float[np.ndarray, "n"], parameters: int) -> float:
    """Root of the sum of squares over the degrees of freedom."""
    freedom = max(residuals.size - parameters, 1)
    return float(np.sqrt(np.sum(residuals**2) / freedom))
