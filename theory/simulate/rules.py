"""Update rules that have no closed jump, as pure functions of arrays.

A rule sees the gradient g of one update at the acting policy x and moves the state,
a tuple whose first entry is x. The rules take any array library's arrays (JAX in the
simulator, numpy in a test) and one run: x and g have shape [coordinate], knobs are
scalars.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Array = Any
State = tuple[Array, ...]
Knobs = Mapping[str, Array]


@dataclass(frozen=True)
class Rule:
    """How a state moves, given a gradient.

    Attributes:
        step: (state, gradient, knobs) → state, traceable by JAX; state[0] is x.
        knobs: names of the knobs it reads; all are finite and not negative.
        start: x → state; by default (x,).
    """

    step: Callable[[State, Array, Knobs], State]
    knobs: tuple[str, ...]
    start: Callable[[Array], State] = lambda x: (x,)


def _gradient(state: State, gradient: Array, knobs: Knobs) -> State:
    return (state[0] - knobs["outer_step"] * gradient,)


gradient_rule = Rule(_gradient, ("outer_step",))
"""x' = x − ηg, knob `outer_step` = η: the twin of `outer.sgd` and, with noise that
grows away from the optimum, of `outer.multiplicative`."""


def _sign(state: State, gradient: Array, knobs: Knobs) -> State:
    xp = gradient.__array_namespace__()
    return (state[0] - knobs["step_length"] * xp.sign(gradient),)


sign_rule = Rule(_sign, ("step_length",))
"""x' = x − ε·sign g in every coordinate, knob `step_length` = ε."""


def _clipped(state: State, gradient: Array, knobs: Knobs) -> State:
    xp = gradient.__array_namespace__()
    limit = knobs["gradient_limit"]
    return (state[0] - knobs["outer_step"] * xp.clip(gradient, -limit, limit),)


clipped_rule = Rule(_clipped, ("outer_step", "gradient_limit"))
"""x' = x − η·min(max(g, −τ), τ) in every coordinate, knobs `outer_step` = η and
`gradient_limit` = τ."""


def _rmsprop(state: State, gradient: Array, knobs: Knobs) -> State:
    xp = gradient.__array_namespace__()
    x, square, weight = state
    decay = knobs["square_decay"]
    square = decay * square + (1 - decay) * gradient * gradient
    weight = decay * weight + (1 - decay)
    root = xp.sqrt(square / weight)
    step = xp.where(root > 0, gradient / xp.where(root > 0, root, 1), 0)
    return x - knobs["outer_step"] * step, square, weight


rmsprop_rule = Rule(
    _rmsprop, ("outer_step", "square_decay"), lambda x: (x, 0 * x, 0 * x)
)
"""x' = x − ηg/√v in every coordinate, v the bias-corrected average of g² that includes
the newest: Adam without momentum; knobs `outer_step` = η, `square_decay` = β₂ < 1."""


def _trust_region(state: State, gradient: Array, knobs: Knobs) -> State:
    xp = gradient.__array_namespace__()
    length = xp.sqrt(xp.sum(gradient * gradient))
    unit = gradient / xp.where(length > 0, length, 1)
    return (state[0] - knobs["step_length"] * unit,)


trust_region_rule = Rule(_trust_region, ("step_length",))
"""x' = x − ε·g/|g|: a hard trust region, every step of length ε, knob `step_length`."""
