"""The law where it has earned its claim, the constant optimum elsewhere.

That the best DDR moves with the budget is what the law claims over `constant_ddr`. A
law fitted to data whose best DDR does not move is wrong there, by more the further it
is carried, and its tied exponents cannot say so: source → 0 stops the optimum, but with
it the decay of the bias. So the claim is put to a test within the training data: both
are fitted without the top budget and forecast it. The law is kept if it is the better
of the two with confidence, the lower end of its skill's interval above 0; else the
forecast is that of `constant_ddr`, whose skill over itself is exactly 0.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory import scores
from theory.cells import MIN_BUDGETS
from theory.ddr_map import KnobValues, Values
from theory.fit.result import Fit
from theory.fit.status import NotConverged
from theory.fit.two_stage import fit_cells
from theory.null_data import Forecaster, draws_of, null_data
from theory.rivals.curves import constant_ddr
from theory.rivals.other_law import Refitted
from theory.scores import Skill


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """See the module.

    Attributes:
        chosen: the forecaster that is used.
        skill: of the law over `constant_ddr` at the top training budget; None where
            there are too few budgets to leave one out.
    """

    chosen: Forecaster
    skill: Skill | None

    @property
    def is_law(self) -> bool:
        """Whether the law has earned its claim."""
        return isinstance(self.chosen, Refitted)

    def forecast(
        self, budget: Values, knobs: KnobValues, num_seeds: int
    ) -> Float[np.ndarray, "draw cell"]:
        """Draws of the mean score over `num_seeds` seeds."""
        return self.chosen.forecast(budget, knobs, num_seeds)


def guarded(fit: Fit) -> Guarded:
    """The law or `constant_ddr`, by a test on the top training budget.

    Args:
        fit: the law.
    """
    try:
        skill = top_budget_skill(fit)
    except NotConverged:
        skill = None
    if skill is not None and skill.low > 0:
        return Guarded(chosen=Refitted(fit=fit), skill=skill)
    return Guarded(chosen=constant_ddr(null_data(fit)), skill=skill)


def top_budget_skill(fit: Fit) -> Skill | None:
    """Skill of the law over `constant_ddr` at the top budget, neither having seen it.

    None where there are fewer than three budgets in all.

    Raises:
        NotConverged: stage 1 has no answer without the top budget.
    """
    budgets = np.unique(fit.cells.budget)
    if len(budgets) < MIN_BUDGETS:
        return None
    top = fit.cells.budget == budgets[-1]
    below = fit_cells(fit.cells.select(~top), fit.options)
    tested = fit.cells.select(top)
    law = Refitted(fit=below)
    null = constant_ddr(null_data(below))
    observed = scores.outcome(tested.score, fit.options.asymptote)
    draws = (draws_of(model.forecast, tested) for model in (law, null))
    crps = [
        scores.crps(observed, scores.outcome(one, fit.options.asymptote))
        for one in draws
    ]
    return scores.skill(crps[0], crps[1], tested.config)
