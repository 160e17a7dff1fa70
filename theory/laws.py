"""Laws of the gap after a finite budget, as functions of budget and DDR.

What to use when:

- `JointLaw`: the law to fit; its exponents follow from the model.
- `FreeLaw`: the same shape with free exponents, to test those of `JointLaw` against.
- `strongly_convex_optimum`: all curvatures alike and known; nothing to fit.
- `flatness`: what a wrong DDR costs, without any data.

Symbols: B budget (transitions), D DDR_noise (transitions per nat), E floor, A bias,
C noise, s source exponent, b and d budget and DDR exponents of the bias, γ exponent of
the noise. The laws hold for a constant step throughout the run.
"""

from dataclasses import dataclass, fields

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    decided,
    is_symbolic,
    logarithm,
)


@dataclass(frozen=True)
class FreeLaw:
    """gap = E + A·B^(−b)·D^d + C·D^(−γ).

    Attributes:
        floor: E ≥ 0, what no budget removes.
        bias: A ≥ 0, of the part of the start that is not yet forgotten.
        noise: C ≥ 0, of the plateau.
        budget_exponent: b ≥ 0; 0 makes the best DDR independent of the budget.
        ddr_exponent: d ≥ 0.
        noise_exponent: γ > 0.
    """

    floor: Number
    bias: Number
    noise: Number
    budget_exponent: Number
    ddr_exponent: Number
    noise_exponent: Number

    def __post_init__(self) -> None:
        for field in fields(self):
            check = check_nonnegative
            if field.name == "noise_exponent":
                check = check_positive
            check(field.name, getattr(self, field.name))

    @property
    def optimum_exponent(self) -> Number:
        """Growth of the optimum, d log D*/d log B = b/(d+γ)."""
        b, d, gamma = align(
            self.budget_exponent, self.ddr_exponent, self.noise_exponent
        )
        return b / (d + gamma)

    def gap(self, budget: Number, ddr: Number) -> Number:
        """The gap after a budget, run throughout at a DDR.

        Args:
            budget: B > 0, transitions.
            ddr: D > 0, transitions per nat of noise KL.

        Returns:
            The gap; inf where the bias overflows.

        Raises:
            ValueError: if an argument is not finite and positive.
        """
        check_positive("budget", budget)
        check_positive("ddr", ddr)
        floor, bias, noise, b, d, gamma, budget, ddr = self._aligned(budget, ddr)
        if is_symbolic(floor, bias, noise, b, d, gamma, budget, ddr):
            return floor + bias * budget**-b * ddr**d + noise * ddr**-gamma
        with np.errstate(all="ignore"):
            # Through logarithms, so that a large B^b and D^d cancel before overflow.
            left = bias * np.exp(d * np.log(ddr) - b * np.log(budget))
            return (floor + np.where(bias == 0, 0, left) + noise * ddr**-gamma)[()]

    def best_ddr(self, budget: Number) -> Number:
        """The DDR of least gap: D* = (γC/(dA))^(1/(d+γ))·B^(b/(d+γ)).

        Args:
            budget: B > 0, transitions.

        Returns:
            D*; inf where no DDR raises the bias (A or d is 0), 0 without noise, nan
            where both hold (every DDR is as good).

        Raises:
            ValueError: if the budget is not finite and positive.
        """
        check_positive("budget", budget)
        _, bias, noise, b, d, gamma, budget = self._aligned(budget)
        if is_symbolic(bias, noise, b, d, gamma, budget):
            ratio = gamma * noise / (d * bias)
            return ratio ** (1 / (d + gamma)) * budget ** (b / (d + gamma))
        with np.errstate(all="ignore"):
            ratio = np.log(gamma * noise) - np.log(d * bias)
            return np.exp((ratio + b * np.log(budget)) / (d + gamma))[()]

    def best_gap(self, budget: Number) -> Number:
        """The least gap, E + (1 + d/γ)·A·B^(−b)·(D*)^d, in a form safe at every limit.

        Args:
            budget: B > 0, transitions.

        Returns:
            The infimum over DDR; attained at `best_ddr` where that is finite.

        Raises:
            ValueError: if the budget is not finite and positive.
        """
        check_positive("budget", budget)
        floor, bias, noise, b, d, gamma, budget = self._aligned(budget)
        stay, go = d / (d + gamma), gamma / (d + gamma)
        if is_symbolic(floor, bias, noise, b, d, gamma, budget):
            balance = (gamma * noise / d) ** stay * (bias * budget**-b) ** go
            return floor + (1 + d / gamma) * balance
        with np.errstate(all="ignore"):
            start = go * (np.log(bias) - b * np.log(budget))
            # x·log x → 0: a bias that no DDR changes is paid in full.
            level = stay * (np.log(gamma * noise) - np.log(d))
            level = np.where(d == 0, 0, level)
            return (floor + (1 + d / gamma) * np.exp(start + level))[()]

    def regret(self, budget: Number, ddr: Number) -> Number:
        """gap/best_gap − 1, the floor included in both.

        Returns:
            The relative excess; where the least gap is 0, inf (0 if the gap is 0 too).

        Raises:
            ValueError: if an argument is not finite and positive.
        """
        gap, best = self.gap(budget, ddr), self.best_gap(budget)
        if is_symbolic(gap, best):
            return gap / best - 1
        with np.errstate(all="ignore"):
            excess = np.where(gap == best, 0, gap / np.asarray(best) - 1)
        # Rounding may put the gap below its own minimum.
        return np.maximum(excess, 0)[()]

    def _aligned(self, *numbers: Number) -> tuple[Number, ...]:
        own = (getattr(self, field.name) for field in fields(self))
        return _as_floats(*own, *numbers)


