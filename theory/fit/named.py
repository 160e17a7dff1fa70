"""The parameters of a model by name, and the scale on which each has no bounds."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from theory.fit.intervals import Scale
from theory.forecast import FREE, LAW_PARAMETERS, Model, Parameters

OPTIMUM_EXPONENT = "optimum_exponent"


def named(
    model: Model, parameters: Parameters
) -> Mapping[str, Float[np.ndarray, "draw"]]:
    """Name → values per draw: map, law, optimum exponent, pace, free asymptote."""
    columns = dict(
        zip(model.ddr_map.coefficient_names, parameters.ddr_map.T, strict=True)
    )
    law = dict(zip(LAW_PARAMETERS[model.family], parameters.law.T, strict=True))
    columns |= law
    columns[OPTIMUM_EXPONENT] = optimum_exponent(law)
    pace = (f"pace/{term}" for term in model.pace_terms)
    columns |= dict(zip(pace, parameters.pace.T, strict=True))
    if model.asymptote == FREE:
        columns["asymptote"] = parameters.asymptote
    return columns


def optimum_exponent(
    law: Mapping[str, Float[np.ndarray, "draw"]],
) -> Float[np.ndarray, "draw"]:
    """Growth of the best DDR with the budget, d log D*/d log B.

    2s/(1 + s) for the joint law, and for the saturating one at large budgets; b/(d + γ)
    for the free law.
    """
    if "source" in law:
        return 2 * law["source"] / (1 + law["source"])
    return law["budget_exponent"] / (law["ddr_exponent"] + law["noise_exponent"])


def scale(model: Model, name: str) -> Scale:
    """The scale of a parameter: logarithmic where it is positive by its meaning."""
    if name == OPTIMUM_EXPONENT and model.family != "free":
        return Scale.UP_TO_TWO
    if name == OPTIMUM_EXPONENT or name in LAW_PARAMETERS[model.family]:
        return Scale.PLAIN if name == "floor" else Scale.POSITIVE
    return Scale.PLAIN
