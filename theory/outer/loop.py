"""What every outer loop offers: stability, stationary state and exact transient.

Symbols, in the formulas of this package:

    x   acting policy, relative to the optimum      r   reference (anchor)
    h   curvature, loss = ½hx²                      η   outer step
    a   ηh, the dimensionless outer step            n   samples per update
    s²  σ²/n, variance of one update's gradient     q   η²s²
    c   centre of mass of the anchor's average      β   c/(1+c), so 1−β = 1/(1+c)
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    decided,
    where,
    whole_number,
)
from theory.outer.moments import AffineMap, LinearMap, moment_map


@dataclass(frozen=True)
class Stationary:
    """The stationary state of a loop; inf in array cells whose loop is unstable.

    Attributes:
        acting_variance: E x² of the acting policy.
        reference_variance: E r²; equal to E x² where the loop has no reference.
        cross_covariance: E xr.
        step_second_moment: E (x' − x)² between successive acting policies.
        kl_per_update: ½·E (x' − x)², the KL per update at unit Fisher information.
        loss: ½h·E x², the expected gap of the acting policy.
    """

    acting_variance: Number
    reference_variance: Number
    cross_covariance: Number
    step_second_moment: Number
    kl_per_update: Number
    loss: Number


class Moments(NamedTuple):
    """Stationary moments of a stable loop, per unit variance of the update's gradient.

    Attributes:
        acting: E x²/s².
        reference: E r²/s².
        cross: E xr/s².
        step: E (x' − x)²/s².
    """

    acting: Number
    reference: Number
    cross: Number
    step: Number


@dataclass(frozen=True, kw_only=True)
class Loop(ABC):
    """One linear outer loop in one direction of the local quadratic.

    Attributes:
        curvature: h ≥ 0, an eigenvalue of the loss's Hessian at the optimum.
    """

    curvature: Number

    @property
    @abstractmethod
    def stability_limit(self) -> Number:
        """Supremum of the stable steps, everything else held; 0 if none is stable."""

    @property
    @abstractmethod
    def stable(self) -> Any:
        """Whether a stationary state exists; per cell for arrays."""

    @abstractmethod
    def moments(self) -> Moments:
        """Stationary moments per unit gradient variance, valid where stable."""

    @abstractmethod
    def linear_map(self) -> LinearMap:
        """One update of the state: x, then r, then what else the loop remembers.

        Every variable is relative to the optimum and starts at x.
        """

    def one_update(self, noise: Number) -> AffineMap:
        """The moment map of one update whose gradient variance at x = 0 is `noise`."""
        matrix, gain = self.linear_map()
        return moment_map(matrix, gain, noise)

    def aligned(self, *numbers: Number) -> tuple[Any, ...]:
        """The loop and more numbers, brought to one kind of number."""
        names = [field.name for field in dataclasses.fields(self)]
        values = [getattr(self, name) for name in names]
        kind = align(*values, *numbers)
        own = dict(zip(names, kind, strict=False))
        return dataclasses.replace(self, **own), *kind[len(names) :]

    def samples(self, samples_per_update: Number) -> Number:
        """The samples per update, checked; a loop may insist on its own."""
        check_positive("samples_per_update", samples_per_update)
        return samples_per_update

    def stationary(
        self, noise_variance: Number, samples_per_update: Number
    ) -> Stationary:
        """The stationary state under per-sample gradient noise.

        Args:
            noise_variance: σ², the variance of one sample's gradient.
            samples_per_update: n; an update's gradient has variance σ²/n.

        Returns:
            Second moments, KL per update and loss; inf in unstable array cells.

        Raises:
            ValueError: if the loop is a scalar and unstable, or an argument is invalid.
        """
        loop, s, _ = self._prepared(noise_variance, samples_per_update)
        stable = loop.stable
        if not isinstance(stable, np.ndarray) and decided(stable) is False:
            limit = loop.stability_limit
            steps = "no step" if limit == 0 else f"a step above 0 and below {limit}"
            msg = f"{self} has no stationary state; {steps} would give it one."
            raise ValueError(msg)
        with np.errstate(all="ignore"):
            unit = loop.moments()
            acting, reference, cross, step, loss = (
                where(stable, lambda value=value: value * s, np.inf)  # type: ignore[misc]
                for value in (*unit, loop.curvature * unit.acting / 2)
            )
        return Stationary(
            acting_variance=acting,
            reference_variance=reference,
            cross_covariance=cross,
            step_second_moment=step,
            kl_per_update=step / 2,
            loss=loss,
        )

    def second_moment(
        self,
        initial: Number,
        updates: Number,
        noise_variance: Number,
        samples_per_update: Number,
    ) -> Number:
        """E x² of the acting policy after some updates: the exact transient.

        The reference starts at x; heavy ball starts at rest. Unstable loops are
        allowed: their second moment grows, to inf in floating point.

        Args:
            initial: E x² at the start.
            updates: how many updates (gradient steps, for `ewma_gradient`).
            noise_variance: σ², the variance of one sample's gradient.
            samples_per_update: n; an update's gradient has variance σ²/n.

        Returns:
            E x², exact for exact numbers. Floats lose about updates·10⁻¹⁶ of the part
            that is still decaying, relatively.

        Raises:
            ValueError: if an argument is invalid.
        """
        check_nonnegative("initial", initial)
        count = whole_number("updates", updates)
        loop, s, start = self._prepared(noise_variance, samples_per_update, initial)
        with np.errstate(all="ignore"):
            many = loop.one_update(s).repeated(count)
            return _overflowed_to_inf(many.apply((start,) * len(many.offset))[0])

    def _prepared(
        self, noise_variance: Number, samples_per_update: Number, initial: Number = 0
    ) -> tuple["Loop", Number, Number]:
        """The loop, σ²/n and the initial moment, brought to one kind of number."""
        check_nonnegative("noise_variance", noise_variance)
        samples = self.samples(samples_per_update)
        loop, noise, n, start = self.aligned(noise_variance, samples, initial)
        return loop, noise / n, start


def _overflowed_to_inf(value: Number) -> Number:
    # A diverging loop overflows to inf, and then inf − inf or 0·inf to nan.
    if isinstance(value, float):
        return value if math.isfinite(value) else math.inf
    if isinstance(value, np.ndarray | np.generic):
        return np.where(np.isfinite(value), value, np.inf)[()]
    return value
