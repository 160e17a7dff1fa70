"""Outer momentum: the heavy ball, and the look-ahead of Nesterov."""

from dataclasses import dataclass
from typing import Any

from theory.arithmetic import (
    Number,
    align,
    check_finite,
    check_nonnegative,
    check_positive,
    where,
)
from theory.outer.loop import Loop, Moments
from theory.outer.moments import LinearMap


def heavy_ball(outer_step: Number, curvature: Number, momentum: Number) -> "HeavyBall":
    """The loop x' = x − η(hx + ξ) + μ(x − x_previous).

    Stationary, for |μ| < 1 and 0 < a < 2(1+μ) (Liu, Ziyin & Ueda 2021):

        E x² = ηs²(1+μ)/((1−μ)h(2(1+μ)−a)),   E (x'−x)² = 2η²s²/((1−μ)(2(1+μ)−a))

    An optimiser that averages gradients is this with (1−μ)η for η; see
    `averaged_gradient`.

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


def averaged_gradient(
    outer_step: Number, curvature: Number, momentum: Number
) -> HeavyBall:
    """The loop m' = μm + (1−μ)(hx + ξ), x' = x − ηm': `heavy_ball` with (1−μ)η.

    Stable for 0 ≤ μ < 1 and 0 < a < 2(1+μ)/(1−μ).

    Args:
        outer_step: η ≥ 0, what the averaged gradient is multiplied by.
        curvature: h ≥ 0.
        momentum: 0 ≤ μ < 1, the share of the average that is kept.

    Returns:
        The loop, m = 0 at the start; its `outer_step` is (1−μ)η.

    Raises:
        ValueError: if a number is not finite, negative, or μ is not below 1.
    """
    _check_share(momentum)
    check_nonnegative("outer_step", outer_step)
    eta, h, mu = align(outer_step, curvature, momentum)
    return heavy_ball((1 - mu) * eta, h, mu)


def nesterov(outer_step: Number, curvature: Number, momentum: Number) -> "Nesterov":
    """The loop y = x + μ(x − x_previous), x' = y − η(hy + ξ).

    Stationary, for 0 ≤ μ < 1 and 0 < a < 2(1+μ)/(1+2μ), with w = μ(1−a) and
    D = (1−w)(1+(1+2μ)(1−a)) (derived here):

        E x² = ηs²(1+w)/(hD),   E (x'−x)² = 2η²s²/D

    Looking ahead narrows the stable range, from 2(1+μ) of `heavy_ball`.

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.
        momentum: 0 ≤ μ < 1.

    Returns:
        The loop; it starts at rest.

    Raises:
        ValueError: if a number is not finite, negative, or μ is not below 1.
    """
    check_nonnegative("outer_step", outer_step)
    check_nonnegative("curvature", curvature)
    _check_share(momentum)
    eta, h, mu = align(outer_step, curvature, momentum)
    return Nesterov(outer_step=eta, curvature=h, momentum=mu)


@dataclass(frozen=True, kw_only=True)
class Nesterov(Loop):
    """See `nesterov`, which builds it.

    Attributes:
        outer_step: η.
        momentum: μ.
    """

    outer_step: Number
    momentum: Number

    @property
    def stability_limit(self) -> Number:
        """2(1+μ)/((1+2μ)h)."""
        h, mu = self.curvature, self.momentum
        return where(h > 0, lambda: 2 * (1 + mu) / ((1 + 2 * mu) * h), 0)

    @property
    def stable(self) -> Any:
        """0 < a < 2(1+μ)/(1+2μ)."""
        a, mu = self.outer_step * self.curvature, self.momentum
        return (a > 0) & (1 + (1 + 2 * mu) * (1 - a) > 0)

    def moments(self) -> Moments:
        """The formulas of `nesterov`."""
        eta, h, mu = self.outer_step, self.curvature, self.momentum
        left = 1 - eta * h
        w = mu * left
        margin = (1 - w) * (1 + (1 + 2 * mu) * left)
        variance = eta * (1 + w) / (h * margin)
        return Moments(variance, variance, variance, 2 * eta * eta / margin)

    def linear_map(self) -> LinearMap:
        """State (x, x_previous)."""
        left, mu = 1 - self.outer_step * self.curvature, self.momentum
        matrix = ((left * (1 + mu), -left * mu), (1, 0))
        return LinearMap(matrix, (-self.outer_step, 0))


def _check_share(momentum: Number) -> None:
    check_nonnegative("momentum", momentum)
    (mu,) = align(momentum)
    check_positive("1 - momentum", 1 - mu)
