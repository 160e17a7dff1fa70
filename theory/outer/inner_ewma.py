"""PPO-EWMA as it runs: an inner loop on one batch, the anchor averaged inside it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    whole_number,
)
from theory.outer.inner import EwmaGradient
from theory.outer.loop import Loop, Moments
from theory.outer.lyapunov import solved_moments
from theory.outer.moments import AffineMap, LinearMap


def ewma_inner(
    learning_rate: Number,
    curvature: Number,
    penalty: Number,
    com: Number,
    gradient_steps: Number,
) -> "EwmaInner":
    """The loop of K gradient steps on one batch, the anchor averaged after each.

    Each step is x' = x − α(hx + ξ) − κ(x − r), r' = βr + (1−β)x', that of
    `ewma_gradient`, but ξ is shared by the K steps of an update. With M and g of one
    step, an update is

        z' = M^K z + (I + M + … + M^(K−1))gξ,    z = (x, r)

    so it is stable exactly where one gradient step is, 0 < αh < 2(1+β(1−κ))/(1+β), for
    every K. The stationary moments have no compact form; they are solved, exactly for
    exact numbers (derived here). In this model:

    - c = 0 is `sgd` with the step `effective_step(inf, α, h, K)`: no penalty is left.
    - c → ∞ holds the anchor still. With w = αh + κ, E x² → g²s²/(1 − (1−w)^2K), where
      g = α(1 − (1−w)^K)/w: a floor, while the speed falls as 1/c.
    - r := x at the start of each update and c → ∞ within it is PPO: `sgd` with
      `effective_step(α/κ, α, h, K)`.

    Floats lose about K·10⁻¹⁶/(1 − spectral radius), relatively.

    Args:
        learning_rate: α ≥ 0.
        curvature: h ≥ 0.
        penalty: κ ≥ 0, the pull towards the anchor per gradient step:
            learning_rate/outer_step.
        com: c ≥ 0, centre of mass in gradient steps.
        gradient_steps: K ≥ 1 per update, whole.

    Returns:
        The loop; an "update" of it is K gradient steps on one batch, whose size is its
        `samples_per_update`. The reference starts at x.

    Raises:
        ValueError: if a number is negative or not finite, or K not whole or 0.
    """
    check_nonnegative("learning_rate", learning_rate)
    check_nonnegative("curvature", curvature)
    check_nonnegative("penalty", penalty)
    check_nonnegative("com", com)
    steps = whole_number("gradient_steps", gradient_steps)
    if np.any(steps == 0):
        msg = f"gradient_steps is {gradient_steps}; an update takes at least 1."
        raise ValueError(msg)
    alpha, h, kappa, c, steps = align(learning_rate, curvature, penalty, com, steps)
    return EwmaInner(
        learning_rate=alpha, curvature=h, penalty=kappa, com=c, gradient_steps=steps
    )


@dataclass(frozen=True, kw_only=True)
class EwmaInner(Loop):
    """See `ewma_inner`, which builds it.

    Attributes:
        learning_rate: α.
        penalty: κ.
        com: c.
        gradient_steps: K.
    """

    learning_rate: Number
    penalty: Number
    com: Number
    gradient_steps: Number

    @property
    def stability_limit(self) -> Number:
        """2(1+β(1−κ))/((1+β)h), of the learning rate at fixed penalty, whatever K."""
        return self.gradient_step().stability_limit

    @property
    def stable(self) -> Any:
        """0 < b < 2(1+β(1−κ))/(1+β), b = αh."""
        # The second condition holds always; it gives the cells their broadcast shape.
        return self.gradient_step().stable & (self.gradient_steps > 0)

    def gradient_step(self) -> EwmaGradient:
        """The loop whose every gradient step has a batch of its own."""
        return EwmaGradient(
            learning_rate=self.learning_rate,
            curvature=self.curvature,
            penalty=self.penalty,
            com=self.com,
        )

    def moments(self) -> Moments:
        """From the stationary covariance of (x, r)."""
        return solved_moments(self.linear_map())

    def linear_map(self) -> LinearMap:
        """State (x, r)."""
        steps = whole_number("gradient_steps", self.gradient_steps)
        return LinearMap(*AffineMap(*self.gradient_step().linear_map()).repeated(steps))
