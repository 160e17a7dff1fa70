"""A law whose bias begins at the untrained gap and may decay exponentially.

    gap = E + A·(1 + r·z/s)^(−s) + C·D^(−½),   z = B/√D

z is the distance a run can go, in steps of its own noise. For r·z ≫ s the bias is a
power of z, as in `theory.laws.JointLaw` with the same s; for s → ∞ it is A·exp(−r·z),
the transient of a strongly convex optimum of curvature h, where r = h/C exactly; for
z → 0 it is A, the gap before training. What to use when: this law if the smallest
budgets hardly train, or if the joint law's source is open upwards; else the joint law,
which has one parameter less.

C is the level of plateaus, gap·√D, and one number for all of them. On `lqr` (σ = 1,
ε = 0.2) plateaus give 11 to 13 at N ≥ 128, but 15 to 18 at N ≤ 64, where an update has
8 to 16 gradient steps and Adam's memory of 10 reaches across updates. Fits give 12.7 to
16.3, by rows and options: more training runs of small N have reached their plateau.
"""

from dataclasses import dataclass

import numpy as np

Number = float | int | np.number | np.ndarray


@dataclass(frozen=True)
class SaturatingLaw:
    """gap = E + A·(1 + r·z/s)^(−s) + C·D^(−½), z = B/√D.

    Attributes:
        floor: E ≥ 0.
        bias: A ≥ 0, the untrained gap above the floor.
        noise: C ≥ 0.
        rate: r > 0, per √(transition·nat).
        source: s > 0.
    """

    floor: Number
    bias: Number
    noise: Number
    rate: Number
    source: Number

    def __post_init__(self) -> None:
        for name in ("floor", "bias", "noise", "rate", "source"):
            values = np.asarray(getattr(self, name), dtype=float)
            least = "≥ 0" if name in ("floor", "bias", "noise") else "> 0"
            good = values >= 0 if least == "≥ 0" else values > 0
            if not np.all(good & np.isfinite(values)):
                raise ValueError(f"{name} should be finite and {least}")

    def gap(self, budget: Number, ddr: Number) -> Number:
        """The gap after a budget, run throughout at a DDR; see the module for units.

        Raises:
            ValueError: budget or DDR is not positive and finite.
        """
        z = _positive("budget", budget) / np.sqrt(_positive("ddr", ddr))
        left = np.exp(-self.source * np.log1p(self.rate * z / self.source))
        return self.floor + self.bias * left + self.noise * ddr**-0.5

    def best_ddr(self, budget: Number) -> Number:
        """The DDR of least gap, (B/z*)², z* = (s/r)·[(A·r·B/C)^(1/(s+1)) − 1].

        inf where training cannot pay (A·r·B ≤ C), 0 where there is no noise.

        Raises:
            ValueError: the budget is not positive and finite.
        """
        budget = _positive("budget", budget)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            pay = np.log(self.bias * self.rate * budget) - np.log(self.noise)
            # No noise: pay = ∞ and z* = ∞; nothing to gain: z* = 0.
            z = (
                self.source
                / self.rate
                * np.expm1(np.maximum(pay, 0) / (self.source + 1))
            )
            return (budget / z) ** 2

    def best_gap(self, budget: Number) -> Number:
        """The least gap over DDR. Raises ValueError as `best_ddr`."""
        best = self.best_ddr(budget)
        usable = np.isfinite(best) & (best > 0)
        gap = self.gap(budget, np.where(usable, best, 1.0))
        untrained = self.floor + self.bias * np.ones_like(gap)
        limit = np.where(best == 0, self.floor, untrained)
        return np.where(usable, gap, limit)[()]

    def regret(self, budget: Number, ddr: Number) -> Number:
        """gap/best_gap − 1, floor included. Raises ValueError as `gap`."""
        return self.gap(budget, ddr) / self.best_gap(budget) - 1

    def optimum_exponent(self, budget: Number) -> Number:
        """Exponent d log D*/d log B = 2 − 2w/((s + 1)(w − 1)), w = (A·r·B/C)^(1/(s+1)).

        Tends to 2s/(s + 1), the joint law's; meaningless where training cannot pay.

        Raises:
            ValueError: the budget is not positive and finite.
        """
        budget = _positive("budget", budget)
        with np.errstate(divide="ignore", invalid="ignore"):
            pay = np.log(self.bias * self.rate * budget) - np.log(self.noise)
            return 2 + 2 / ((self.source + 1) * np.expm1(-pay / (self.source + 1)))


def _positive(name: str, value: Number) -> np.ndarray:
    values = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"{name} should be positive and finite")
    return values
