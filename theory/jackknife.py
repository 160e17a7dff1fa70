"""The jackknife: how far an estimate moves when one of its units is left out."""

import math

import numpy as np
from jaxtyping import Float


def standard_error(
    left_out: Float[np.ndarray, "unit"], centre: float | None = None
) -> float:
    """√((n − 1)/n·Σ(θ₋ᵢ − θ)²), n being the units.

    Args:
        left_out: the estimate without each unit, θ₋ᵢ.
        centre: θ; the mean of `left_out` if not given, which is the smaller choice.

    Returns:
        The standard error; inf for a single unit, or where an estimate is not finite.
    """
    units = len(left_out)
    if units < 2 or not np.all(np.isfinite(left_out)):
        return math.inf
    away = left_out - (left_out.mean() if centre is None else centre)
    return math.sqrt((units - 1) / units * float(away @ away))
