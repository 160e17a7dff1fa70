"""Rivals: what a forecast of the law must beat, all fitted to the same cells.

Each has a spread of its own, so that its CRPS is fair: bootstrap over configurations
for its coefficients, its own residuals for configurations, the data's seed noise for
seeds. From those that know least to those that know most:

- `constant`, `constant_ddr`, `persistence`, `moving_optimum`: curves over log DDR, see
  `theory.rivals.curves`;
- `broken_power_law`: a power law of the budget with one break, `theory.rivals.broken`;
- `design_step`: the law with DDR replaced by what the design of a run says of it,
  `theory.rivals.design_step`;
- `joint`, `saturating`, `free`: the other families of laws, `theory.rivals.other_law`.

`guarded`, the law only where it forecasts the top training budget better than
`constant_ddr`, and `oracle`, the law with the held-out runs in hand, are no rivals: see
`theory.rivals.guarded` and `theory.rivals.oracle`.
"""

from collections.abc import Mapping

from theory.fit.result import Fit
from theory.forecast import LAW_PARAMETERS
from theory.null_data import Forecaster, null_data
from theory.rivals.broken import broken_power_law
from theory.rivals.curves import (
    constant,
    constant_ddr,
    moving_optimum,
    persistence,
)
from theory.rivals.design_step import design_step
from theory.rivals.other_law import other_law

__all__ = [
    "broken_power_law",
    "constant",
    "constant_ddr",
    "design_step",
    "fit_all",
    "moving_optimum",
    "other_law",
    "persistence",
]

CURVES = (constant, constant_ddr, persistence, moving_optimum, broken_power_law)


def fit_all(fit: Fit) -> Mapping[str, Forecaster]:
    """Every rival, by name, fitted to the cells of a fit.

    Raises:
        NotConverged: a rival law has no answer.
    """
    data = null_data(fit)
    rivals: dict[str, Forecaster] = {make.__name__: make(data) for make in CURVES}
    rivals["design_step"] = design_step(fit)
    for family in LAW_PARAMETERS:
        if family != fit.options.family:
            rivals[family] = other_law(fit, family)
    return rivals
