"""The best constant step, and the best decaying one, when all curvatures are alike.

`laws.strongly_convex_optimum` gives the large-R asymptotics of the first function here.
Both optima solve e^y + y = 1 + A for the number y of half decay times that the budget
holds: y = ln ω(1 + A), ω the Wright omega function (derived here), and y ≈ ln A.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import wrightomega

from theory.arithmetic import Number, check_positive
from theory.laws import StronglyConvexOptimum


def isotropic_optimum(
    curvature: Number,
    initial_second_moment: Number,
    noise_variance: Number,
    dimension: Number,
    budget: Number,
) -> StronglyConvexOptimum:
    """The best constant step for a budget, for small a = ηh, without further limits.

    With R = 4h²x₀²B/σ² and y = ln ω(1 + R) (derived here):

        u* = y/(2hB)    loss = (dσ²/(8hB))(1 + y − e^(−y))    DDR = 8h²B²/(dσ²y²)

    Left free, η and n would be a = 1 and n = B, one Newton step with loss dσ²/(2hB):
    the isotropic case says nothing about the best batch.

    Args:
        curvature: h > 0, shape [...], as all arguments.
        initial_second_moment: x₀² > 0 per coordinate.
        noise_variance: σ² > 0 per coordinate, of one sample's gradient.
        dimension: d, number of coordinates.
        budget: B > 0, transitions.

    Returns:
        Step per sample, loss and DDR_noise at unit Fisher information.

    Raises:
        ValueError: if an argument is not finite and positive.
    """
    h, start, noise, d, b = _positive(
        curvature=curvature,
        initial_second_moment=initial_second_moment,
        noise_variance=noise_variance,
        dimension=dimension,
        budget=budget,
    )
    y = _half_lives(4 * h * h * start * b / noise)
    return StronglyConvexOptimum(
        step_per_sample=y / (2 * h * b),
        loss=d * noise / (8 * h * b) * (y - np.expm1(-y)),
        ddr=8 * h * h * b * b / (d * noise * y * y),
    )


@dataclass(frozen=True)
class FixedStepOptimum:
    """The best batch for a budget when the outer step is held.

    Attributes:
        samples_per_update: n*.
        loss: the expected gap at the end of the budget.
        ddr: DDR_noise, at unit Fisher information.
    """

    samples_per_update: Number
    loss: Number
    ddr: Number


def fixed_step_optimum(
    outer_step: Number,
    curvature: Number,
    initial_second_moment: Number,
    noise_variance: Number,
    dimension: Number,
    budget: Number,
) -> FixedStepOptimum:
    """The best samples per update at a given outer step, any 0 < a = ηh < 1.

    With w = 2B|ln(1−a)|, c = aσ²/(h²(2−a)), A = w·x₀²/c and y = ln ω(1 + A), exactly
    but for K = B/n not being whole (derived here):

        n* = w/y    loss = (dhc/(2w))(1 + y − e^(−y))    DDR = 2n*²/(η²dσ²)

    Args:
        outer_step: η > 0, shape [...], as all arguments.
        curvature: h > 0.
        initial_second_moment: x₀² > 0 per coordinate.
        noise_variance: σ² > 0 per coordinate, of one sample's gradient.
        dimension: d, number of coordinates.
        budget: B > 0, transitions.

    Returns:
        n*, loss and DDR_noise.

    Raises:
        ValueError: if an argument is not finite and positive, or a is not below 1.
    """
    eta, h, start, noise, d, b = _positive(
        outer_step=outer_step,
        curvature=curvature,
        initial_second_moment=initial_second_moment,
        noise_variance=noise_variance,
        dimension=dimension,
        budget=budget,
    )
    a = eta * h
    if np.any(a >= 1):
        msg = f"outer_step·curvature is {np.max(a)}; it must be below 1."
        raise ValueError(msg)
    w, c = -2 * b * np.log1p(-a), a * noise / (h * h * (2 - a))
    y = _half_lives(w * start / c)
    n = w / y
    return FixedStepOptimum(
        samples_per_update=n,
        loss=d * h * c / (2 * w) * (y - np.expm1(-y)),
        ddr=2 * n * n / (eta * eta * d * noise),
    )


@dataclass(frozen=True)
class DecayingStep:
    """A run whose outer step falls as 1/t.

    Attributes:
        loss: the expected gap at the end of the budget.
        ddr: DDR_noise of its last update.
    """

    loss: Number
    ddr: Number


def decaying_step(
    curvature: Number,
    noise_variance: Number,
    dimension: Number,
    budget: Number,
    scale: Number = 1,
) -> DecayingStep:
    """The end of a run with η_t = k/(ht) in update t = 1, 2, … (Robbins & Monro 1951).

        loss → dk²σ²/(2(2k−1)hB)    DDR_t = 2h²(samples so far)²/(k²dσ²)

    For k = 1 the loss is dσ²/(2hB), exactly, for any start and batch: x is the mean of
    all noise so far. For other k > ½ it is the limit of many updates. The DDR of an
    update grows as t², so a decaying run has no one DDR, and no truncated run stands
    for a smaller budget.

    Args:
        curvature: h > 0, shape [...], as all arguments.
        noise_variance: σ² > 0 per coordinate, of one sample's gradient.
        dimension: d, number of coordinates.
        budget: B > 0, transitions.
        scale: k > ½.

    Returns:
        Loss and the DDR_noise of the last update, at unit Fisher information.

    Raises:
        ValueError: if an argument is not finite and positive, or k is not above ½.
    """
    h, noise, d, b, k = _positive(
        curvature=curvature,
        noise_variance=noise_variance,
        dimension=dimension,
        budget=budget,
        scale=scale,
    )
    if np.any(k <= 0.5):
        msg = f"scale is {scale}; at 1/2 or below the start is not forgotten in time."
        raise ValueError(msg)
    return DecayingStep(
        loss=d * k * k * noise / (2 * (2 * k - 1) * h * b),
        ddr=2 * h * h * b * b / (k * k * d * noise),
    )


def _half_lives(signal: Number) -> Number:
    """The y of e^y + y = 1 + A, to rounding also for small A (one step of Newton's)."""
    y = np.log(wrightomega(1 + signal))
    return y - (np.expm1(y) + y - signal) / (np.exp(y) + 1)


def _positive(**numbers: Number) -> list[Number]:
    for name, number in numbers.items():
        check_positive(name, number)
    return [np.asarray(number, dtype=np.float64)[()] for number in numbers.values()]
