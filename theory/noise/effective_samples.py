"""What correlated transitions are worth, within an update and from one to the next.

N environments are independent; the T transitions of one are not. A batch's mean then
varies as one of n_eff ≤ N·T independent samples, and scaling N and T is not the same:
once T exceeds the correlation time, n_eff grows with both; below it, with N alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import (
    Number,
    align,
    check_positive,
    decided,
    floats,
    one_number,
)
from theory.jackknife import standard_error

Array = NDArray[np.float64]

ROUNDING = 1e-14


@dataclass(frozen=True)
class EffectiveSamples:
    """An estimate of n_eff.

    Attributes:
        value: independent samples, transitions; above N·T where neighbours are
            negatively correlated.
        standard_error: by the jackknife over environments; inf where those left by
            leaving one out have one mean.
        nominal: N·T.
    """

    value: float
    standard_error: float
    nominal: int

    @property
    def share(self) -> float:
        """n_eff/(N·T)."""
        return self.value / self.nominal


def correlated_samples(
    correlations: ArrayLike, num_envs: Number, rollout_length: int
) -> float:
    """n_eff of the mean over N environments and T transitions. Exact (M; derived here).

        n_eff = N·T/(1 + 2 Σ_{0<k<T} (1 − k/T)·ρ_k)

    For T far beyond the correlation time this is N·T/(1 + 2Σρ_k).

    Args:
        correlations: ρ₁, ρ₂, … of a stationary series, shape [lag]; 0 beyond the last.
        num_envs: N > 0.
        rollout_length: T ≥ 1.

    Returns:
        n_eff, transitions; inf where the terms cancel.

    Raises:
        ValueError: if a correlation is outside [−1, 1], the correlations are not those
            of any series of this length, or a number is out of range.
    """
    rho = floats("correlations", correlations)
    if rho.ndim != 1 or not np.all(np.abs(rho) <= 1):
        msg = "correlations must be of shape [lag] and between -1 and 1."
        raise ValueError(msg)
    check_positive("num_envs", num_envs)
    envs = one_number("num_envs", num_envs)
    if not 1 <= one_number("rollout_length", rollout_length) < np.inf:
        raise ValueError(f"rollout_length is {rollout_length}; it must be at least 1.")
    lags = np.arange(1, min(len(rho), rollout_length - 1) + 1)
    factor = 1 + 2 * float(((1 - lags / rollout_length) * rho[: len(lags)]).sum())
    if factor < -1e-12:
        msg = (
            f"correlations make a variance of {factor} per sample; no series has them."
        )
        raise ValueError(msg)
    return float("inf") if factor <= 0 else envs * rollout_length / factor


def effective_samples(series: ArrayLike) -> EffectiveSamples:
    """n_eff from data, with environments as the independent units.

    The variance of one transition over that of an environment's mean, times N: no
    correlation is estimated, so no lag has to be chosen. Use it on what enters the
    gradient (a component of the score times the advantage), not on rewards.

    Args:
        series: shape [env, time], at least 3 environments.

    Returns:
        The estimate; consistent for many environments, above the truth by 6 % on
        average for 30 of them, 27 % for 10 and twofold for 5 (independent normal
        transitions, T = 8).

    Raises:
        ValueError: if there are fewer than 3 environments, a value is not finite, or
            nothing varies.
    """
    values = floats("series", series)
    if values.ndim != 2 or len(values) < 3 or not values.shape[1]:
        msg = f"series has shape {values.shape}; it must be [env, time], env ≥ 3."
        raise ValueError(msg)
    if not np.all(np.isfinite(values)):
        raise ValueError("series holds a number that is not finite.")
    centred, envs = values - values.mean(), len(values)
    mean, square = centred.mean(axis=1), (centred**2).mean(axis=1)
    if np.ptp(mean) <= ROUNDING * np.abs(values).max():
        raise ValueError("series has environments of one mean; nothing varies.")
    sums = (mean, mean**2, square)
    value = _estimate(tuple(x.sum() for x in sums), envs)
    left_out = _estimate(tuple(x.sum() - x for x in sums), envs - 1) * envs / (envs - 1)
    return EffectiveSamples(float(value), standard_error(left_out), values.size)


def _estimate(sums: tuple[Number, ...], envs: int) -> Number:
    """N·Var(transition)/Var(environment's mean), from sums over environments.

    Both variances are unbiased; that of one transition is the mean square about the
    batch's mean, plus the variance of that mean.
    """
    mean, mean_square, square = sums
    centre = (mean / envs) ** 2
    between = (mean_square / envs - centre) * envs / (envs - 1)
    single = square / envs - centre + between / envs
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(between > 0, envs * single / between, np.inf)[()]


def persistence_factor(scaled_curvature: Number, correlation: Number) -> Number:
    """What noise that is correlated from update to update does to a plateau.

    Environments that live on across updates, short rollouts and replayed data make the
    gradient noise ξ_t of `outer.sgd` correlated. For E ξ_tξ_{t+k} = s²φ^k the plateau
    E x² is that of fresh noise times (derived here; exact)

        (1 + φ(1−a))/(1 − φ(1−a))        → (1+φ)/(1−φ) as a → 0

    so that n samples per update are worth n over this factor. At a = 1 it is 1: a loop
    without memory does not see the correlation; for a > 1 correlation helps.

    Args:
        scaled_curvature: a = ηh, 0 < a < 2.
        correlation: φ, between −1 and 1.

    Returns:
        The factor; exact for exact numbers.

    Raises:
        ValueError: if an argument is out of range.
    """
    a, phi = align(scaled_curvature, correlation)
    if decided((a > 0) & (a < 2)) is False:
        msg = f"scaled_curvature is {scaled_curvature}; it must be above 0 and below 2."
        raise ValueError(msg)
    if decided((phi > -1) & (phi < 1)) is False:
        msg = f"correlation is {correlation}; it must be above -1 and below 1."
        raise ValueError(msg)
    kept = phi * (1 - a)
    return (1 + kept) / (1 - kept)
