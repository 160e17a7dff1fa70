"""PPO's update: epochs of minibatch steps on the clipped surrogate.

With ρ = π(a|s)/π_r(a|s) against the anchor r, the surrogate is the mean over samples of
the behaviour policy b of (π_r/π_b)·min(ρA, clip(ρ, 1−ε, 1+ε)·A). Its gradient is the
mean of (π/π_b)·A·∇log π, without the samples whose ρ has left the interval in the
direction of A (Schulman et al. 2017, r = b; Hilton et al. 2022, r an average).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import Number, check_positive, one_number, whole_number
from theory.exact_loops.anchors import BEHAVIOUR, Anchor
from theory.exact_loops.optimisers import Optimiser
from theory.exact_loops.rules import Rule, State
from theory.exact_loops.tasks import Array, Batch, Generator, Task

Scaling = Callable[[Array], Array]
Between = Callable[[Optimiser, Array, Any], Any]


def as_sampled(advantages: Array) -> Array:
    """The advantages in units of the objective."""
    return advantages


def normalised(advantages: Array) -> Array:
    """Advantages of mean 0 and standard deviation 1, per seed."""
    centred = advantages - advantages.mean(-1, keepdims=True)
    return centred / (centred.std(-1, keepdims=True) + 1e-8)


def carried(optimiser: Optimiser, parameters: Array, memory: Any) -> Any:
    """The optimiser remembers across updates, as it does in trainers."""
    return memory


def fresh(optimiser: Optimiser, parameters: Array, memory: Any) -> Any:
    """The optimiser starts anew at every update."""
    return optimiser.memory(parameters)


@dataclass(frozen=True, kw_only=True)
class ClippedSurrogate(Rule):
    """E epochs × M minibatches of gradient steps, then an outer learning rate.

    Attributes:
        optimiser: `Sgd` or `Adam`.
        clip_epsilon: ε > 0; inf never clips.
        update_epochs: E.
        num_minibatches: M, a divisor of the samples per update.
        outer_learning_rate: σ > 0 in x' = x + σ(x'' − x), x'' after the inner loop.
        scaling: of a minibatch's advantages, `as_sampled` or `normalised`.
        anchor: `BehaviourAnchor` (PPO) or `AveragedAnchor` (PPO-EWMA).
        between: what an update leaves of the optimiser's memory, `carried` or `fresh`.
    """

    optimiser: Optimiser
    clip_epsilon: Number = 0.2
    update_epochs: int = 4
    num_minibatches: int = 4
    outer_learning_rate: Number = 1.0
    scaling: Scaling = as_sampled
    anchor: Anchor = BEHAVIOUR
    between: Between = carried

    def __post_init__(self) -> None:
        if not one_number("clip_epsilon", self.clip_epsilon) > 0:
            msg = f"clip_epsilon is {self.clip_epsilon}; it must be above 0."
            raise ValueError(msg)
        check_positive("outer_learning_rate", self.outer_learning_rate)
        for name in ("update_epochs", "num_minibatches"):
            value = getattr(self, name)
            if whole_number(name, value) < 1:
                msg = f"{name} is {value}; it must be at least 1."
                raise ValueError(msg)

    def memory(self, parameters: Array) -> Any:
        """The optimiser's."""
        return self.optimiser.memory(parameters)

    def step(
        self, task: Task, state: State, samples: Number, generator: Generator
    ) -> State:
        """One update.

        Raises:
            ValueError: if the minibatches do not divide the samples.
        """
        batch, world = task.sample(state.acting, samples, state.world, generator)
        x, r = state.acting, self.anchor.before(state)
        memory = self.between(self.optimiser, x, state.memory)
        for _ in range(self.update_epochs):
            for chosen in self._minibatches(batch, generator):
                gradient = self.gradient(task, x, r, batch.take(chosen))
                move, memory = self.optimiser.step(gradient, memory)
                x = x + move
                r = self.anchor.after_step(r, x)
        share = self.outer_learning_rate
        new = state.acting + share * (x - state.acting)
        anchor = self.anchor.after_update(
            state.anchor + share * (r - state.anchor), new
        )
        return State(new, anchor, memory, world)

    def gradient(
        self, task: Task, parameters: Array, anchor: Array, batch: Batch
    ) -> Array:
        """The gradient of the clipped surrogate, shape [seed, parameter].

        Args:
            task: the task.
            parameters: shape [seed, parameter].
            anchor: r, likewise.
            batch: of the behaviour policy; its advantages are scaled here.
        """
        worth = self.scaling(batch.advantages)
        log_policy = task.log_policy(parameters, batch)
        ratio = np.exp(log_policy - task.log_policy(anchor, batch))
        inside = np.where(
            worth > 0, ratio < 1 + self.clip_epsilon, ratio > 1 - self.clip_epsilon
        )
        weights = inside * np.exp(log_policy - batch.log_policy) * worth
        return task.weighted_score(parameters, batch, weights)

    def _minibatches(
        self, batch: Batch, generator: Generator
    ) -> list[NDArray[np.int64]]:
        seeds, samples = batch.advantages.shape
        if samples % self.num_minibatches:
            msg = (
                f"num_minibatches is {self.num_minibatches}; "
                f"it must divide the samples per update, {samples}."
            )
            raise ValueError(msg)
        order = np.broadcast_to(np.arange(samples), (seeds, samples))
        mixed = generator.permuted(order, axis=1)
        return np.split(mixed, self.num_minibatches, axis=1)
