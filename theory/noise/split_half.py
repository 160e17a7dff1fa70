"""Signal and noise of the outer step, from two halves of a batch.

From one θ_k the inner loop runs on two disjoint halves of the environments, with as
many gradient steps (so half the minibatch), and the outer learning rate is applied.

Why the factors are ¼ and ½ (derived here). Let the loop be linear in the gradient, so
that the step of the whole batch is S + e with signal S and noise e, Cov e = C, and
those of the halves S + e₁ and S + e₂, independent, Cov eᵢ = 2C: half the samples.
With KL ≈ ½ΔᵀFΔ,

    E KL(1‖2) = ½ tr F(2C + 2C) = 2 tr FC          noise  ½ tr FC = ¼·E KL(1‖2)
    KL(k‖1) + KL(k‖2) − KL(1‖2) = (S+e₁)ᵀF(S+e₂)   signal ½ SᵀFS = ½·E of the left

Any linear loop will do: several gradient steps, momentum, σ. Their sum is the KL of the
whole batch's step on average. Biased where the step is not linear in the gradient, and
where the halves are not independent (levels shared between environments).

A step that divides by the size of the gradient it sees (sign, Adam that starts afresh,
a clipped norm) is smaller for a half, whose gradient is noisier. Where noise is all of
that size both parts read ½ of the truth, and their ratio holds (derived here); where
the signal is nearly all of it, the noise can read several times too high. Second
moments that last many updates are shared by the halves, and little of this is left.
Simulated, 16 steps of Adam on a quadratic: noise at .63 of the truth afresh, .89 from a
state kept with β₂ = .99, .97 with .999.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from theory.arithmetic import Number, align, check_nonnegative, check_positive
from theory.noise.ratio import RESOLVED, Ratio, ddr, ratio_of_means
from theory.unit_mean import UnitMean, unit_mean


class OuterParts(NamedTuple):
    """The KL of one update by cause, in nats.

    Attributes:
        signal: `outer_signal_kl`; negative where the halves happened to disagree.
        noise: `outer_noise_kl`.
    """

    signal: Number
    noise: Number


def outer_parts(kl_first: Number, kl_second: Number, kl_between: Number) -> OuterParts:
    """Signal and noise KL of the whole batch's step, from those of its halves.

        noise = ¼·KL(1‖2)        signal = ½·[KL(k‖1) + KL(k‖2) − KL(1‖2)]

    Args:
        kl_first: KL(policy before ‖ policy of the first half), nats.
        kl_second: KL(policy before ‖ policy of the second half).
        kl_between: KL(first ‖ second).

    Returns:
        Both parts; exact for exact numbers.

    Raises:
        ValueError: if a KL is negative or not finite.
    """
    check_nonnegative("kl_first", kl_first)
    check_nonnegative("kl_second", kl_second)
    check_nonnegative("kl_between", kl_between)
    one, two, between = align(kl_first, kl_second, kl_between)
    return OuterParts(signal=(one + two - between) / 2, noise=between / 4)


@dataclass(frozen=True)
class SplitHalf:
    """The meter over a stretch of updates.

    Attributes:
        signal: signal KL per update, nats, a mean over units.
        noise: noise KL per update, likewise.
        ddr_noise: transitions per nat of noise KL.
        noise_scale: transitions at which signal and noise KL would be equal.
        status: "resolved" where the signal is told from 0, else "unresolved".
    """

    signal: UnitMean
    noise: UnitMean
    ddr_noise: Ratio
    noise_scale: Ratio

    @property
    def status(self) -> str:
        """That of the noise scale, whose denominator is the signal."""
        return self.noise_scale.status

    @property
    def resolved(self) -> bool:
        """Whether the signal is three standard errors above zero."""
        return self.status == RESOLVED


def split_half(
    kl_first: ArrayLike,
    kl_second: ArrayLike,
    kl_between: ArrayLike,
    samples_per_update: Number,
) -> SplitHalf:
    """The meter's readings, averaged over independent units.

    Args:
        kl_first: KL(before ‖ first half), nats, shape [unit]: seeds (each averaged over
            its updates), or updates further apart than the loop's memory.
        kl_second: KL(before ‖ second half), same shape.
        kl_between: KL(first ‖ second), same shape.
        samples_per_update: n of the whole batch, transitions.

    Returns:
        Means, standard errors, DDR_noise and the noise scale, as ratios of means.

    Raises:
        ValueError: if the shapes differ, or a number is out of range.
    """
    check_positive("samples_per_update", samples_per_update)
    shapes = {np.shape(kl) for kl in (kl_first, kl_second, kl_between)}
    if len(shapes) > 1:
        raise ValueError(f"the three KLs have shapes {shapes}; they must agree.")
    if shapes <= {(), (0,)}:
        raise ValueError(f"the three KLs have shape {shapes.pop()}, not [unit].")
    parts = outer_parts(*(np.asarray(k) for k in (kl_first, kl_second, kl_between)))
    signal, noise = (np.asarray(part, dtype=np.float64) for part in parts)
    samples = np.full(noise.shape, float(samples_per_update))
    return SplitHalf(
        signal=unit_mean(signal),
        noise=unit_mean(noise),
        ddr_noise=ddr(samples, noise),
        noise_scale=ratio_of_means(samples * noise, signal),
    )
