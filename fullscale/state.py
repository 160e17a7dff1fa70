"""The trainer's state, declared: what is carried, what is collected, what can be set.

Axis names: `time` T, `block` (logical blocks of this device), `env` (environments per
block), `batch` (transitions of a minibatch), `obs`, `action`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fullscale.config import RunConfig


class Rates(NamedTuple):
    """The knobs that are traced: changing one never recompiles."""

    learning_rate: Float[Array, ""]
    clip_epsilon: Float[Array, ""]
    outer_learning_rate: Float[Array, ""]
    entropy_coefficient: Float[Array, ""]
    value_coefficient: Float[Array, ""]
    discount: Float[Array, ""]
    gae_lambda: Float[Array, ""]


def make_rates(config: RunConfig) -> Rates:
    """The configured rates as scalars of the default float type."""
    dtype = jnp.result_type(float)
    return Rates(*(jnp.asarray(getattr(config, k), dtype) for k in Rates._fields))


class Learner(NamedTuple):
    """Parameters {"policy", "value"}, and the optimiser's state over their ravel."""

    parameters: Any
    optimiser: Any


class Worlds(NamedTuple):
    """The environments and the episode each is in.

    Attributes:
        state: environment states, leading axes [block, env].
        observation: what the policy sees next.
        episode_return: undiscounted reward of the episode so far.
        episode_length: transitions of the episode so far.
    """

    state: Any
    observation: Float[Array, "block env obs"]
    episode_return: Float[Array, "block env"]
    episode_length: Int[Array, "block env"]


class TrainState(NamedTuple):
    """Everything that the next update depends on.

    Attributes:
        learner: networks and optimiser.
        worlds: environments.
        key: the seed's base key; streams are folded from it, it never changes.
        update: updates done.
    """

    learner: Learner
    worlds: Worlds
    key: Key[Array, ""]
    update: Int[Array, ""]


class Trajectory(NamedTuple):
    """What one rollout collected.

    Attributes:
        observation: before the action.
        action: as sampled (before any clipping by the environment).
        log_prob: log-density of the action under the behaviour policy.
        value: critic's value of `observation`.
        next_value: critic's value of the true next observation where the episode was
            truncated; unused elsewhere.
        reward: reward of the transition.
        terminated: nothing follows.
        truncated: cut by the time limit.
    """

    observation: Float[Array, "time block env obs"]
    action: Array
    log_prob: Float[Array, "time block env"]
    value: Float[Array, "time block env"]
    next_value: Float[Array, "time block env"]
    reward: Float[Array, "time block env"]
    terminated: Bool[Array, "time block env"]
    truncated: Bool[Array, "time block env"]


class Episodes(NamedTuple):
    """Sums over the episodes that ended in a rollout (sums, so devices can add them).

    Attributes:
        number: episodes that ended.
        total_return: sum of their undiscounted returns.
        total_length: sum of their lengths in transitions.
    """

    number: Float[Array, ""]
    total_return: Float[Array, ""]
    total_length: Float[Array, ""]


class Batch(NamedTuple):
    """Transitions as the loss sees them; leading axes [...] = any batch."""

    observation: Float[Array, "*batch obs"]
    action: Array
    log_prob: Float[Array, "*batch"]
    advantage: Float[Array, "*batch"]
    target: Float[Array, "*batch"]


class LossInfo(NamedTuple):
    """What a gradient step reports; means over its minibatch."""

    policy_loss: Float[Array, ""]
    value_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    clip_fraction: Float[Array, ""]
    approx_kl: Float[Array, ""]
