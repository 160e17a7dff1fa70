"""Averages of plain descent's iterates that are not fed back into the loop.

A policy that is evaluated but never collects. With ρ = 1−a, the iterates of a
stationary `sgd` (or `multiplicative`) loop have the covariances Vρ^|i−j|.
"""

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    where,
    whole_number,
)
from theory.outer.inner import share_covered
from theory.outer.loop import Loop
from theory.outer.plain import Multiplicative, Sgd


def ema_variance(
    loop: Loop, com_updates: Number, noise_variance: Number, samples_per_update: Number
) -> Number:
    """Variance of an exponential average e' = βe + (1−β)x' of the iterates.

        E e² = V·(1 + 2c − ca)/((1+2c)(1 + ca))

    that is V(1−β)/(1+β)·(1+βρ)/(1−βρ); stationary, for 0 < a < 2 (derived here).

    Args:
        loop: `sgd` or `multiplicative`, stable.
        com_updates: c ≥ 0, centre of mass in updates; 0 is no averaging.
        noise_variance: σ², the variance of one sample's gradient.
        samples_per_update: n.

    Returns:
        E e² ≤ V; exact for exact numbers, inf in unstable array cells.

    Raises:
        ValueError: if the loop is another one or unstable, or an argument is invalid.
    """
    check_nonnegative("com_updates", com_updates)
    a, variance, c = _stationary(loop, noise_variance, samples_per_update, com_updates)
    share = (1 + 2 * c - c * a) / ((1 + 2 * c) * (1 + c * a))
    return where(loop.stable, lambda: variance * share, np.inf)


def window_variance(
    loop: Loop, window: Number, noise_variance: Number, samples_per_update: Number
) -> Number:
    """Variance of the mean of k successive iterates.

        W = (V/k)·((1+ρ)/(1−ρ) − 2ρ(1−ρᵏ)/(k(1−ρ)²))

    stationary, for 0 < a < 2 (derived here). For `sgd`, whatever the step, kW → s²/h²
    as k → ∞ (Polyak & Juditsky 1992):

        |W − s²/(h²k)| ≤ 4s²/(h²k²a(2−a)), and half that for a ≤ 1

    Floats lose about 10⁻¹⁶/(ka), relatively.

    Args:
        loop: `sgd` or `multiplicative`, stable.
        window: k ≥ 1, a whole number of iterates; 1 is no averaging.
        noise_variance: σ², the variance of one sample's gradient.
        samples_per_update: n.

    Returns:
        W ≤ V; exact for exact numbers, inf in unstable array cells.

    Raises:
        ValueError: if the loop is another one or unstable, or an argument is invalid.
    """
    count = whole_number("window", window)
    if np.any(count == 0):
        msg = f"window is {window}; it must hold at least 1 iterate."
        raise ValueError(msg)
    a, variance, k = _stationary(loop, noise_variance, samples_per_update, count)
    left = 2 * (1 - a) * share_covered(a, count) / (k * a)
    return where(loop.stable, lambda: variance / k * (2 - a - left) / a, np.inf)


def _stationary(
    loop: Loop, noise_variance: Number, samples_per_update: Number, size: Number
) -> tuple[Number, Number, Number]:
    """The dimensionless step, the iterates' variance and a number, of one kind."""
    if not isinstance(loop, Sgd | Multiplicative):
        msg = f"loop is {loop}; it must be sgd or multiplicative."
        raise ValueError(msg)
    state = loop.stationary(noise_variance, samples_per_update)
    step = loop.outer_step * loop.curvature
    a, variance, number = align(step, state.acting_variance, size)
    return a, variance, number
