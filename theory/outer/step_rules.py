"""What an optimiser makes of a gradient, seen through two Gaussian moments.

An optimiser that steps by −αf(g) acts on a Gaussian g of mean square S² like the linear
one −αk·g with k = E g·f(g)/S², plus noise that is uncorrelated with g and makes up the
rest of E f(g)² (statistical linearisation, Booton 1954). Two functions of S² are then
all that is needed to know its plateau; `closures` is this for one gradient step per
update.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from theory.arithmetic import Number, check_positive
from theory.outer.clipped import gaussian_gain, gaussian_square


@dataclass(frozen=True)
class StepRule:
    """An optimiser, by what it makes of a Gaussian gradient of mean square S².

    Attributes:
        name: in words.
        gain: S² → E g·f(g)/S², the slope of the linear step that it amounts to.
        square: S² → E f(g)², at least gain²·S².
    """

    name: str
    gain: Callable[[Number], Number]
    square: Callable[[Number], Number]


plain_rule = StepRule("plain", lambda square: 1 + 0 * square, lambda square: square)
"""f(g) = g: gradient descent."""

rmsprop_rule = StepRule(
    "rmsprop", lambda square: 1 / np.sqrt(square), lambda square: 1 + 0 * square
)
"""f(g) = g/√(E g²): RMSProp, or Adam without momentum, with a long memory (β₂ → 1)."""

sign_rule = StepRule(
    "sign",
    lambda square: np.sqrt(2 / (math.pi * square)),
    lambda square: 1 + 0 * square,
)
"""f(g) = sign(g): a hard trust region in one direction."""


def clip_rule(gradient_limit: Number) -> StepRule:
    """The rule f(g) = min(max(g, −τ), τ) in every coordinate.

    Args:
        gradient_limit: τ > 0.

    Returns:
        The rule.

    Raises:
        ValueError: if τ is not finite and above 0.
    """
    check_positive("gradient_limit", gradient_limit)
    tau = np.asarray(gradient_limit, dtype=np.float64)
    return StepRule(
        f"clipped at {gradient_limit}",
        lambda square: gaussian_gain(tau / np.sqrt(square)),
        lambda square: square * gaussian_square(tau / np.sqrt(square)),
    )
