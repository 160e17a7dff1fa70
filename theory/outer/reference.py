"""Loops whose step starts from, or is held to, an average of past policies.

The reference is r_t = βr_{t−1} + (1−β)x_t: the current policy is included, so that a
centre of mass of 0 is no averaging at all.
"""

import math
from dataclasses import dataclass
from typing import Any

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    where,
)
from theory.outer.loop import Loop, Moments
from theory.outer.moments import LinearMap


def ewma_linear(
    outer_step: Number, curvature: Number, com_updates: Number
) -> "EwmaLinear":
    """The loop x' = r − η(hx + ξ): a step from the average, linear in the gradient.

    Stationary, for 0 < a < 2/(1+β), with D = (1+aβ)(2−a(1+β)) (derived here):

        E x² = ηs²(1−β+aβ(1+β))/(hD)     E r² = ηs²(1−β)(1−aβ)/(hD)
        E xr = ηs²(1−β)/(hD)             E (x'−x)² = 2η²s²(1+β²+aβ(1+β))/D

    As c → ∞ the reference's variance vanishes, but the acting policy's falls only to
    q/(1−a²), and the KL per update rises with c throughout.

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.
        com_updates: c ≥ 0, centre of mass in updates; 0 is `sgd`.

    Returns:
        The loop; the reference starts at x.

    Raises:
        ValueError: if an argument is negative or not finite.
    """
    eta, h, c = _checked(outer_step, curvature, com_updates)
    return EwmaLinear(outer_step=eta, curvature=h, com_updates=c)


@dataclass(frozen=True, kw_only=True)
class EwmaLinear(Loop):
    """See `ewma_linear`, which builds it.

    Attributes:
        outer_step: η.
        com_updates: c.
    """

    outer_step: Number
    com_updates: Number

    @property
    def stability_limit(self) -> Number:
        """2/((1+β)h) = 2(1+c)/((1+2c)h)."""
        h, c = self.curvature, self.com_updates
        return where(h > 0, lambda: 2 * (1 + c) / ((1 + 2 * c) * h), 0)

    @property
    def stable(self) -> Any:
        """0 < a < 2/(1+β)."""
        a, beta = self.outer_step * self.curvature, _decay(self.com_updates)
        return (a > 0) & (2 - a * (1 + beta) > 0)

    def moments(self) -> Moments:
        """The formulas of `ewma_linear`."""
        eta, h, beta = self.outer_step, self.curvature, _decay(self.com_updates)
        a, mix = eta * h, 1 / (1 + self.com_updates)
        margin = (1 + a * beta) * (2 - a * (1 + beta))
        scale = eta / (h * margin)
        return Moments(
            acting=scale * (mix + a * beta * (1 + beta)),
            reference=scale * mix * (1 - a * beta),
            cross=scale * mix,
            step=2 * eta * eta * (1 + beta * beta + a * beta * (1 + beta)) / margin,
        )

    def linear_map(self) -> LinearMap:
        """State (x, r)."""
        eta, mix = self.outer_step, 1 / (1 + self.com_updates)
        a = eta * self.curvature
        return LinearMap(((-a, 1), (-mix * a, 1)), (-eta, -mix * eta))


def ewma_proximal(
    outer_step: Number, curvature: Number, com_updates: Number
) -> "EwmaProximal":
    """The loop x' = argmin ½hx² + ξx + (x−r)²/(2η) = (r − ηξ)/(1+a).

    The penalised surrogate is solved exactly, so every step is stable. Stationary, for
    a > 0 (derived here):

        E r² = ηs²(1−β)/(h(2+a(1+β)))          E x² = (E r² + q)/(1+a)²
        E xr = ηs²(1−β)(1+a(1+β))/(h(1+a)(2+a(1+β)))
        E (x'−x)² = 2q(1+β²+a(1+β))/((1+a)²(2+a(1+β)))

    The reference is exactly `sgd` with the step (1−β)η/(1+a); the acting policy carries
    the floor q/(1+a)² besides, which no average removes.

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.
        com_updates: c ≥ 0, centre of mass in updates; 0 is `sgd` with step η/(1+a).

    Returns:
        The loop; the reference starts at x.

    Raises:
        ValueError: if an argument is negative or not finite.
    """
    eta, h, c = _checked(outer_step, curvature, com_updates)
    return EwmaProximal(outer_step=eta, curvature=h, com_updates=c)


@dataclass(frozen=True, kw_only=True)
class EwmaProximal(Loop):
    """See `ewma_proximal`, which builds it.

    Attributes:
        outer_step: η.
        com_updates: c.
    """

    outer_step: Number
    com_updates: Number

    @property
    def stability_limit(self) -> Number:
        """No limit."""
        limit = math.inf + 0 * self.com_updates
        return where(self.curvature > 0, lambda: limit, 0)

    @property
    def stable(self) -> Any:
        """Every a > 0."""
        # The second condition holds always; it gives the cells their broadcast shape.
        return (self.outer_step * self.curvature > 0) & (self.com_updates >= 0)

    def moments(self) -> Moments:
        """The formulas of `ewma_proximal`."""
        eta, h, beta = self.outer_step, self.curvature, _decay(self.com_updates)
        a, mix = eta * h, 1 / (1 + self.com_updates)
        margin, shrink = 2 + a * (1 + beta), 1 / (1 + a)
        reference = eta * mix / (h * margin)
        return Moments(
            acting=(reference + eta * eta) * shrink * shrink,
            reference=reference,
            cross=reference * (1 + a * (1 + beta)) * shrink,
            step=2 * (eta * shrink) ** 2 * (margin - 1 + beta * beta) / margin,
        )

    def linear_map(self) -> LinearMap:
        """State (x, r)."""
        eta, mix = self.outer_step, 1 / (1 + self.com_updates)
        shrink = 1 / (1 + eta * self.curvature)
        matrix = ((0, shrink), (0, 1 - mix + mix * shrink))
        return LinearMap(matrix, (-eta * shrink, -mix * eta * shrink))


def _checked(
    outer_step: Number, curvature: Number, com_updates: Number
) -> tuple[Number, ...]:
    check_nonnegative("outer_step", outer_step)
    check_nonnegative("curvature", curvature)
    check_nonnegative("com_updates", com_updates)
    return align(outer_step, curvature, com_updates)


def _decay(com: Number) -> Number:
    return com / (1 + com)
