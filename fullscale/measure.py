"""What theory speaks of, measured on the device: exact outer KL, batch statistics."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fullscale import distributions
from fullscale.loss import DEVICE, global_mean
from fullscale.network import Agent
from fullscale.state import Episodes

KL_STATES = 65_536  # at least so many states of the batch enter `outer_kl`, or all


def outer_kl(
    agent: Agent,
    before: Any,
    after: Any,
    observation: Float[Array, "row obs"],
    samples_per_update: int,
) -> Float[Array, ""]:
    """Mean exact KL(behaviour ‖ policy after the update) over the batch, in nats.

    Both policies are recomputed on the same rows, so it is exactly 0 when the policy
    did not move. Batches of more than 2·`KL_STATES` transitions are thinned by a fixed
    stride that leaves at least `KL_STATES` of them.
    """
    stride = max(1, samples_per_update // KL_STATES)
    rows = observation[::stride]
    policies = (agent.policy(parameters, rows) for parameters in (before, after))
    return global_mean(distributions.kl(*policies))


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


def _variance(x: Array) -> Float[Array, ""]:
    return global_mean(jnp.square(x - global_mean(x)))
