"""KL per update: what it says of the gap, what it is made of, what it adds up to.

One update moves the parameters by Δ = −ηPĝ, a batch of n samples giving the gradient
ĝ = g + ξ with Cov ξ = Σ/n; F is the Fisher information, so that KL ≈ ½ΔᵀFΔ for small
steps, and DDR = n/E KL. P = F⁻¹ is the natural step.

- `stationary_gap`: at a plateau the KL gives the gap, without a fit.
- `step_kl`: signal and noise parts of the KL of one step.
- `ddr_factor`: what a loop with memory does to the constant of gap ∝ DDR^(−½).
- `path_length`, `largest_ddr`: how much KL a run needs to get anywhere.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import (
    Number,
    align,
    check_finite,
    check_nonnegative,
    check_positive,
    floats,
    where,
)
from theory.matrices import check_metric, check_vector
from theory.outer.loop import Loop

Array = NDArray[np.float64]


def stationary_gap(
    kl_per_update: Number, outer_step: Number, momentum: Number = 0
) -> Number:
    """The gap of a plateau from the KL of its updates: (1+μ)·KL/(2η).

    Exact for natural steps Δ = −ηF⁻¹ĝ on a quadratic, for any F, curvature, noise and
    stable η (derived here: E xᵀFx does not drift). For another preconditioner P put
    ½E ΔᵀP⁻¹Δ for the KL; outer momentum, Δ' = −ηF⁻¹ĝ + μΔ, gives the factor 1+μ.
    An averaged anchor breaks it, which shows that one is at work.

    Args:
        kl_per_update: E KL(policy before ‖ policy after), nats.
        outer_step: η > 0.
        momentum: μ, between −1 and 1.

    Returns:
        The expected gap, in units of the loss; exact for exact numbers.

    Raises:
        ValueError: if the KL is negative, η is not positive or |μ| ≥ 1.
    """
    check_nonnegative("kl_per_update", kl_per_update)
    check_positive("outer_step", outer_step)
    check_momentum(momentum)
    kl, eta, mu = align(kl_per_update, outer_step, momentum)
    return (1 + mu) * kl / (2 * eta)


@dataclass(frozen=True)
class StepKl:
    """The KL of one update, by cause.

    Attributes:
        signal: ½η²gᵀPFPg, from the true gradient.
        noise: ½η²tr(PFPΣ)/n, from the batch.
        samples_per_update: n.
    """

    signal: Number
    noise: Number
    samples_per_update: Number

    @property
    def total(self) -> Number:
        """Their sum: the cross term has mean 0."""
        return self.signal + self.noise

    @property
    def ddr(self) -> Number:
        """Samples per nat of KL; inf for a step that does not move."""
        return _ratio(self.samples_per_update, self.total)

    @property
    def ddr_noise(self) -> Number:
        """Samples per nat of noise KL."""
        return _ratio(self.samples_per_update, self.noise)

    @property
    def noise_scale(self) -> Number:
        """n·noise/signal: the batch at which both parts are alike.

        It is B_simple = tr Σ/|g|² where PFP is a multiple of the identity, and
        tr(F⁻¹Σ)/gᵀF⁻¹g for natural steps; else neither.
        """
        return _ratio(self.samples_per_update * self.noise, self.signal)


def step_kl(
    gradient: ArrayLike,
    noise_covariance: ArrayLike,
    fisher: ArrayLike,
    outer_step: Number,
    samples_per_update: Number,
    preconditioner: ArrayLike | None = None,
) -> StepKl:
    """Expected KL of one step Δ = −ηPĝ, to second order in Δ.

        E KL = ½η²[gᵀPFPg + tr(PFPΣ)/n]

    Args:
        gradient: g, shape [parameter].
        noise_covariance: Σ of one sample, shape [parameter, parameter].
        fisher: F, same shape.
        outer_step: η ≥ 0.
        samples_per_update: n > 0.
        preconditioner: P, same shape; F⁻¹ (on the range of F) if not given.

    Returns:
        Signal and noise parts.

    Raises:
        ValueError: if a matrix is not symmetric, not positive semi-definite or of
            another shape, or a number is invalid.
    """
    g = check_vector("gradient", gradient)
    sigma = check_metric("noise_covariance", noise_covariance, len(g))
    f = check_metric("fisher", fisher, len(g))
    check_nonnegative("outer_step", outer_step)
    check_positive("samples_per_update", samples_per_update)
    if preconditioner is None:
        metric = np.linalg.pinv(f, hermitian=True)
    else:
        p = check_metric("preconditioner", preconditioner, len(g))
        metric = p @ f @ p
    eta, n = align(outer_step, samples_per_update)
    half = eta * eta / 2
    noise = half * float(np.sum(metric * sigma)) / n
    return StepKl(half * float(g @ metric @ g), noise, n)


def noise_ddr(ddr: Number, samples_per_update: Number, noise_scale: Number) -> Number:
    """DDR_noise = DDR·(1 + n/B), what DDR would be without the signal.

    B is `StepKl.noise_scale`, the noise scale in the metric PFP of the step. It is
    B_simple only for natural steps (measured in F⁻¹) and isotropic problems; elsewhere
    measure the noise KL itself.

    Args:
        ddr: n/E KL, transitions per nat.
        samples_per_update: n.
        noise_scale: B.

    Returns:
        Transitions per nat of noise KL; exact for exact numbers.

    Raises:
        ValueError: if an argument is not finite and positive.
    """
    check_positive("ddr", ddr)
    check_positive("samples_per_update", samples_per_update)
    check_positive("noise_scale", noise_scale)
    ddr, n, scale = align(ddr, samples_per_update, noise_scale)
    return ddr * (1 + n / scale)


def ddr_factor(loop: Loop) -> Number:
    """gap·√DDR of a loop, relative to plain descent with small steps.

    Plain descent gives gap·√DDR = √(σ²/8) per direction at unit Fisher information, and
    √(2/(2−a)) times that at a finite a = ηh. With L and KL the loop's stationary loss
    and KL per update for σ² = n = 1, the factor is

        L·√(8/KL)

    Heavy ball: (1+μ)√(2/((1−μ)(2(1+μ)−a))), towards √((1+μ)/(1−μ)) for small a.

    In this model one constant therefore serves every step size, batch size and
    preconditioned direction of one kind of loop, but not two kinds: under an averaged
    anchor the factor falls with the centre of mass while the KL per update rises, so
    that a lower plateau comes with a lower DDR and DDR puts such runs in the wrong
    order.

    Args:
        loop: any loop of `theory.outer`.

    Returns:
        The factor, a float or a sympy expression; inf in unstable array cells.

    Raises:
        ValueError: if the loop is a scalar and unstable.
    """
    samples = getattr(loop, "samples_per_update", 1)
    state = loop.stationary(1, samples)
    loss, kl, n, half = align(state.loss, state.kl_per_update, samples, 1)
    return where(loop.stable, lambda: (8 * n * loss * loss / kl) ** (half / 2), np.inf)


def path_length(kl_per_update: ArrayLike) -> Number:
    """Σ√(2·KL_t): the Fisher length of the path, hence at least the distance covered.

    At most √(2K·ΣKL) for K updates (Cauchy–Schwarz). With a constant Fisher
    information the bound is exact; elsewhere to second order in each step.

    Args:
        kl_per_update: nats, shape [..., update].

    Returns:
        Length in √nats, shape [...].

    Raises:
        ValueError: if a KL is negative or not finite.
    """
    values = floats("kl_per_update", kl_per_update)
    check_nonnegative("kl_per_update", values)
    if values.ndim == 0:
        msg = "kl_per_update is a single number; it must hold one KL per update."
        raise ValueError(msg)
    return np.sqrt(2 * values).sum(-1)[()]


def largest_ddr(budget: Number, samples_per_update: Number, distance: Number) -> Number:
    """2B²/(nD²): the largest DDR of a run that covers a Fisher distance.

    K = B/n updates that cover D need K·ΣKL ≥ ½D² (see `path_length`), and the DDR of
    the run is B/ΣKL (derived here).

    Args:
        budget: B, transitions of the whole run.
        samples_per_update: n.
        distance: D = √(xᵀFx), of the start from the end.

    Returns:
        Transitions per nat; exact for exact numbers.

    Raises:
        ValueError: if an argument is not finite and positive.
    """
    check_positive("budget", budget)
    check_positive("samples_per_update", samples_per_update)
    check_positive("distance", distance)
    b, n, d = align(budget, samples_per_update, distance)
    return 2 * b * b / (n * d * d)


def check_momentum(momentum: Number) -> None:
    """Refuse a momentum that is not between −1 and 1.

    Raises:
        ValueError: if it is not.
    """
    check_finite("momentum", momentum)
    if np.any(np.abs(np.asarray(momentum, dtype=np.float64)) >= 1):
        msg = f"momentum is {momentum}; it must be between -1 and 1."
        raise ValueError(msg)


def _ratio(above: Number, below: Number) -> Number:
    with np.errstate(all="ignore"):
        return np.divide(above, below)
