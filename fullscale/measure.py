"""What theory speaks of, measured on the device: exact outer KL, batch statistics."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fullscale import distributions
from fullscale.agent import Inputs
from fullscale.loss import DEVICE, global_mean
from fullscale.network import Agent
from fullscale.state import Episodes, Trajectory

KL_STATES = 65_536  # at least so many states of the batch enter `outer_kl`, or all


def outer_kl(
    agent: Agent,
    before: Any,
    after: Any,
    observation: Inputs,
    samples_per_update: int,
) -> Float[Array, ""]:
    """Mean exact KL(behaviour ‖ policy after the update) over the batch, in nats.

    Both policies are recomputed on the same rows, so it is exactly 0 when the policy
    did not move. Batches of more than 2·`KL_STATES` transitions are thinned by a fixed
    stride that leaves at least `KL_STATES` of them.
    """
    rows = thin(observation, samples_per_update)
    policies = (agent.policy(parameters, rows) for parameters in (before, after))
    return global_mean(distributions.kl(*policies))


def thin(observation: Any, samples_per_update: int) -> Any:
    """Every so-manieth row, so that at least `KL_STATES` of the global batch stay."""
    stride = max(1, samples_per_update // KL_STATES)
    return jax.tree.map(lambda x: x[::stride], observation)


def explained_variance(
    value: Float[Array, "..."], target: Float[Array, "..."]
) -> Float[Array, ""]:
    """1 − Var(target − value)/Var(target) over the global batch; NaN if constant."""
    return 1.0 - _variance(target - value) / _variance(target)


def episode_means(episodes: Episodes) -> dict[str, Float[Array, ""]]:
    """Mean return and length of the episodes that ended; NaN if none did."""
    total = jax.tree.map(lambda x: jax.lax.psum(x, DEVICE), episodes)
    return {
        "episode_return": total.total_return / total.number,
        "episode_length": total.total_length / total.number,
    }


def nonfinite(
    trajectory: Trajectory, blocks: Int[Array, " block"]
) -> dict[str, Float[Array, ""]]:
    """Counts of rewards and observations that were not finite, and where first.

    `nonfinite_environment` is the global index of the first environment with one at
    the earliest time step, −1 if there is none.
    """
    bad = trajectory.bad_reward | trajectory.bad_observation
    time, _, env = bad.shape
    index = blocks[:, None] * env + jnp.arange(env)[None]
    order = jnp.where(bad, jnp.arange(time)[:, None, None], time)
    earliest = jax.lax.pmin(order.min(), DEVICE)
    none = jnp.iinfo(index.dtype).max
    first = jnp.where(bad & (order == earliest), index[None], none).min()
    first = jax.lax.pmin(first, DEVICE)
    dtype = trajectory.reward.dtype
    counts = {
        "nonfinite_rewards": trajectory.bad_reward,
        "nonfinite_observations": trajectory.bad_observation,
    }
    return {
        **{k: jax.lax.psum(v.sum(dtype=dtype), DEVICE) for k, v in counts.items()},
        "nonfinite_environment": jnp.where(first == none, -1, first),
    }


def _variance(x: Array) -> Float[Array, ""]:
    return global_mean(jnp.square(x - global_mean(x)))
