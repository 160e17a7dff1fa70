"""What a larger batch buys in one best-sized step, and in a whole run.

McCandlish, Kaplan & Amodei 2018: on a quadratic with curvature H, at the gradient g of
one sample's noise Σ, the step −εĝ with a batch of n changes the loss by

    −ε|g|² + ½ε²(gᵀHg + tr(HΣ)/n)

which is least at ε = ε_max/(1 + B/n), ε_max = |g|²/gᵀHg and B = tr(HΣ)/gᵀHg.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.arithmetic import Number, align, check_positive, decided
from theory.matrices import check_metric, check_vector


@dataclass(frozen=True)
class BestStep:
    """The best plain gradient step at one point, as a function of the batch.

    Attributes:
        largest_step: ε_max, of an infinite batch.
        largest_gain: |g|⁴/(2gᵀHg), the fall of the loss it buys.
        noise_scale: B = tr(HΣ)/gᵀHg; B_simple = tr Σ/|g|² where H is a multiple of
            the identity.
    """

    largest_step: Number
    largest_gain: Number
    noise_scale: Number

    def step(self, samples_per_update: Number) -> Number:
        """ε = ε_max/(1 + B/n)."""
        return self.largest_step * self._share(samples_per_update)

    def gain(self, samples_per_update: Number) -> Number:
        """The expected fall of the loss, |g|⁴/(2gᵀHg)/(1 + B/n)."""
        return self.largest_gain * self._share(samples_per_update)

    def _share(self, samples_per_update: Number) -> Number:
        check_positive("samples_per_update", samples_per_update)
        n, scale = align(samples_per_update, self.noise_scale)
        return n / (n + scale)


def best_step(
    gradient: ArrayLike, curvature: ArrayLike, noise_covariance: ArrayLike
) -> BestStep:
    """The best step −εĝ at a point of a quadratic.

    Args:
        gradient: g, shape [parameter].
        curvature: H, shape [parameter, parameter], positive semi-definite.
        noise_covariance: Σ of one sample, same shape.

    Returns:
        Step and gain for every batch size.

    Raises:
        ValueError: if a matrix is not symmetric positive semi-definite, shapes differ,
            or the loss does not curve along the gradient.
    """
    g = check_vector("gradient", gradient)
    h = check_metric("curvature", curvature, len(g))
    sigma = check_metric("noise_covariance", noise_covariance, len(g))
    bend, square = float(g @ h @ g), float(g @ g)
    if not bend > 0:
        msg = f"curvature gives gᵀHg = {bend}; the loss must curve along the gradient."
        raise ValueError(msg)
    return BestStep(
        largest_step=square / bend,
        largest_gain=square * square / (2 * bend),
        noise_scale=float(np.sum(h * sigma)) / bend,
    )


def samples_needed(
    updates: Number, least_updates: Number, least_samples: Number
) -> Number:
    """Samples to a target in S updates, from (S/S_min − 1)(E/E_min − 1) = 1.

    Exact where B is the same at every point of the way and every step is the best one;
    E_min/S_min is then B (McCandlish et al. 2018).

    Args:
        updates: S, above S_min.
        least_updates: S_min, of very large batches.
        least_samples: E_min, of very small ones.

    Returns:
        E; exact for exact numbers.

    Raises:
        ValueError: if an argument is not positive or S is not above S_min.
    """
    check_positive("updates", updates)
    check_positive("least_updates", least_updates)
    check_positive("least_samples", least_samples)
    s, least, samples = align(updates, least_updates, least_samples)
    if decided(s > least) is False:
        msg = f"updates is {updates}; it must be above least_updates, {least_updates}."
        raise ValueError(msg)
    return samples * s / (s - least)
