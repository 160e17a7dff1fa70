"""Optimisers of the inner loop, for all seeds at once; they ascend."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.arithmetic import Number, check_nonnegative, check_positive, one_number
from theory.exact_loops.tasks import Array


class Optimiser(ABC):
    """How one gradient step moves the parameters."""

    @abstractmethod
    def memory(self, parameters: Array) -> Any:
        """What it remembers before its first step."""

    @abstractmethod
    def step(self, gradient: Array, memory: Any) -> tuple[Array, Any]:
        """The move, shape [seed, parameter], and the new memory."""


@dataclass(frozen=True)
class Sgd(Optimiser):
    """m' = μm + (1−μ)g, move αm'.

    Attributes:
        learning_rate: α ≥ 0.
        momentum: 0 ≤ μ < 1; it does not change how far a gradient moves in the end.
    """

    learning_rate: Number
    momentum: Number = 0

    def __post_init__(self) -> None:
        check_nonnegative("learning_rate", self.learning_rate)
        _check_share("momentum", self.momentum)

    def memory(self, parameters: Array) -> Array:
        """Of the gradient: none yet."""
        return np.zeros_like(parameters)

    def step(self, gradient: Array, memory: Array) -> tuple[Array, Array]:
        """One gradient step."""
        mean = self.momentum * memory + (1 - self.momentum) * gradient
        return self.learning_rate * mean, mean


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam (Kingma & Ba 2015), bias-corrected.

    Attributes:
        learning_rate: α ≥ 0.
        momentum: β₁, 0 ≤ β₁ < 1.
        second: β₂, likewise.
        epsilon: added to the root; above 0.
    """

    learning_rate: Number
    momentum: Number = 0.9
    second: Number = 0.999
    epsilon: Number = 1e-8

    def __post_init__(self) -> None:
        check_nonnegative("learning_rate", self.learning_rate)
        _check_share("momentum", self.momentum)
        _check_share("second", self.second)
        check_positive("epsilon", self.epsilon)

    def memory(self, parameters: Array) -> tuple[Array, Array, int]:
        """Averages 0 after 0 steps."""
        return np.zeros_like(parameters), np.zeros_like(parameters), 0

    def step(
        self, gradient: Array, memory: tuple[Array, Array, int]
    ) -> tuple[Array, Any]:
        """One gradient step."""
        mean, square, count = memory
        count += 1
        mean = self.momentum * mean + (1 - self.momentum) * gradient
        square = self.second * square + (1 - self.second) * gradient**2
        root = np.sqrt(square / (1 - self.second**count)) + self.epsilon
        scale = self.learning_rate / (1 - self.momentum**count)
        return scale * mean / root, (mean, square, count)


def _check_share(name: str, value: Number) -> None:
    if not 0 <= one_number(name, value) < 1:
        msg = f"{name} is {value}; it must be at least 0 and below 1."
        raise ValueError(msg)
