"""What a person sets, and what a task is, near a local optimum: the input of `plateau`.

Every number may be an array; all of them broadcast.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import (
    Number,
    align,
    check_finite,
    check_nonnegative,
    check_positive,
    whole_number,
)
from theory.outer.step_rules import StepRule, plain_rule

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One direction of the local quadratic; a spectrum is an axis of it.

    Attributes:
        curvature: h > 0.
        noise_variance: σ² > 0, of one sample's gradient in that direction.
    """

    curvature: Number
    noise_variance: Number

    def __post_init__(self) -> None:
        check_positive("curvature", self.curvature)
        check_positive("noise_variance", self.noise_variance)


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The knobs of PPO or PPO-EWMA that its plateau depends on.

    Attributes:
        learning_rate: α > 0, of the optimiser's gradient steps.
        samples_per_update: n, transitions per update, a multiple of the minibatch.
        minibatch_size: m, transitions per gradient step.
        update_epochs: E ≥ 1, passes over the batch, reshuffled for each.
        outer_step: η > 0, the inverse weight of the penalty (x − r)²/(2η) that holds
            the policy to its proximal one; inf is no penalty.
        com: centre of mass of the proximal policy's average, in gradient steps; None
            is PPO, whose proximal policy is the behaviour policy, reset every update.
        outer_learning_rate: σ > 0, applied to the whole inner loop's change; 1 is PPO.
        outer_momentum: μ, likewise; 0 is PPO.
        rule: what the optimiser makes of a minibatch's gradient.
    """

    learning_rate: Number
    samples_per_update: Number
    minibatch_size: Number
    update_epochs: Number = 1
    outer_step: Number = math.inf
    com: Number | None = None
    outer_learning_rate: Number = 1
    outer_momentum: Number = 0
    rule: StepRule = plain_rule

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_positive("samples_per_update", self.samples_per_update)
        check_positive("minibatch_size", self.minibatch_size)
        if np.any(whole_number("update_epochs", self.update_epochs) == 0):
            msg = f"update_epochs is {self.update_epochs}; it must be at least 1."
            raise ValueError(msg)
        (eta,) = align(self.outer_step)
        check_positive("outer_step", np.where(np.equal(eta, math.inf), 1, eta))
        if self.com is not None:
            check_nonnegative("com", self.com)
        check_positive("outer_learning_rate", self.outer_learning_rate)
        check_finite("outer_momentum", self.outer_momentum)
        passes = np.divide(self.samples_per_update, self.minibatch_size)
        if not np.all(passes == np.floor(passes)):
            msg = (
                f"samples_per_update is {self.samples_per_update}; it must be a "
                f"multiple of the minibatch_size, {self.minibatch_size}."
            )
            raise ValueError(msg)


class Cells(NamedTuple):
    """Knobs and task as flat float arrays of one length, in the letters of the note."""

    eta: Array
    alpha: Array
    n: Array
    m: Array
    epochs: Array
    sigma: Array
    mu: Array
    h: Array
    noise: Array
    com: Array | None

    @property
    def minibatches(self) -> Array:
        """M = n/m, of one pass."""
        return self.n / self.m

    @property
    def gradient_steps(self) -> Array:
        """K = E·n/m, of one update."""
        return self.epochs * self.minibatches

    def moved(self, alpha: Array, noise: Array) -> "Cells":
        """The same with another learning rate and noise."""
        return self._replace(alpha=alpha, noise=noise)


def cells(knobs: Knobs, task: Task) -> tuple[Cells, tuple[int, ...]]:
    """Knobs and task flattened, and the shape to give the results.

    Args:
        knobs: numbers and arrays.
        task: likewise.

    Returns:
        The cells, and the shape they broadcast to.

    Raises:
        ValueError: if the shapes do not broadcast.
    """
    values = [
        knobs.outer_step,
        knobs.learning_rate,
        knobs.samples_per_update,
        knobs.minibatch_size,
        knobs.update_epochs,
        knobs.outer_learning_rate,
        knobs.outer_momentum,
        task.curvature,
        task.noise_variance,
    ]
    if knobs.com is not None:
        values.append(knobs.com)
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values))
    flat = [array.reshape(-1) for array in arrays]
    com = flat.pop() if knobs.com is not None else None
    return Cells._make([*flat, com]), arrays[0].shape
