"""What the best number of environments does with the budget, by what is held.

The budget fixes u* ∝ B^(−p), the best step per sample (p = `PowerLaw.step_exponent`),
and with it the best DDR ∝ B^(2p). Which knob then moves, and how fast, depends on which
ones are held: two studies can disagree about the best batch and both be right. Samples
per update n stand for num_envs at a held rollout length.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    decided,
    one_number,
)
from theory.outer.reference import ewma_proximal
from theory.search import Least, least
from theory.spectrum import Array, Spectrum

StepForBatch = Callable[[Array], Array]


@dataclass(frozen=True)
class KnobRow:
    """One way of tuning, and how its optimum moves with the budget.

    Attributes:
        held: what is held.
        tuned: what is tuned.
        tuned_exponent: growth of the tuned knob, d log/d log B.
        samples_exponent: growth of the best n; None where n is not identified.
        ddr_exponent: growth of DDR_noise at the optimum.
        feasible: whether the row holds at every budget, however large.
        note: formula and limits.
    """

    held: str
    tuned: str
    tuned_exponent: Number
    samples_exponent: Number | None
    ddr_exponent: Number
    feasible: bool
    note: str


def knob_table(step_exponent: Number) -> tuple[KnobRow, ...]:
    """The exponents of every row, from that of the best step per sample.

    Args:
        step_exponent: p of u* ∝ B^(−p), between 0 and 1; s/(1+s) for noise of finite
            trace (`PowerLaw.step_exponent`).

    Returns:
        Rows, exact for exact numbers (derived here).

    Raises:
        ValueError: if p is not between 0 and 1.
    """
    check_positive("step_exponent", step_exponent)
    if decided(step_exponent < 1) is False:
        msg = f"step_exponent is {step_exponent}; it must be below 1."
        raise ValueError(msg)
    (p,) = align(step_exponent)
    return (
        KnobRow(
            "nothing", "step per sample", -p, None, 2 * p, feasible=True,
            note="n is free below a critical n* = a_crit/(h1 u*), which grows as B^p",
        ),
        KnobRow(
            "outer step", "samples per update", p, p, 2 * p, feasible=True,
            note="n* = step/u*",
        ),
        KnobRow(
            "KL per update", "samples per update", 2 * p, 2 * p, 2 * p, feasible=False,
            note="n* = 2 KL/(u*^2 trace), while n* is below the critical batch, which "
            "grows as B^p only; then the step is at its stability limit, n stays, and "
            "the KL must shrink",
        ),
        KnobRow(
            "samples per update", "outer step", -p, 0 * p, 2 * p, feasible=True,
            note="step* = u* n",
        ),
        KnobRow(
            "inner loop far from its anchor", "learning rate", -p, None, 2 * p,
            feasible=True,
            note="u = learning rate * epochs/minibatch; n is irrelevant",
        ),
        KnobRow(
            "outer step and samples per update", "1 + com", p, 0 * p, 2 * p,
            feasible=False,
            note="1 + com* = step/((1 + a) n u*), until 1 + com* = 1/(2a(1 + a)) and "
            "the acting policy's own floor is all that is left; DDR here is that of "
            "u, not the measured one",
        ),
    )  # fmt: skip


def held_step(outer_step: Number) -> StepForBatch:
    """The rule η(n) = η.

    Raises:
        ValueError: if η is not finite and positive.
    """
    check_positive("outer_step", outer_step)
    return lambda n: np.full_like(n, outer_step)


def held_kl(kl_per_update: Number, noise_trace: Number) -> StepForBatch:
    """The rule of a held noise KL per update δ: η(n) = √(2δn/tr Σ), at unit Fisher.

    Raises:
        ValueError: if δ or the trace is not finite and positive.
    """
    check_positive("kl_per_update", kl_per_update)
    check_positive("noise_trace", noise_trace)
    kl = one_number("kl_per_update", kl_per_update)
    trace = one_number("noise_trace", noise_trace)
    return lambda n: np.sqrt(2 * kl * n / trace)


def best_samples(spectrum: Spectrum, budget: Number, outer_step: StepForBatch) -> Least:
    """The n of least loss at the end of a budget, η following n by a rule.

    Args:
        spectrum: of the loss.
        budget: B > 0, transitions.
        outer_step: η(n), of shape [point] to shape [point].

    Returns:
        n* between B·10⁻⁹ and B, and the loss; K = B/n is not made whole.

    Raises:
        ValueError: if the budget is not finite and positive.
    """
    check_positive("budget", budget)
    budget = one_number("budget", budget)
    return least(
        lambda n: spectrum.loss(outer_step(n), n, budget / n), 1e-9 * budget, budget
    )


def critical_samples(spectrum: Spectrum, budget: Number, excess: Number) -> float:
    """The largest n on the ridge, η = u*n, that costs no more than a share of the loss.

    Args:
        spectrum: of the loss.
        budget: B > 0, transitions.
        excess: allowed excess over the ridge's loss, relative, above 0.

    Returns:
        n; at most B.

    Raises:
        ValueError: if the budget or the excess is not finite and positive.
    """
    check_positive("excess", excess)
    check_positive("budget", budget)
    excess, budget = one_number("excess", excess), one_number("budget", budget)
    best = spectrum.best_step_per_sample(budget)
    low, high = 1e-12 * budget, budget
    for _ in range(60):
        n = float(np.sqrt(low * high))
        dear = spectrum.loss(best.at * n, n, budget / n) > (1 + excess) * best.value
        low, high = (low, n) if dear else (n, high)
    return low


def best_com(
    spectrum: Spectrum, budget: Number, outer_step: Number, samples_per_update: Number
) -> Least:
    """The 1 + c of least loss at the end of a budget, by `outer.ewma_proximal`.

    Args:
        spectrum: of the loss.
        budget: B > 0, transitions, rounded down to whole updates.
        outer_step: η ≥ 0.
        samples_per_update: n > 0.

    Returns:
        1 + c*, between 1 and 10⁶, in updates; and the acting policy's loss.

    Raises:
        ValueError: if an argument is out of range.
    """
    check_positive("budget", budget)
    check_nonnegative("outer_step", outer_step)
    check_positive("samples_per_update", samples_per_update)
    n = one_number("samples_per_update", samples_per_update)
    updates = int(one_number("budget", budget) // n)

    def loss(memory: Array) -> Array:
        com = np.maximum(memory - 1, 0)[:, None]
        loop = ewma_proximal(outer_step, spectrum.curvature, com)
        moment = loop.second_moment(spectrum.initial, updates, spectrum.noise, n)
        return np.asarray(moment @ spectrum.curvature / 2)

    return least(loss, 1.0, 1e6)
