"""A law as a rival: another family, or other cells, fitted in the same way."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.ddr_map import KnobValues, Values
from theory.fit.result import Fit
from theory.fit.two_stage import fit_cells


@dataclass(frozen=True, kw_only=True)
class Refitted:
    """A fit as a forecaster."""

    fit: Fit

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        made = self.fit.model.forecast(self.fit.draws, budget, knobs, num_seeds)
        return made.predictive.score


def other_law(fit: Fit, family: str) -> Refitted:
    """Fit another family of laws to the same cells.

    "free" tests the exponents that theory ties together, "saturating" whether the
    smallest budgets hardly train, "joint" whether either is needed.

    Args:
        fit: the fit whose cells and options are taken.
        family: "joint", "free" or "saturating".

    Raises:
        TableError: no such family.
        NotConverged: stage 1 has no answer.
    """
    options = dataclasses.replace(fit.options, family=family)
    return Refitted(fit=fit_cells(fit.cells, options))
