"""The best batch when time is what runs out.

An update takes max(ℓ, n/R + E·n/R₂) seconds: a latency ℓ that no small batch beats (a
compiled step, a synchronisation), collection at R transitions per second and E epochs
of learning at R₂. Below the knee n₀ = ℓ/(1/R + E/R₂) further samples are free.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from theory.arithmetic import Number, check_nonnegative, check_positive, one_number
from theory.search import least
from theory.spectrum import Array, Spectrum


@dataclass(frozen=True)
class Machine:
    """How fast updates go.

    Attributes:
        latency: ℓ ≥ 0, least seconds per update.
        collection: R > 0, transitions collected per second; inf is free.
        learning: R₂ > 0, transitions learned from per second, each epoch counting;
            inf is free.
        update_epochs: E ≥ 0.
    """

    latency: Number
    collection: Number
    learning: Number = float("inf")
    update_epochs: Number = 1

    def __post_init__(self) -> None:
        check_nonnegative("latency", self.latency)
        check_nonnegative("update_epochs", self.update_epochs)
        for name in ("latency", "update_epochs"):
            one_number(name, getattr(self, name))
        for name in ("collection", "learning"):
            rate = one_number(name, getattr(self, name))
            if not rate > 0:
                msg = f"{name} is {rate}; it must be above 0 (inf is free)."
                raise ValueError(msg)
        if not self.seconds_per_sample > 0:
            msg = f"collection is {self.collection}; collection or learning takes time."
            raise ValueError(msg)

    @property
    def seconds_per_sample(self) -> Number:
        """1/R + E/R₂."""
        return 1 / self.collection + self.update_epochs / self.learning

    @property
    def knee(self) -> Number:
        """n₀ = ℓ/(1/R + E/R₂), samples per update."""
        return self.latency / self.seconds_per_sample

    def seconds_per_update(self, samples_per_update: Number) -> Number:
        """max(ℓ, n/R + E·n/R₂).

        Raises:
            ValueError: if n is not finite and positive.
        """
        check_positive("samples_per_update", samples_per_update)
        n = np.asarray(samples_per_update, dtype=np.float64)
        return np.maximum(float(self.latency), n * float(self.seconds_per_sample))[()]

    def updates(self, samples_per_update: Number, seconds: Number) -> Number:
        """K = W/seconds per update, not rounded.

        Raises:
            ValueError: if n or W is not finite and positive.
        """
        check_positive("seconds", seconds)
        return np.divide(seconds, self.seconds_per_update(samples_per_update))[()]


class WallClockOptimum(NamedTuple):
    """The best run of a given duration.

    Attributes:
        samples_per_update: n*.
        outer_step: η*.
        updates: K.
        loss: expected, at the end.
    """

    samples_per_update: float
    outer_step: float
    updates: float
    loss: float


def best_for_time(
    spectrum: Spectrum, machine: Machine, seconds: Number
) -> WallClockOptimum:
    """The n and stable η of least loss after a time W.

    The best n is never below the knee: there K does not depend on n, and at every η and
    K the loss falls in n, so it does at the best η (derived here). Above the knee B is
    fixed by W, and the ridge in (η, n) makes n nearly irrelevant up to the critical
    batch (`knob_table.critical_samples`); n₀ is then as good as the best n.

    Args:
        spectrum: of the loss.
        machine: how fast it is.
        seconds: W > 0; at least one update must fit.

    Returns:
        The best run, n between one and all samples that W holds; K is not made whole.

    Raises:
        ValueError: if W is not finite and positive or shorter than one update.
    """
    check_positive("seconds", seconds)
    seconds = one_number("seconds", seconds)
    most = float(seconds / machine.seconds_per_sample)
    if seconds < machine.latency or most < 1:
        need = max(machine.latency, machine.seconds_per_sample)
        msg = f"seconds is {seconds}; one update takes at least {need}."
        raise ValueError(msg)

    def loss(n: Array) -> Array:
        return np.asarray(
            spectrum.best_outer_step(n, machine.updates(n, seconds)).value
        )

    n = float(least(loss, 1.0, most).at)
    updates = float(machine.updates(n, seconds))
    step = spectrum.best_outer_step(n, updates)
    return WallClockOptimum(n, float(step.at), updates, float(step.value))
