"""Outer momentum: the heavy ball."""

from dataclasses import dataclass
from typing import Any

from theory.arithmetic import (
    Number,
    align,
    check_finite,
    check_nonnegative,
    where,
)
from theory.outer.loop import Loop, Moments
from theory.outer.moments import LinearMap


def heavy_ball(outer_step: Number, curvature: Number, momentum: Number) -> "HeavyBall":
    """The loop x' = x − η(hx + ξ) + μ(x − x_previous).

    Stationary, for |μ| < 1 and 0 < a < 2(1+μ) (Liu, Ziyin & Ueda 2021):

        E x² = ηs²(1+μ)/((1−μ)h(2(1+μ)−a)),   E (x'−x)² = 2η²s²/((1−μ)(2(1+μ)−a))

    An optimiser that averages gradients, m' = μm + (1−μ)g, is this with η(1−μ) for η.

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.
        momentum: μ.

    Returns:
        The loop; it starts at rest.

    Raises:
        ValueError: if a number is not finite, or η or h is negative.
    """
    check_nonnegative("outer_step", outer_step)
    check_nonnegative("curvature", curvature)
    check_finite("momentum", momentum)
    eta, h, mu = align(outer_step, curvature, momentum)
    return HeavyBall(outer_step=eta, curvature=h, momentum=mu)


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Loop):
    """See `heavy_ball`, which builds it.

    Attributes:
        outer_step: η.
        momentum: μ.
    """

    outer_step: Number
    momentum: Number

    @property
    def stability_limit(self) -> Number:
        """2(1+μ)/h for |μ| < 1."""
        h, mu = self.curvature, self.momentum
        possible = (h > 0) & (1 - mu > 0) & (1 + mu > 0)
        return where(possible, lambda: 2 * (1 + mu) / h, 0)

    @property
    def stable(self) -> Any:
        """|μ| < 1 and 0 < a < 2(1+μ)."""
        a, mu = self.outer_step * self.curvature, self.momentum
        return (a > 0) & (1 - mu > 0) & (2 * (1 + mu) - a > 0)

    def moments(self) -> Moments:
        """The formulas of `heavy_ball`."""
        eta, h, mu = self.outer_step, self.curvature, self.momentum
        margin = (1 - mu) * (2 * (1 + mu) - eta * h)
        variance = eta * (1 + mu) / (h * margin)
        return Moments(variance, variance, variance, 2 * eta * eta / margin)

    def linear_map(self) -> LinearMap:
        """State (x, x_previous)."""
        a, mu = self.outer_step * self.curvature, self.momentum
        return LinearMap(((1 + mu - a, -mu), (1, 0)), (-self.outer_step, 0))
