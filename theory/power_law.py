"""A power-law spectrum of infinitely many directions: where the joint law comes from.

Direction i = 1, 2, … has curvature h₁i^(−α), initial loss ½c₀i^(−1−sα) and noise
σ²i^(−αν) per sample: ν = 1 is noise aligned with the curvature, ν = 0 isotropic. After
a budget B at u = η/n, for small steps and many decay times of the first direction
(derived here; sums replaced by integrals where they do not converge by themselves),

    gap(u, B) = A·(uB)^(−s) + W·u·(uB)^r,        r = max(0, 1/α − ν)
    A = c₀Γ(s)/(2α(2h₁)^s)
    W = ¼σ²ζ(αν) for r = 0,   W = ¼σ²(2h₁)^r·Γ(1−r)/(αr) else

For r = 0 the noise has a finite trace, and the law of u is `laws.JointLaw`; for r > 0
ever more directions fill up with noise as the budget grows.
"""

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gamma, zeta

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    one_number,
    whole_number,
)
from theory.laws import JointLaw
from theory.spectrum import Spectrum


@dataclass(frozen=True)
class PowerLaw:
    """See the head of the file.

    Attributes:
        curvature: h₁ > 0, of the first direction.
        decay: α > 0.
        initial: c₀ > 0, twice the initial loss of the first direction.
        source: s > 0; larger is an easier start, more of it in the first directions.
        noise: σ² > 0, of one sample's gradient in the first direction.
        alignment: ν ≥ 0, with 1/α − 1 < ν and αν not exactly 1.
    """

    curvature: Number
    decay: Number
    initial: Number
    source: Number
    noise: Number
    alignment: Number = 1

    def __post_init__(self) -> None:
        for name in ("curvature", "decay", "initial", "source", "noise"):
            check_positive(name, getattr(self, name))
        check_nonnegative("alignment", self.alignment)
        for field in fields(self):
            one_number(field.name, getattr(self, field.name))
        alpha, nu = align(self.decay, self.alignment)
        if alpha * nu == 1 or alpha * (1 + nu) <= 1:
            msg = (
                f"alignment is {self.alignment} at a decay of {self.decay}; their "
                "product must not be 1 and must be above 1 - decay, else the noise "
                "sums to no power law."
            )
            raise ValueError(msg)

    @property
    def filling(self) -> Number:
        """R = max(0, 1/α − ν): how fast further directions fill up with noise."""
        alpha, nu = align(self.decay, self.alignment)
        return max(1 / alpha - nu, alpha * 0)

    @property
    def step_exponent(self) -> Number:
        """p_u = (s+r)/(1+s+r): u* ∝ B^(−p_u)."""
        s, r = align(self.source, self.filling)
        return (s + r) / (1 + s + r)

    @property
    def loss_exponent(self) -> Number:
        """p_L = s/(1+s+r): the least gap ∝ B^(−p_L)."""
        s, r = align(self.source, self.filling)
        return s / (1 + s + r)

    @property
    def ddr_exponent(self) -> Number:
        """p_DDR = 2p_u = 2(1 + r/s)·p_L: the best DDR ∝ B^(p_DDR).

        So p_DDR = 2p_L exactly if the noise has a finite trace, whatever α and s, and
        p_DDR > 2p_L if not: a check without parameters.
        """
        return 2 * self.step_exponent

    @property
    def bias_constant(self) -> float:
        """A = c₀Γ(s)/(2α(2h₁)^s)."""
        s = float(self.source)
        scale = float(self.initial) / (2 * float(self.decay))
        return float(scale * gamma(s) * (2 * float(self.curvature)) ** -s)

    @property
    def noise_constant(self) -> float:
        """W, the noise part per u·(uB)^r."""
        alpha, r = float(self.decay), float(self.filling)
        if r == 0:
            return self.noise_trace / 4
        filled = (2 * float(self.curvature)) ** r * gamma(1 - r) / (alpha * r)
        return float(self.noise) * float(filled) / 4

    @property
    def noise_trace(self) -> float:
        """Tr Σ = σ²ζ(αν); inf for r > 0."""
        if self.filling > 0:
            return float("inf")
        return float(self.noise) * float(zeta(float(self.decay * self.alignment)))

    def gap(self, step_per_sample: Number, budget: Number) -> Number:
        """A·(uB)^(−s) + W·u·(uB)^r.

        Args:
            step_per_sample: u > 0, shape [...].
            budget: B > 0, shape [...].

        Returns:
            The gap, shape [...].

        Raises:
            ValueError: if an argument is not finite and positive.
        """
        check_positive("step_per_sample", step_per_sample)
        u, b = np.asarray(step_per_sample, np.float64), self._budget(budget)
        covered, s, r = u * b, float(self.source), float(self.filling)
        filled = self.noise_constant * u * covered**r
        return (self.bias_constant * covered**-s + filled)[()]

    def best_step_per_sample(self, budget: Number) -> Number:
        """u* = (sA/((1+r)W))^(1/(1+s+r))·B^(−p_u).

        Raises:
            ValueError: if the budget is not finite and positive.
        """
        b, s, r = self._budget(budget), float(self.source), float(self.filling)
        ratio = s * self.bias_constant / ((1 + r) * self.noise_constant)
        return (ratio ** (1 / (1 + s + r)) * b ** -float(self.step_exponent))[()]

    def best_gap(self, budget: Number) -> Number:
        """(1 + (1+r)/s)·W·u*·(u*B)^r, the least gap.

        Raises:
            ValueError: if the budget is not finite and positive.
        """
        b, s, r = self._budget(budget), float(self.source), float(self.filling)
        u = self.best_step_per_sample(b)
        return ((1 + (1 + r) / s) * self.noise_constant * u * (u * b) ** r)[()]

    def joint_law(self) -> JointLaw:
        """The same gap as a law of budget and DDR_noise, at unit Fisher information.

        From u = √(2/(D tr Σ)):  A_law = A·(tr Σ/2)^(s/2),  C = √(tr Σ/8).

        Returns:
            The law, with floor 0.

        Raises:
            ValueError: if r > 0: DDR_noise is 0 with noise in infinitely many
                directions, and the plateau then depends on the budget.
        """
        if self.filling > 0:
            msg = (
                f"alignment is {self.alignment}; it must be above {1 / self.decay}, "
                "for noise of finite trace, else DDR does not say what the noise is."
            )
            raise ValueError(msg)
        s, trace = float(self.source), self.noise_trace
        bias = self.bias_constant * (trace / 2) ** (s / 2)
        return JointLaw(0.0, bias, float(np.sqrt(trace / 8)), s)

    def spectrum(self, size: int) -> Spectrum:
        """The first directions alone.

        Args:
            size: how many, at least 1.

        Returns:
            The spectrum, of `size` directions.

        Raises:
            ValueError: if the size is below 1.
        """
        if whole_number("size", one_number("size", size)) < 1:
            msg = f"size is {size}; a spectrum has at least 1 direction."
            raise ValueError(msg)
        i, alpha = np.arange(1.0, size + 1), float(self.decay)
        curvature = float(self.curvature) * i**-alpha
        loss = float(self.initial) * i ** -(1 + float(self.source) * alpha)
        noise = float(self.noise) * i ** -(alpha * float(self.alignment))
        return Spectrum(curvature, loss / curvature, noise)

    def _budget(self, budget: Number) -> np.ndarray:
        check_positive("budget", budget)
        return np.asarray(budget, dtype=np.float64)
