"""Any loop behind an outer learning rate and outer momentum (Tan et al. 2024)."""

import dataclasses
import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from theory.arithmetic import (
    Number,
    check_finite,
    check_nonnegative,
    decided,
    is_symbolic,
    where,
)
from theory.outer.inner import EwmaGradient
from theory.outer.inner_ewma import EwmaInner
from theory.outer.loop import Loop, Moments
from theory.outer.lyapunov import is_stable, solved_moments
from theory.outer.moments import LinearMap, Row
from theory.outer.momentum import heavy_ball
from theory.outer.plain import Multiplicative, Sgd, multiplicative
from theory.outer.reference import EwmaLinear, EwmaProximal

ANCHORED = (EwmaLinear, EwmaProximal, EwmaGradient, EwmaInner)


def damped(loop: Loop, outer_learning_rate: Number, outer_momentum: Number = 0) -> Loop:
    """The loop behind an outer learning rate σ and an outer momentum μ.

    What one update of the loop makes of the state z = (x, r) is z + Δ; kept is

        z' = z + σΔ + μ(z − z_previous)

    for the policy and its anchor alike. σ = 1 with μ = 0 is the loop itself, and σ on
    `sgd` is `sgd` with the step ση. The eigenvalues ζ of I − M, M the map of the loop,
    are real for every loop here; stable for |μ| < 1, every ζ > 0 and (derived here)

        0 < σ < 2(1+μ)/max ζ

    The stationary moments are solved, exactly for exact numbers.

    Args:
        loop: `sgd`, a loop with an averaged anchor, `multiplicative` (without
            momentum), or one of these already damped without momentum.
        outer_learning_rate: σ ≥ 0. (Not the σ² of the noise.)
        outer_momentum: μ.

    Returns:
        The loop, at rest at the start: for `sgd` `heavy_ball(ση, h, μ)` itself, for
        `multiplicative` the same with ση for η; for the others one whose
        `stability_limit` is that of the outer learning rate.

    Raises:
        ValueError: if σ is negative, a number is not finite, or the loop remembers more
            than a policy and its anchor.
    """
    check_nonnegative("outer_learning_rate", outer_learning_rate)
    check_finite("outer_momentum", outer_momentum)
    loop, sigma, mu = loop.aligned(outer_learning_rate, outer_momentum)
    if isinstance(loop, Sgd):
        return heavy_ball(sigma * loop.outer_step, loop.curvature, mu)
    if isinstance(loop, Multiplicative) and decided(mu == 0):
        step, slope = sigma * loop.outer_step, loop.noise_slope
        return multiplicative(step, loop.curvature, slope, loop.samples_per_update)
    if isinstance(loop, Damped) and decided(loop.outer_momentum == 0):
        return damped(loop.loop, sigma * loop.outer_learning_rate, mu)
    if not isinstance(loop, ANCHORED):
        msg = (
            f"loop is {loop} with outer_momentum {mu}; it must be sgd, an averaged "
            "anchor, or, without outer_momentum, multiplicative or damped."
        )
        raise ValueError(msg)
    return Damped(
        curvature=loop.curvature,
        loop=loop,
        outer_learning_rate=sigma,
        outer_momentum=mu,
    )


@dataclass(frozen=True, kw_only=True)
class Damped(Loop):
    """See `damped`, which builds it.

    Attributes:
        loop: what one update does before it is damped.
        outer_learning_rate: σ.
        outer_momentum: μ.
    """

    loop: Loop
    outer_learning_rate: Number
    outer_momentum: Number

    @property
    def stability_limit(self) -> Number:
        """The formula of `damped`, of σ; a float where a square root is irrational."""
        (a, b), (c, d) = self.loop.linear_map().matrix
        mu, half = self.outer_momentum, (2 - a - d) / 2
        product = (1 - a) * (1 - d) - b * c
        largest = half + _root(half * half - product)
        possible = (half > 0) & (product > 0) & (1 - mu > 0) & (1 + mu > 0)
        return where(possible, lambda: 2 * (1 + mu) / largest, 0)

    @property
    def stable(self) -> Any:
        """|μ| < 1 and every eigenvalue of `linear_map` inside the unit circle."""
        mu = self.outer_momentum
        # The first follows from the second, but for the rounding of |μ| = 1.
        inside = (1 - mu > 0) & (1 + mu > 0)
        return inside & is_stable(self.linear_map().matrix)

    def moments(self) -> Moments:
        """From the stationary covariance of the state."""
        return solved_moments(self.linear_map())

    def linear_map(self) -> LinearMap:
        """State (x, r), and with momentum (x, r, x_previous, r_previous)."""
        sigma, mu = self.outer_learning_rate, self.outer_momentum
        matrix, gain = self.loop.linear_map()
        rows = tuple(
            tuple(
                sigma * entry + (1 - sigma) * int(i == j) for j, entry in enumerate(row)
            )
            for i, row in enumerate(matrix)
        )
        kept = tuple(sigma * entry for entry in gain)
        if decided(mu == 0):
            return LinearMap(rows, kept)
        return LinearMap(_with_memory(rows, mu), (*kept, 0, 0))

    def aligned(self, *numbers: Number) -> tuple[Any, ...]:
        """The loop and more numbers, brought to one kind of number."""
        own = self.outer_learning_rate, self.outer_momentum
        loop, sigma, mu, *rest = self.loop.aligned(*own, *numbers)
        changed = dataclasses.replace(
            self,
            curvature=loop.curvature,
            loop=loop,
            outer_learning_rate=sigma,
            outer_momentum=mu,
        )
        return changed, *rest


def _with_memory(rows: tuple[Row, ...], mu: Number) -> tuple[Row, ...]:
    (a, b), (c, d) = rows
    return ((a + mu, b, -mu, 0), (c, d + mu, 0, -mu), (1, 0, 0, 0), (0, 1, 0, 0))


def _root(value: Number) -> Number:
    """The square root of what is below 0 by rounding only; exact for a square."""
    if is_symbolic(value):
        return sys.modules["sympy"].sqrt(value)
    if isinstance(value, Fraction):
        whole = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        return whole if whole * whole == value else math.sqrt(value)
    return np.sqrt(np.maximum(value, 0))
