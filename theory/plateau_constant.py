"""The constant of gap ∝ DDR^(−½), from curvature-free quantities: no fit.

At a plateau of small constant steps Δ = −ηPĝ the curvature cancels (derived here),

    gap = η tr(PΣ)/(4n),   KL = ½η² tr(PFPΣ)/n,   so   gap·√DDR = tr(PΣ)/√(8 tr(PFPΣ))

with F the Fisher information per transition and Σ the covariance of one transition's
gradient. Whatever the preconditioner P, the constant is at most the natural one,
√(tr(F⁻¹Σ)/8) (Cauchy–Schwarz), and its scale is irrelevant. Where optimiser momentum
crosses updates, or an averaged anchor is at work, multiply by `theory.kl.ddr_factor`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import Number, align, check_positive, decided, one_number
from theory.matrices import check_metric

Array = NDArray[np.float64]
Preconditioner = Callable[[Array, Array], Array]

# Eigenvalues of F below this share of the largest count as directions that no sample
# moves along. A policy's gradient has no part in them either, so nothing is lost.
NULL = 1e-10


def natural(fisher: Array, noise_covariance: Array) -> Array:
    """P = F⁺, the pseudo-inverse, as in a natural-gradient or KL-penalised step."""
    return np.asarray(np.linalg.pinv(fisher, rcond=NULL, hermitian=True))


def plain(fisher: Array, noise_covariance: Array) -> Array:
    """P = I, gradient descent."""
    return np.eye(len(fisher))


def adaptive(fisher: Array, noise_covariance: Array) -> Array:
    """P = diag(Σ)^(−½), as in Adam where noise dominates the gradient.

    Parameters without any gradient stay where they are.
    """
    spread = np.diag(noise_covariance)
    moved = spread > 0
    return np.diag(np.where(moved, 1, 0) / np.sqrt(np.where(moved, spread, 1)))


def ridged(share: float) -> Preconditioner:
    """P = (F + share·(tr F/d)·I)⁻¹, a damped natural step.

    Args:
        share: damping relative to the mean eigenvalue of F; above 0.

    Returns:
        The preconditioner, a function of F and Σ.

    Raises:
        ValueError: if the share is not finite and positive.
    """
    check_positive("share", share)
    part = one_number("share", share)

    def damped(fisher: Array, noise_covariance: Array) -> Array:
        level = part * np.trace(fisher) / len(fisher)
        return np.linalg.inv(fisher + level * np.eye(len(fisher)))

    return damped


def plateau_constant(
    fisher: ArrayLike,
    noise_covariance: ArrayLike,
    preconditioner: Preconditioner = natural,
) -> float:
    """gap·√DDR at a plateau of small steps: tr(PΣ)/√(8 tr(PFPΣ)).

    Args:
        fisher: F, shape [parameter, parameter].
        noise_covariance: Σ of one sample's gradient, same shape.
        preconditioner: makes P from F and Σ; `natural`, `plain`, `adaptive` or a
            function of one's own.

    Returns:
        The constant, loss·√(transitions/nat); 0 without noise.

    Raises:
        ValueError: if a matrix is not symmetric positive semi-definite, the shapes
            differ, or P moves along directions without Fisher information only.
    """
    f = check_metric("fisher", fisher)
    sigma = check_metric("noise_covariance", noise_covariance, len(f))
    p = preconditioner(f, sigma)
    above, below = float(np.sum(p * sigma)), float(np.sum((p @ f @ p) * sigma))
    if above <= 0 and below <= 0:
        return 0.0
    if not below > 0:
        msg = f"preconditioner gives tr(PFPΣ) = {below}; the steps must have some KL."
        raise ValueError(msg)
    return above / np.sqrt(8 * below)


def isotropic_constant(
    scaled_curvature: Number, noise_variance: Number, dimension: Number
) -> Number:
    """gap·√DDR of plain descent at any stable step: √(dσ²/(4(2−a))).

    Exact where all curvatures are alike and the Fisher information is the unit matrix
    (derived here); for a → 0 it is √(dσ²/8), the natural constant.

    Args:
        scaled_curvature: a = ηh, between 0 and 2.
        noise_variance: σ² per coordinate and sample.
        dimension: d.

    Returns:
        The constant, a float or sympy expression.

    Raises:
        ValueError: if a is not between 0 and 2 or an argument is not positive.
    """
    check_positive("scaled_curvature", scaled_curvature)
    check_positive("noise_variance", noise_variance)
    check_positive("dimension", dimension)
    a, noise, d, one = align(scaled_curvature, noise_variance, dimension, 1)
    if decided(a < 2) is False:
        msg = f"scaled_curvature is {scaled_curvature}; it must be below 2."
        raise ValueError(msg)
    return (d * noise / (4 * (2 - a))) ** (one / 2)