@dataclass(frozen=True)
class JointLaw:
    """gap = E + A·(B²/D)^(−s/2) + C·D^(−½).

    With u = step/samples the bias of a power-law spectrum falls as (uB)^(−s), the
    noise plateau is proportional to u, and DDR_noise to u^(−2) (derived here, for noise
    aligned with the curvature). It is `FreeLaw` with b = s, d = s/2 and γ = ½.

    Attributes:
        floor: E ≥ 0, what no budget removes.
        bias: A ≥ 0.
        noise: C ≥ 0; √(tr Σ̃/8) for a whitened per-sample covariance Σ̃.
        source: s ≥ 0; 0 is a bias that never falls, large s a start that is forgotten
            at once when B² > D.
    """

    floor: Number
    bias: Number
    noise: Number
    source: Number

    def __post_init__(self) -> None:
        for field in fields(self):
            check_nonnegative(field.name, getattr(self, field.name))

    @property
    def optimum_exponent(self) -> Number:
        """Growth of the optimum, d log D*/d log B = 2s/(1+s)."""
        return self.as_free().optimum_exponent

    def gap(self, budget: Number, ddr: Number) -> Number:
        """The gap after a budget at a DDR; see `FreeLaw.gap`."""
        return self.as_free().gap(budget, ddr)

    def best_ddr(self, budget: Number) -> Number:
        """D* = (C/(As))^(2/(1+s))·B^(2s/(1+s)); see `FreeLaw.best_ddr`."""
        return self.as_free().best_ddr(budget)

    def best_gap(self, budget: Number) -> Number:
        """E + (1 + 1/s)·C·(D*)^(−½); see `FreeLaw.best_gap`."""
        return self.as_free().best_gap(budget)

    def regret(self, budget: Number, ddr: Number) -> Number:
        """gap/best_gap − 1; see `FreeLaw.regret`."""
        return self.as_free().regret(budget, ddr)

    def as_free(self) -> FreeLaw:
        """The same law with its exponents written out."""
        s, half = align(self.source, 1)
        half = half / 2
        return FreeLaw(self.floor, self.bias, self.noise, s, s * half, half)


def flatness(ratio: Number, source: Number) -> Number:
    """Gap above the floor at ρ·D*, relative to that at the best DDR, of `JointLaw`.

        (ρ^(s/2) + s·ρ^(−½))/(1 + s)

    Exact for every A, C and B (derived here). At s = 1, a DDR wrong by a factor of 2
    costs 6 %, of 4 25 %, of 10 74 %.

    Args:
        ratio: ρ > 0, DDR over best DDR.
        source: s ≥ 0.

    Returns:
        The ratio of gaps, at least 1.

    Raises:
        ValueError: if ρ is not finite and positive, or s not finite or negative.
    """
    check_positive("ratio", ratio)
    check_nonnegative("source", source)
    rho, s, one = _as_floats(ratio, source, 1)
    with np.errstate(over="ignore", under="ignore"):
        return (rho ** (s / 2) + s * rho ** (-one / 2)) / (1 + s)


@dataclass(frozen=True)
class StronglyConvexOptimum:
    """The best constant step for a budget, when all curvatures are alike.

    Attributes:
        step_per_sample: u* = η/n.
        loss: the expected gap at the end of the budget.
        ddr: DDR_noise of that step.
    """

    step_per_sample: Number
    loss: Number
    ddr: Number


def strongly_convex_optimum(
    curvature: Number,
    initial_second_moment: Number,
    noise_variance: Number,
    dimension: Number,
    budget: Number,
) -> StronglyConvexOptimum:
    """The best constant step for a budget on an isotropic quadratic.

    With R = 4h²x₀²B/σ² > 1, for small a = ηh and unit Fisher information (derived
    here):

        u* = ln R/(2hB)    loss = (dσ²/(8hB))(1 + ln R)    DDR = 8h²B²/(dσ² ln²R)

    Args:
        curvature: h > 0.
        initial_second_moment: x₀² > 0 per coordinate.
        noise_variance: σ² > 0 per coordinate, of one sample's gradient.
        dimension: d, number of coordinates.
        budget: B > 0, transitions.

    Returns:
        Step per sample, loss and DDR.

    Raises:
        ValueError: if an argument is not finite and positive, or R ≤ 1: the budget is
            then too small for any step to pay.
    """
    check_positive("curvature", curvature)
    check_positive("initial_second_moment", initial_second_moment)
    check_positive("noise_variance", noise_variance)
    check_positive("dimension", dimension)
    check_positive("budget", budget)
    h, start, noise, d, b = _as_floats(
        curvature, initial_second_moment, noise_variance, dimension, budget
    )
    signal = 4 * h * h * start * b / noise
    if decided(signal > 1) is False:
        least = np.max(noise / (4 * h * h * start))
        msg = f"budget is {budget}; it must be above {least}, else no step pays."
        raise ValueError(msg)
    log = logarithm(signal)
    return StronglyConvexOptimum(
        step_per_sample=log / (2 * h * b),
        loss=d * noise / (8 * h * b) * (1 + log),
        ddr=8 * h * h * b * b / (d * noise * log * log),
    )


def _as_floats(*values: Number) -> tuple[Number, ...]:
    """Floats or float arrays, unless an expression is among the numbers."""
    if is_symbolic(*values):
        return align(*values)
    return tuple(np.asarray(value, dtype=np.float64)[()] for value in values)
