"""The plateau of PPO and PPO-EWMA from their knobs, and what holds it up.

`plateau` puts the other files together. The inner loop becomes one outer step
(`effective_step`) or, with an averaged proximal policy, one linear map (`ewma_inner`);
the outer learning rate and momentum wrap it (`damped`); the noise of minibatches is
added (`inner_floor`); an optimiser that is not linear is linearised at its own plateau
(`step_rules`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import Number
from theory.knobs import Cells, Knobs, Task, cells
from theory.nested import Nested, nested
from theory.outer.step_rules import StepRule

Array = NDArray[np.float64]

FAR = 1e200
BISECTIONS = 45
REGIMES = {
    "noise": "noise-limited",
    "overshoot": "step-limited",
    "inner": "inner-floor",
    "anchor": "anchor-floor",
}
WORDS = {
    "noise": "the noise of a batch, as much as a small step would leave of it",
    "overshoot": "overshoot, for the effective step times the curvature is {a:.3g}",
    "inner": "minibatch noise that {K:.0f} gradient steps do not average over a batch",
    "anchor": "fluctuation of the acting policy about its averaged proximal policy",
    "unstable": "There is no plateau: some perturbation grows from update to update.",
}


@dataclass(frozen=True)
class Plateau:
    """A stationary state in words; inf in unstable cells, all of one shape.

    Attributes:
        loss: ½h·E x², the expected gap of the acting policy.
        acting_variance: E x².
        reference_variance: E r², of the proximal policy at the end of an update; E x²
            for PPO.
        kl_per_update: ½·E (x' − x)², at unit Fisher information.
        ddr: samples per update over KL per update; 0 where unstable.
        effective_step: e, the outer step of the plain loop that is as fast.
        contributions: the loss by its causes, keys "noise", "overshoot", "inner" and
            "anchor"; they add up to the loss.
        regime: the largest cause: "noise-limited", "step-limited", "inner-floor",
            "anchor-floor", or "unstable".
        because: the same as a sentence.
    """

    loss: Number
    acting_variance: Number
    reference_variance: Number
    kl_per_update: Number
    ddr: Number
    effective_step: Number
    contributions: Mapping[str, Number]
    regime: Number
    because: Number


def plateau(knobs: Knobs, task: Task) -> Plateau:
    """The plateau level of a setting of the knobs, its KL per update and its regime.

    With V the variance of the acting policy and Vₛ, Rₛ those of acting and proximal
    policy were a batch's noise shared by all its gradient steps, the loss ½hV is split
    into

        noise      ½h·min(Vₛ, Rₛ, eσ²/(2hn)): the last is `sgd` as its step → 0
        overshoot  ½h·min(Vₛ, Rₛ) less the above
        anchor     ½h·(Vₛ − Rₛ) if positive: no average of policies removes it
        inner      ½h·(V − Vₛ): minibatches of one batch do not weigh alike

    and the largest names the regime. For PPO without outer momentum overshoot is more
    than half of Vₛ just where eh > 1. e is the step of the plain loop with the same
    Σ_t E r_t from x₀ = r₀: σ·`effective_step`/(1−μ) for PPO, and for an averaged
    proximal policy r the same with the linear map of its inner loop.

    Valid for the assumptions of `theory.outer`, transitions reshuffled in every pass.
    In this model the level is then exact for `plain_rule`, with any of the knobs; with
    a `com`, floats lose about 10⁻¹⁶/(eh), relatively.

    With another rule it is a closure, with w = α·gain(S²)·(h + 1/η) the share of its
    way that one gradient step goes. Against simulations of the nested loop: one pass,
    within 3 % for w < .3 and 9 % for w < .5; several passes, within 5 % (KL 8 %) for
    w < .1 and 12 % for w < .5, but for the sign up to 35 % (KL 55 %) too high. It takes
    the gradient's mean square to be S² throughout an update, which fails where a batch
    is one minibatch, passed over until its gradient is gone: rmsprop then makes 30 %
    more variance and twice the KL.

    Args:
        knobs: see `Knobs`; arrays broadcast.
        task: see `Task`; a spectrum is an axis, its losses add.

    Returns:
        The plateau; floats and strings, or arrays of them.

    Raises:
        ValueError: if the arrays do not broadcast.
    """
    flat, shape = cells(knobs, task)
    with np.errstate(all="ignore"):
        linear = linearised(flat, knobs.rule)
        state = nested(linear)
        causes = _causes(state, linear)
    regime, because = _explained(causes, state, linear)

    def shaped(values: NDArray) -> Number:
        return values.reshape(shape)[()]

    return Plateau(
        loss=shaped(flat.h * state.acting / 2),
        acting_variance=shaped(state.acting),
        reference_variance=shaped(state.reference),
        kl_per_update=shaped(state.step / 2),
        ddr=shaped(2 * flat.n / state.step),
        effective_step=shaped(state.effective),
        contributions={name: shaped(part) for name, part in causes.items()},
        regime=shaped(regime),
        because=shaped(because),
    )


def linearised(given: Cells, rule: StepRule) -> Cells:
    """The plain cells that a nonlinear optimiser amounts to at its own plateau.

    The mean square S² = σ²/m + h²V of a minibatch's gradient decides the optimiser's
    gain, and the gain decides V.

    Args:
        given: knobs and task.
        rule: the optimiser.

    Returns:
        The same with α·gain(S²) for α and square(S²)/gain(S²)² − h²V for σ²/m.
    """
    least = given.noise / given.m

    def amounts(square: Array) -> Cells:
        gain = rule.gain(square)
        distortion = np.maximum(rule.square(square) / gain**2 - square, 0)
        return given.moved(given.alpha * gain, given.noise + given.m * distortion)

    def answered(square: Array) -> Array:
        return least + given.h**2 * nested(amounts(square)).acting

    if np.array_equal(rule.gain(least), rule.gain(FAR * least)):
        return amounts(least)
    return amounts(_fixed_point(answered, least))


def _fixed_point(answered: Callable[[Array], Array], least: Array) -> Array:
    """Where answered(S²) = S² ≥ least, by bisection; an unstable answer is inf."""
    low, high, factor = least, least, 4.0
    # Where no S² will do, the search ends at FAR, and the answer there is inf.
    while np.any(short := (answered(high) > high) & (high < FAR * least)):
        far = np.minimum(factor * high, FAR * least)
        low, high = np.where(short, high, low), np.where(short, far, high)
        factor = factor * factor
    for _ in range(BISECTIONS):
        middle = np.sqrt(low) * np.sqrt(high)
        short = answered(middle) > middle
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _causes(state: Nested, given: Cells) -> dict[str, Array]:
    """The loss by causes, as `plateau` defines them; inf in unstable cells."""
    small = state.effective * given.noise / (2 * given.h * given.n)
    slow = np.minimum(state.shared_acting, state.shared_reference)
    noise = np.minimum(small, slow)
    parts = {
        "noise": noise,
        "overshoot": slow - noise,
        "inner": state.acting - state.shared_acting,
        "anchor": state.shared_acting - slow,
    }
    stable = np.isfinite(state.acting)
    return {
        name: np.where(stable, given.h * part / 2, np.inf)
        for name, part in parts.items()
    }


def _explained(
    causes: Mapping[str, Array], state: Nested, given: Cells
) -> tuple[NDArray, NDArray]:
    """Regime and sentence of every cell."""
    names, parts = list(causes), np.stack(list(causes.values()))
    regime, because = [], []
    for cell, largest in enumerate(parts.argmax(axis=0)):
        if not np.isfinite(state.acting[cell]):
            regime.append("unstable")
            because.append(WORDS["unstable"])
            continue
        share = parts[largest, cell] / parts[:, cell].sum()
        a = state.effective[cell] * given.h[cell]
        words = WORDS[names[largest]].format(a=a, K=given.gradient_steps[cell])
        regime.append(REGIMES[names[largest]])
        because.append(f"{100 * share:.0f} % of the gap is {words}.")
    return np.array(regime, dtype=object), np.array(because, dtype=object)
