"""What stage 2 solves: cells, their weights, a family of laws and a noise model."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

SEARCHED = {
    "joint": ("source",),
    "free": ("budget_exponent", "ddr_exponent", "noise_exponent"),
    "saturating": ("rate", "source"),
}
GAMMA, GAUSSIAN = "gamma", "gaussian"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Cells to fit, for many weightings at once.

    Attributes:
        target: gap (gamma) or score (gaussian), in score units.
        log_budget: log B, B in transitions.
        log_ddr: log D per row, D in transitions per nat.
        weights: weight of each cell in each row, zero for absent ones.
        pace: columns of the pace, see `theory.forecast`; no columns for none.
        level: column of the floor or J∞: ones, or zeros for a floor of 0.
        noise_model: "gamma" or "gaussian".
        family: "joint", "free" or "saturating".
    """

    target: Float[np.ndarray, "cell"]
    log_budget: Float[np.ndarray, "cell"]
    log_ddr: Float[np.ndarray, "draw cell"]
    weights: Float[np.ndarray, "draw cell"]
    pace: Float[np.ndarray, "cell r"]
    level: Float[np.ndarray, "cell"]
    noise_model: str
    family: str

    def rows(self, chosen: Int[np.ndarray, "chosen"]) -> "Problem":
        """The chosen rows of weights."""
        return dataclasses.replace(
            self, log_ddr=self.log_ddr[chosen], weights=self.weights[chosen]
        )
