"""What an outer loop needs of a task whose return, gradient, Fisher and KL are known.

Everything is vectorised over seeds: parameters have the shape [seed, parameter]. The
gradient is of the objective per transition, J/episode_length, whose Fisher information
is per transition too; gaps are of J itself.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import Number, check_positive, floats, whole_number

Array = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True, eq=False)
class Batch:
    """The transitions of one update, seed by seed.

    Attributes:
        states: shape [seed, sample, ...]; no entries for a task without states.
        actions: shape [seed, sample, ...].
        advantages: A, shape [seed, sample], with the exact value as the critic, in
            units of the objective per transition.
        log_policy: log π(action | state) of the policy that acted, [seed, sample].
        units: shape [sample], the number of the independent unit (the environment) that
            a sample belongs to.
    """

    states: Array
    actions: NDArray[Any]
    advantages: Array
    log_policy: Array
    units: NDArray[np.int64]

    def take(self, chosen: NDArray[np.int64]) -> "Batch":
        """A minibatch: the samples `chosen`, shape [seed, sample], of every seed."""
        seeds = np.arange(len(chosen))[:, None]
        return Batch(
            states=self.states[seeds, chosen],
            actions=self.actions[seeds, chosen],
            advantages=self.advantages[seeds, chosen],
            log_policy=self.log_policy[seeds, chosen],
            units=self.units,
        )


class Task(ABC):
    """A task that is known exactly; `world` is what survives from update to update."""

    @property
    @abstractmethod
    def start(self) -> Array:
        """Parameters before the first update, shape [parameter]."""

    @property
    @abstractmethod
    def optimum(self) -> Array:
        """The best parameters, shape [parameter]."""

    @property
    @abstractmethod
    def best_value(self) -> float:
        """J*, the return of the optimum."""

    @property
    @abstractmethod
    def episode_length(self) -> float:
        """Mean number of transitions of an episode."""

    @abstractmethod
    def gap(self, parameters: Array) -> Array:
        """J* − J, shape [seed]; inf where the return is not finite."""

    @abstractmethod
    def kl(self, before: Array, after: Array) -> Array:
        """KL(before ‖ after) over the states that `before` visits, nats, [seed]."""

    @abstractmethod
    def gradient(self, parameters: Array) -> Array:
        """The gradient per transition, shape [seed, parameter]."""

    @abstractmethod
    def natural(self, parameters: Array, gradient: Array) -> Array:
        """F⁺·gradient, shape [seed, parameter]."""

    @abstractmethod
    def proximal(
        self, parameters: Array, anchor: Array, gradient: Array, outer_step: Number
    ) -> Array:
        """The best policy for the surrogate less KL to the anchor/η, exactly."""

    @abstractmethod
    def estimate(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Array, Any]:
        """An unbiased gradient of n transitions (exact for n = inf), and the world."""

    @abstractmethod
    def sample(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Batch, Any]:
        """Draw n transitions of every seed, and the world after them."""

    @abstractmethod
    def log_policy(self, parameters: Array, batch: Batch) -> Array:
        """The log π(action | state), shape [seed, sample]."""

    @abstractmethod
    def scores(self, parameters: Array, batch: Batch) -> Array:
        """∇log π(action | state), shape [seed, sample, parameter]."""

    @abstractmethod
    def weighted_score(self, parameters: Array, batch: Batch, weights: Array) -> Array:
        """Mean over the samples of weight·∇log π, shape [seed, parameter]."""


def count_of(samples: Number) -> int:
    """Samples per update as an int.

    Raises:
        ValueError: if it is not a whole number above 0.
    """
    check_positive("samples_per_update", samples)
    return int(whole_number("samples_per_update", samples))


def is_exact(samples: Number) -> bool:
    """Whether an update sees infinitely many samples: no noise."""
    return isinstance(samples, float) and samples == math.inf


def starting_point(initial: ArrayLike | None, usual: Array) -> Array:
    """The parameters to start from: `initial`, or the usual ones.

    Raises:
        ValueError: if the shape of `initial` is not the usual one.
    """
    if initial is None:
        return usual
    point = floats("initial", initial)
    if point.shape != usual.shape:
        msg = f"initial has shape {point.shape}; it must be {usual.shape}."
        raise ValueError(msg)
    return point
