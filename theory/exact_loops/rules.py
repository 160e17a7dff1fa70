"""Outer updates from one gradient estimate: how the next policy follows from it.

ĝ estimates the gradient from n samples, F is the Fisher information of the acting
policy x, and r the anchor, an average of policies, r' = (c·r + x')/(1 + c):

- `gradient_ascent`: x' = x + ηĝ + μ(x − x₋₁).
- `natural_gradient`: the same with F⁺ĝ.
- `hard_kl`: x' = x + √(2δ/ĝᵀF⁺ĝ)·F⁺ĝ, whose KL is δ to second order.
- `kl_proximal`: x' maximises the surrogate less KL(· ‖ r)/η, exactly.
- `from_average`: x' = r + ηF⁺ĝ, the same to first order in η.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from theory.arithmetic import Number, check_nonnegative, check_positive
from theory.exact_loops.tasks import Array, Generator, Task
from theory.kl import check_momentum

Direction = Callable[[Task, Array, Array], Array]


class State(NamedTuple):
    """What an update leaves to the next.

    Attributes:
        acting: x, shape [seed, parameter].
        anchor: r, likewise; x where the rule has none.
        memory: the rule's own.
        world: the task's own.
    """

    acting: Array
    anchor: Array
    memory: Any
    world: Any


class Rule(ABC):
    """How one update moves the policy."""

    def memory(self, parameters: Array) -> Any:  # noqa: B027
        """What the rule remembers before the first update; nothing, unless it says."""

    @abstractmethod
    def step(
        self, task: Task, state: State, samples: Number, generator: Generator
    ) -> State:
        """One update of every seed from n samples."""


def gradient_ascent(outer_step: Number, momentum: Number = 0) -> "Ascent":
    """Steps x' = x + ηĝ + μ(x − x₋₁), ĝ the gradient per transition.

    Args:
        outer_step: η ≥ 0.
        momentum: μ, between −1 and 1.

    Raises:
        ValueError: if η is negative or |μ| ≥ 1.
    """
    return Ascent(outer_step, momentum, lambda task, parameters, gradient: gradient)


def natural_gradient(outer_step: Number, momentum: Number = 0) -> "Ascent":
    """Steps x' = x + ηF⁺ĝ + μ(x − x₋₁).

    Args:
        outer_step: η ≥ 0.
        momentum: μ, between −1 and 1.

    Raises:
        ValueError: if η is negative or |μ| ≥ 1.
    """
    return Ascent(
        outer_step, momentum, lambda task, x, gradient: task.natural(x, gradient)
    )


def hard_kl(kl_budget: Number) -> "HardKl":
    """Steps x' = x + √(2δ/ĝᵀF⁺ĝ)·F⁺ĝ, whose KL is δ to second order.

    Args:
        kl_budget: δ > 0, nats per update.

    Raises:
        ValueError: if δ is not finite and positive.
    """
    return HardKl(kl_budget)


def kl_proximal(outer_step: Number, com_updates: Number = 0) -> "Proximal":
    """The exact maximum of surrogate − KL(· ‖ r)/η: `outer.ewma_proximal`, on a task.

    Args:
        outer_step: η > 0.
        com_updates: c ≥ 0, centre of mass of the anchor; 0 is the acting policy.

    Raises:
        ValueError: if η is not positive or c is negative.
    """
    return Proximal(outer_step, com_updates)


def from_average(outer_step: Number, com_updates: Number) -> "FromAverage":
    """Steps x' = r + ηF⁺ĝ from the anchor: `outer.ewma_linear`, on a task.

    Args:
        outer_step: η > 0.
        com_updates: c ≥ 0, centre of mass of the anchor; 0 is `natural_gradient`.

    Raises:
        ValueError: if η is not positive or c is negative.
    """
    return FromAverage(outer_step, com_updates)


@dataclass(frozen=True)
class Ascent(Rule):
    """See `gradient_ascent` and `natural_gradient`, which build it.

    Attributes:
        outer_step: η.
        momentum: μ.
        direction: from the task, the policy and ĝ.
    """

    outer_step: Number
    momentum: Number
    direction: Direction

    def __post_init__(self) -> None:
        check_nonnegative("outer_step", self.outer_step)
        check_momentum(self.momentum)

    def memory(self, parameters: Array) -> Array:
        """The last move."""
        return np.zeros_like(parameters)

    def step(
        self, task: Task, state: State, samples: Number, generator: Generator
    ) -> State:
        """One update."""
        gradient, world = task.estimate(state.acting, samples, state.world, generator)
        move = self.outer_step * self.direction(task, state.acting, gradient)
        move = move + self.momentum * state.memory
        new = state.acting + move
        return State(new, new, move, world)


@dataclass(frozen=True)
class HardKl(Rule):
    """See `hard_kl`, which builds it.

    Attributes:
        kl_budget: δ.
    """

    kl_budget: Number

    def __post_init__(self) -> None:
        check_positive("kl_budget", self.kl_budget)

    def step(
        self, task: Task, state: State, samples: Number, generator: Generator
    ) -> State:
        """One update."""
        gradient, world = task.estimate(state.acting, samples, state.world, generator)
        direction = task.natural(state.acting, gradient)
        square = (gradient * direction).sum(-1, keepdims=True)
        new = state.acting + np.sqrt(2 * self.kl_budget / square) * direction
        return State(new, new, None, world)


@dataclass(frozen=True)
class Anchored(Rule):
    """A rule with an averaged anchor.

    Attributes:
        outer_step: η.
        com_updates: c.
    """

    outer_step: Number
    com_updates: Number

    def __post_init__(self) -> None:
        check_positive("outer_step", self.outer_step)
        check_nonnegative("com_updates", self.com_updates)

    def step(
        self, task: Task, state: State, samples: Number, generator: Generator
    ) -> State:
        """One update, and the anchor's."""
        gradient, world = task.estimate(state.acting, samples, state.world, generator)
        new = self._moved(task, state, gradient)
        com = self.com_updates
        return State(new, (com * state.anchor + new) / (1 + com), None, world)

    @abstractmethod
    def _moved(self, task: Task, state: State, gradient: Array) -> Array:
        """The next policy."""


@dataclass(frozen=True)
class Proximal(Anchored):
    """See `kl_proximal`, which builds it."""

    def _moved(self, task: Task, state: State, gradient: Array) -> Array:
        return task.proximal(state.acting, state.anchor, gradient, self.outer_step)


@dataclass(frozen=True)
class FromAverage(Anchored):
    """See `from_average`, which builds it."""

    def _moved(self, task: Task, state: State, gradient: Array) -> Array:
        return state.anchor + self.outer_step * task.natural(state.acting, gradient)
