"""The gradient noise scale B_simple = tr Σ/|g|², from two batch sizes.

E|ĝ_n|² = |g|² + tr Σ/n for the mean gradient ĝ_n of n independent samples: two sizes
give two equations (after McCandlish et al. 2018, appendix A.1; derived again here). In
reinforcement learning the independent samples are trajectories or environments, and n
counts them; transitions of one rollout are correlated (`effective_samples`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import Number, check_nonnegative, check_positive, floats
from theory.noise.ratio import Ratio, ratio_of_means

Array = NDArray[np.float64]


class GradientMoments(NamedTuple):
    """Unbiased estimates of one batch; average them over batches, then divide.

    Attributes:
        signal: of |g|²; negative where the noise happened to hide the signal.
        noise: of tr Σ, of one sample.
    """

    signal: Number
    noise: Number


def gradient_moments(
    small_square: Number,
    large_square: Number,
    small: Number,
    large: Number,
) -> GradientMoments:
    """|g|² and tr Σ from squared norms of gradients of two batch sizes.

        signal = (n₂|ĝ₂|² − n₁|ĝ₁|²)/(n₂ − n₁)    noise = (|ĝ₁|² − |ĝ₂|²)/(1/n₁ − 1/n₂)

    Unbiased, whether or not the small batch is part of the large one.

    Args:
        small_square: |ĝ₁|² of the small batch (or its mean over several), shape [...].
        large_square: |ĝ₂|² of the large batch, same shape.
        small: n₁ > 0 samples.
        large: n₂ > n₁ samples.

    Returns:
        Both estimates, shape [...].

    Raises:
        ValueError: if a number is negative or not finite, or n₂ ≤ n₁.
    """
    check_nonnegative("small_square", small_square)
    check_nonnegative("large_square", large_square)
    check_positive("small", small)
    if not np.all(np.asarray(large) > np.asarray(small)):
        raise ValueError(f"large is {large}; it must be above small, {small}.")
    check_positive("large", large)
    one, two = np.asarray(small_square, float), np.asarray(large_square, float)
    return GradientMoments(
        signal=((large * two - small * one) / (large - small))[()],
        noise=((one - two) / (1 / small - 1 / large))[()],
    )


def group_moments(gradients: ArrayLike, samples_per_group: Number) -> GradientMoments:
    """The same from mean gradients of equal groups, for instance one per device.

    The groups are the small batches, their mean is the gradient of the large one.

    Args:
        gradients: shape [..., group, parameter], at least two independent groups.
        samples_per_group: n₁ > 0, independent samples behind each.

    Returns:
        Both estimates, shape [...].

    Raises:
        ValueError: if there are fewer than two groups or a number is not finite.
    """
    values = floats("gradients", gradients)
    if values.ndim < 2 or values.shape[-2] < 2:
        msg = (
            f"gradients has shape {values.shape}; it must be [..., group, parameter] "
            "with at least 2 groups."
        )
        raise ValueError(msg)
    groups = values.shape[-2]
    small = np.sum(values**2, axis=-1).mean(axis=-1)
    large = np.sum(values.mean(axis=-2) ** 2, axis=-1)
    return gradient_moments(small, large, samples_per_group, groups * samples_per_group)


def noise_scale(signal: ArrayLike, noise: ArrayLike) -> Ratio:
    """B_simple = tr Σ/|g|² from unbiased parts, in the samples that they counted.

    At the plateau of `outer.sgd` on an isotropic quadratic it is n(2 − a)/a: the noise
    scale there tells the dimensionless step a = 2n/(n + B_simple), not the task.

    Args:
        signal: estimates of |g|², shape [unit].
        noise: estimates of tr Σ, same shape.

    Returns:
        The ratio of their means. "unresolved" means that the signal is not told from 0,
        and the noise scale has no upper bound.

    Raises:
        ValueError: if the shapes differ or a number is not finite.
    """
    return ratio_of_means(noise, signal)
