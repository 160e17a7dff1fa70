"""PPO's loss of one minibatch, spread over devices.

L = −mean min(r A, clip(r, 1−ε, 1+ε) A) + c_v · ½ mean (V − target)² − c_e · mean H,
r = exp(log π(a|o) − log π_behaviour(a|o)). Means are over the *global* minibatch: each
device holds an equal share of its rows, so the mean over devices (`pmean`, inside the
differentiated function, where `shard_map` counts it once) is the mean over rows.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fullscale import distributions
from fullscale.network import Agent
from fullscale.state import Batch, LossInfo, Rates

DEVICE = "device"  # mesh axis over which environments are spread


def global_mean(x: Array) -> Array:
    """Mean over all rows of all devices (equal shares)."""
    return jax.lax.pmean(x.mean(), DEVICE)


def standardise(
    advantage: Float[Array, "*minibatch row"],
) -> Float[Array, "*minibatch row"]:
    """Zero mean and unit standard deviation over each global minibatch.

    The last axis holds this device's rows of a minibatch.
    """

    def mean(x: Array) -> Array:
        return jax.lax.pmean(x.mean(-1, keepdims=True), DEVICE)

    centred = advantage - mean(advantage)
    return centred / (jnp.sqrt(mean(jnp.square(centred))) + 1e-8)


def surrogate(
    log_ratio: Float[Array, " batch"],
    advantage: Float[Array, " batch"],
    clip_epsilon: Float[Array, ""],
) -> Float[Array, " batch"]:
    """min(r A, clip(r, 1−ε, 1+ε) A), with the whole gradient A ∂r at the tie r = 1.

    Written with a `where` on purpose: `minimum` would split the gradient at a tie, so
    that a clip of ε = 0 would keep only part of it.
    """
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon) * advantage
    return jnp.where(ratio * advantage <= clipped, ratio * advantage, clipped)


def loss(
    parameters: Any, agent: Agent, batch: Batch, rates: Rates
) -> tuple[Float[Array, ""], LossInfo]:
    """The loss to descend and what it is made of; `batch` is this device's share.

    `batch.advantage` is used as it is: standardise it beforehand if wanted.

    Returns:
        The global loss, and this device's parts of it (their means over devices are
        the global ones; they are reduced once per update, not once per step).
    """
    policy = agent.policy(parameters["policy"], batch.observation)
    log_ratio = distributions.log_prob(policy, batch.action) - batch.log_prob
    objective = surrogate(log_ratio, batch.advantage, rates.clip_epsilon)
    value = agent.value(parameters["value"], batch.observation)
    clipped = jnp.abs(jnp.expm1(log_ratio)) > rates.clip_epsilon
    info = LossInfo(
        policy_loss=-objective.mean(),
        value_loss=0.5 * jnp.square(value - batch.target).mean(),
        entropy=distributions.entropy(policy).mean(),
        clip_fraction=clipped.mean(dtype=value.dtype),
        approx_kl=(jnp.expm1(log_ratio) - log_ratio).mean(),
    )
    local = (
        info.policy_loss
        + rates.value_coefficient * info.value_loss
        - rates.entropy_coefficient * info.entropy
    )
    return jax.lax.pmean(local, DEVICE), info
