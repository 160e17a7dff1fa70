"""The inner loop seen from outside: as one outer step, or gradient step by step."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    is_symbolic,
    where,
    whole_number,
)
from theory.outer.loop import Loop, Moments
from theory.outer.moments import LinearMap


def effective_step(
    outer_step: Number, learning_rate: Number, curvature: Number, gradient_steps: Number
) -> Number:
    """The one outer step that a PPO-like inner loop amounts to.

    K gradient steps of size α on g·x + ½hx² + (x−r)²/(2η), started at the policy r that
    collected the batch, move x by exactly −η_out(hr + g) with, w = α(h + 1/η),

        η_out = η(1 − (1−w)^K)/(1+ηh) = α(1 − (1−w)^K)/w

    Valid for a batch whose noise g is shared by the K steps (derived here). The limits
    are αK for few steps and η/(1+ηh) for many; for w < 1 the step never overshoots.

    Args:
        outer_step: η > 0, the inverse weight of the penalty; inf is no penalty.
        learning_rate: α ≥ 0.
        curvature: h ≥ 0.
        gradient_steps: K, a whole number (or a symbol).

    Returns:
        η_out; exact for exact numbers.

    Raises:
        ValueError: if a number is negative or not finite, η is 0, or K is not whole.
    """
    weight = _penalty_weight(outer_step)
    check_nonnegative("learning_rate", learning_rate)
    check_nonnegative("curvature", curvature)
    if not is_symbolic(gradient_steps):
        gradient_steps = whole_number("gradient_steps", gradient_steps)
    weight, alpha, h, steps = align(weight, learning_rate, curvature, gradient_steps)
    w = alpha * (h + weight)
    done = share_covered(w, steps)
    return where(w != 0, lambda: alpha * done / w, alpha * steps)


def _penalty_weight(outer_step: Number) -> Number:
    (eta,) = align(outer_step)
    finite = eta != math.inf
    check_positive("outer_step", where(finite, lambda: eta, 1))
    return where(finite, lambda: 1 / eta, 0)


def share_covered(w: Number, steps: Number) -> Number:
    """1 − (1−w)^K; for floats without cancellation at small w, or ±inf.

    Args:
        w: what one step covers of the distance.
        steps: K, not negative.

    Returns:
        What K steps cover.
    """
    if not isinstance(w, float | np.ndarray):
        return 1 - (1 - w) ** steps
    with np.errstate(all="ignore"):
        gentle = -np.expm1(steps * np.log1p(-w))
        return np.where(w < 1, gentle, 1 - np.power(1 - w, steps))[()]


def ewma_gradient(
    learning_rate: Number, curvature: Number, penalty: Number, com: Number
) -> "EwmaGradient":
    """The loop, gradient step by gradient step, with an averaged anchor.

    x' = x − α(hx + ξ) − κ(x − r), r' = βr + (1−β)x', each step on a fresh minibatch of
    n samples. With b = αh, q = α²s² and D = (1−β(1−b−κ))(2+2β(1−κ)−b(1+β)), stationary
    for 0 < b < 2(1+β(1−κ))/(1+β) (derived here):

        E x² = αs²(1−β²+bβ(1+β)−κβ(1−β))/(hD)   E r² = αs²(1−β)(1+β(1−b−κ))/(hD)
        E xr = αs²(1−β)(1+β−βκ)/(hD)            E (x'−x)² = 2q(1−β²+bβ(1+β)+2κβ²)/D

    Args:
        learning_rate: α ≥ 0.
        curvature: h ≥ 0.
        penalty: κ ≥ 0, the pull towards the anchor per gradient step:
            learning_rate/outer_step.
        com: c ≥ 0, centre of mass in gradient steps; 0 is `sgd` with step α.

    Returns:
        The loop; an "update" of it is one gradient step, and its `samples_per_update`
        is the minibatch. The reference starts at x.

    Raises:
        ValueError: if an argument is negative or not finite.
    """
    check_nonnegative("learning_rate", learning_rate)
    check_nonnegative("curvature", curvature)
    check_nonnegative("penalty", penalty)
    check_nonnegative("com", com)
    alpha, h, kappa, c = align(learning_rate, curvature, penalty, com)
    return EwmaGradient(learning_rate=alpha, curvature=h, penalty=kappa, com=c)


@dataclass(frozen=True, kw_only=True)
class EwmaGradient(Loop):
    """See `ewma_gradient`, which builds it.

    Attributes:
        learning_rate: α.
        penalty: κ.
        com: c.
    """

    learning_rate: Number
    penalty: Number
    com: Number

    @property
    def stability_limit(self) -> Number:
        """2(1+β(1−κ))/((1+β)h), of the learning rate at fixed penalty."""
        h, beta = self.curvature, self.com / (1 + self.com)
        room = 1 + beta * (1 - self.penalty)
        possible = (h > 0) & (room > 0)
        return where(possible, lambda: 2 * room / ((1 + beta) * h), 0)

    @property
    def stable(self) -> Any:
        """0 < b < 2(1+β(1−κ))/(1+β)."""
        b, beta = self.learning_rate * self.curvature, self.com / (1 + self.com)
        return (b > 0) & (2 + 2 * beta * (1 - self.penalty) - b * (1 + beta) > 0)

    def moments(self) -> Moments:
        """The formulas of `ewma_gradient`."""
        alpha, h, kappa = self.learning_rate, self.curvature, self.penalty
        b, mix = alpha * h, 1 / (1 + self.com)
        beta = self.com * mix
        keep = beta * (1 - b - kappa)
        margin = (1 - keep) * (2 + 2 * beta * (1 - kappa) - b * (1 + beta))
        scale = alpha / (h * margin)
        spread = mix * (1 + beta) + b * beta * (1 + beta)
        return Moments(
            acting=scale * (spread - kappa * beta * mix),
            reference=scale * mix * (1 + keep),
            cross=scale * mix * (1 + beta - beta * kappa),
            step=2 * alpha * alpha * (spread + 2 * kappa * beta * beta) / margin,
        )

    def linear_map(self) -> LinearMap:
        """State (x, r)."""
        alpha, kappa, mix = self.learning_rate, self.penalty, 1 / (1 + self.com)
        keep = 1 - alpha * self.curvature - kappa
        matrix = ((keep, kappa), (mix * keep, 1 - mix + mix * kappa))
        return LinearMap(matrix, (-alpha, -mix * alpha))
