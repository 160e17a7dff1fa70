"""Plain stochastic gradient descent, with constant or growing noise."""

from dataclasses import dataclass
from typing import Any

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    decided,
    where,
)
from theory.outer.loop import Loop, Moments
from theory.outer.moments import AffineMap, LinearMap, moment_map


def sgd(outer_step: Number, curvature: Number) -> "Sgd":
    """The loop x' = x − η(hx + ξ).

    Stationary, for 0 < a < 2 (Liu, Ziyin & Ueda 2021; the limit a → 0 is Mandt, Hoffman
    & Blei 2017, and lies below by the factor 1 − a/2):

        E x² = ηs²/(h(2−a)),   E (x'−x)² = 2η²s²/(2−a)

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.

    Returns:
        The loop.

    Raises:
        ValueError: if an argument is negative or not finite.
    """
    check_nonnegative("outer_step", outer_step)
    check_nonnegative("curvature", curvature)
    outer_step, curvature = align(outer_step, curvature)
    return Sgd(outer_step=outer_step, curvature=curvature)


@dataclass(frozen=True, kw_only=True)
class Sgd(Loop):
    """See `sgd`, which builds it.

    Attributes:
        outer_step: η.
    """

    outer_step: Number

    @property
    def stability_limit(self) -> Number:
        """2/h."""
        return where(self.curvature > 0, lambda: 2 / self.curvature, 0)

    @property
    def stable(self) -> Any:
        """0 < a < 2."""
        a = self.outer_step * self.curvature
        return (a > 0) & (2 - a > 0)

    def moments(self) -> Moments:
        """The formulas of `sgd`."""
        eta, h = self.outer_step, self.curvature
        variance = eta / (h * (2 - eta * h))
        return Moments(variance, variance, variance, 2 * eta * eta / (2 - eta * h))

    def linear_map(self) -> LinearMap:
        """State (x, x): there is no reference."""
        return _descent(self.outer_step, self.curvature)


def multiplicative(
    outer_step: Number,
    curvature: Number,
    noise_slope: Number,
    samples_per_update: Number,
) -> "Multiplicative":
    """The loop x' = x − η(hx + ξ) with Var ξ = (σ² + κx²)/n.

    Stationary, where h(2−a) > ηκ/n (derived here; the only loop in which more samples
    buy stability):

        E x² = (ησ²/n)/(h(2−a) − ηκ/n),   E (x'−x)² = 2a·E x²

    Args:
        outer_step: η ≥ 0.
        curvature: h ≥ 0.
        noise_slope: κ ≥ 0, growth of the per-sample variance with x².
        samples_per_update: n > 0.

    Returns:
        The loop; its `stationary` and `second_moment` take the same n again.

    Raises:
        ValueError: if an argument is negative or not finite, or n is 0.
    """
    check_nonnegative("outer_step", outer_step)
    check_nonnegative("curvature", curvature)
    check_nonnegative("noise_slope", noise_slope)
    check_positive("samples_per_update", samples_per_update)
    eta, h, slope, n = align(outer_step, curvature, noise_slope, samples_per_update)
    return Multiplicative(
        outer_step=eta, curvature=h, noise_slope=slope, samples_per_update=n
    )


@dataclass(frozen=True, kw_only=True)
class Multiplicative(Loop):
    """See `multiplicative`, which builds it.

    Attributes:
        outer_step: η.
        noise_slope: κ.
        samples_per_update: n.
    """

    outer_step: Number
    noise_slope: Number
    samples_per_update: Number

    @property
    def stability_limit(self) -> Number:
        """2h/(h² + κ/n), for mean-square stability."""
        h = self.curvature
        slope = self.noise_slope / self.samples_per_update
        return where(h > 0, lambda: 2 * h / (h * h + slope), 0)

    @property
    def stable(self) -> Any:
        """Stable for a > 0 and h(2−a) > ηκ/n."""
        return (self.outer_step * self.curvature > 0) & (self._margin() > 0)

    def moments(self) -> Moments:
        """The formulas of `multiplicative`."""
        eta, h = self.outer_step, self.curvature
        variance = eta / self._margin()
        return Moments(variance, variance, variance, 2 * eta * h * variance)

    def linear_map(self) -> LinearMap:
        """State (x, x), given ξ, whose variance depends on x."""
        return _descent(self.outer_step, self.curvature)

    def one_update(self, noise: Number) -> AffineMap:
        """As for `sgd`, with E ξ² growing with E x²."""
        slope = self.noise_slope / self.samples_per_update
        matrix, gain = self.linear_map()
        return moment_map(matrix, gain, noise, slope)

    def samples(self, samples_per_update: Number) -> Number:
        """The loop's own n; anything else is refused."""
        own = self.samples_per_update
        if decided(own == samples_per_update) is False:
            msg = (
                f"samples_per_update is {samples_per_update}; it must be {own}, "
                "the number this loop was built with."
            )
            raise ValueError(msg)
        return own

    def _margin(self) -> Number:
        eta, h = self.outer_step, self.curvature
        return h * (2 - eta * h) - eta * self.noise_slope / self.samples_per_update


def _descent(eta: Number, h: Number) -> LinearMap:
    decay = 1 - eta * h
    return LinearMap(((decay, 0), (decay, 0)), (-eta, -eta))
