"""The policy that the clip of an inner loop is held to: where it comes from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from theory.arithmetic import Number, check_nonnegative
from theory.exact_loops.rules import State
from theory.exact_loops.tasks import Array


class Anchor(ABC):
    """Parameters r of the proximal policy, during an update and after it."""

    @abstractmethod
    def before(self, state: State) -> Array:
        """Anchor of the first gradient step, shape [seed, parameter]."""

    @abstractmethod
    def after_step(self, anchor: Array, parameters: Array) -> Array:
        """Anchor of the next gradient step, x being where the last one led."""

    @abstractmethod
    def after_update(self, anchor: Array, parameters: Array) -> Array:
        """What is left to the next update, x being the next acting policy."""


@dataclass(frozen=True)
class BehaviourAnchor(Anchor):
    """PPO: the policy that acted, whatever the gradient steps do."""

    def before(self, state: State) -> Array:
        """The acting policy."""
        return state.acting

    def after_step(self, anchor: Array, parameters: Array) -> Array:
        """Unmoved."""
        return anchor

    def after_update(self, anchor: Array, parameters: Array) -> Array:
        """The policy that acts next."""
        return parameters


BEHAVIOUR = BehaviourAnchor()


@dataclass(frozen=True)
class AveragedAnchor(Anchor):
    """PPO-EWMA: r ← (c·r + x)/(1 + c) after every gradient step, never reset.

    Attributes:
        com: c ≥ 0, centre of mass in gradient steps; 0 never clips.
    """

    com: Number

    def __post_init__(self) -> None:
        check_nonnegative("com", self.com)

    def before(self, state: State) -> Array:
        """The average so far."""
        return state.anchor

    def after_step(self, anchor: Array, parameters: Array) -> Array:
        """A step nearer to the policy."""
        return (self.com * anchor + parameters) / (1 + self.com)

    def after_update(self, anchor: Array, parameters: Array) -> Array:
        """The average so far."""
        return anchor
