"""The loss after a finite budget, on any spectrum of curvatures.

Plain descent at a constant step, direction by direction: h curvature, x₀² initial
second moment, σ² noise of one sample, a = ηh, and n samples in each of K updates. For
a ≪ 1 the loss depends on η and n through u = η/n alone, at a given budget B = nK: a
ridge. At unit Fisher information DDR_noise = 2/(u² tr Σ), so that a law of u is a law
of DDR.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import (
    Number,
    check_nonnegative,
    check_positive,
    floats,
    is_symbolic,
)
from theory.search import Least, least

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A quadratic in its eigen-directions, with independent noise in each.

    Attributes:
        curvature: h > 0, shape [direction].
        initial: x₀² ≥ 0, second moment of the start, same shape.
        noise: σ² ≥ 0, variance of one sample's gradient, same shape.
    """

    curvature: Array
    initial: Array
    noise: Array

    def __post_init__(self) -> None:
        for field in fields(self):
            values = floats(field.name, getattr(self, field.name)).copy()
            if values.ndim != 1 or not values.size:
                msg = f"{field.name} has shape {values.shape}; it must be [direction]."
                raise ValueError(msg)
            check = check_positive if field.name == "curvature" else check_nonnegative
            check(field.name, values)
            values.setflags(write=False)
            object.__setattr__(self, field.name, values)
        shapes = {getattr(self, field.name).shape for field in fields(self)}
        if len(shapes) > 1:
            msg = f"curvature, initial and noise have shapes {shapes}; they must agree."
            raise ValueError(msg)

    @property
    def noise_trace(self) -> float:
        """Tr Σ = Σσ²."""
        return float(self.noise.sum())

    @property
    def initial_loss(self) -> float:
        """½Σhx₀²."""
        return float(self.curvature @ self.initial / 2)

    def loss(
        self, outer_step: Number, samples_per_update: Number, updates: Number
    ) -> Number:
        """The expected loss after K updates. Exact (derived here).

            ½Σh{(1−a)^(2K)·x₀² + (η²σ²/n)(1 − (1−a)^(2K))/(a(2−a))}

        Args:
            outer_step: η ≥ 0, shape [...]; unstable steps are allowed.
            samples_per_update: n > 0, shape [...].
            updates: K ≥ 0, shape [...]; numbers that are not whole interpolate.

        Returns:
            The loss, shape [...]; inf where it overflows.

        Raises:
            ValueError: if an argument is out of range.
        """
        check_nonnegative("outer_step", outer_step)
        check_positive("samples_per_update", samples_per_update)
        check_nonnegative("updates", updates)
        eta, n, k = _columns(outer_step, samples_per_update, updates)
        a = eta * self.curvature
        with np.errstate(all="ignore"):
            log_kept = 2 * k * np.log(np.abs(1 - a))
            gentle = 2 * k * np.log1p(-np.minimum(a, 0.5))
            log_kept = np.where(a < 0.5, gentle, log_kept)
            log_kept = np.where(k == 0, 0, log_kept)
            lost = -np.expm1(log_kept)
            waves = np.where(a * (2 - a) == 0, k, lost / (a * (2 - a)))
            moment = np.exp(log_kept) * self.initial + eta**2 / n * self.noise * waves
            loss = (self.curvature * moment).sum(-1) / 2
            return np.where(np.isnan(loss), np.inf, loss)[()]

    def ridge_loss(self, step_per_sample: Number, budget: Number) -> Number:
        """The limit of `loss` for small steps, at u = η/n and B = nK held.

            ½Σ{h·e^(−2huB)·x₀² + ½uσ²(1 − e^(−2huB))}

        The error is of relative order a = ηh of the directions that matter.

        Args:
            step_per_sample: u ≥ 0, shape [...].
            budget: B ≥ 0, shape [...].

        Returns:
            The loss, shape [...].

        Raises:
            ValueError: if an argument is out of range.
        """
        check_nonnegative("step_per_sample", step_per_sample)
        check_nonnegative("budget", budget)
        u, b = _columns(step_per_sample, budget)
        covered = 2 * self.curvature * u * b
        bias = self.curvature * np.exp(-covered) * self.initial
        noise = u * self.noise * -np.expm1(-covered) / 2
        return ((bias + noise).sum(-1) / 2)[()]

    def best_step_per_sample(self, budget: Number) -> Least:
        """The u of least `ridge_loss`, by search, and that loss.

        Args:
            budget: B > 0.

        Returns:
            u* and the loss; u* is 10⁻⁹/(hB) of the largest h where no step pays.

        Raises:
            ValueError: if the budget is not finite and positive.
        """
        check_positive("budget", budget)
        budget = floats("budget", budget)
        # Beyond 2huB = 200 in every direction a longer step only adds noise.
        low = 1e-9 / (float(self.curvature.max()) * budget)
        high = 1e2 / (float(self.curvature.min()) * budget)
        return least(lambda u: self.ridge_loss(u, budget), low, high)

    def best_outer_step(self, samples_per_update: Number, updates: Number) -> Least:
        """The stable η of least `loss`, by search, and that loss.

        Args:
            samples_per_update: n > 0, shape [...].
            updates: K > 0, shape [...].

        Returns:
            η* and the loss, shape [...].

        Raises:
            ValueError: if an argument is not finite and positive.
        """
        check_positive("samples_per_update", samples_per_update)
        check_positive("updates", updates)
        n, k = np.broadcast_arrays(*_floats(samples_per_update, updates))
        limit = 2 / float(self.curvature.max())
        return least(
            lambda eta: self.loss(eta, n, k),
            np.minimum(1e-9 / k, 0.5) * limit,
            np.full(k.shape, limit),
        )

    def ddr_noise(self, step_per_sample: Number) -> Number:
        """2/(u² tr Σ) at unit Fisher information, transitions per nat.

        Raises:
            ValueError: if u is not positive.
        """
        check_positive("step_per_sample", step_per_sample)
        if is_symbolic(step_per_sample):
            return 2 / (step_per_sample**2 * self.noise_trace)
        u = np.asarray(step_per_sample, dtype=np.float64)
        with np.errstate(divide="ignore"):
            return np.divide(2, u * u * self.noise_trace)[()]


def _columns(*numbers: Number) -> list[Array]:
    """Knobs as arrays [..., 1], to go with [direction]."""
    return [number[..., None] for number in _floats(*numbers)]


def _floats(*numbers: Number) -> list[Array]:
    return [np.asarray(number, dtype=np.float64) for number in numbers]
