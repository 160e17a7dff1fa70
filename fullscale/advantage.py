"""Standardising advantages: over which rows, and over all devices where it is meant."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fullscale.config import RunConfig
from fullscale.loss import DEVICE


def of_batch(
    config: RunConfig, advantage: Float[Array, "row *time"]
) -> Float[Array, "row *time"]:
    """The whole batch's advantages, standardised if the scope is "batch"."""
    if config.normalise_advantages and config.advantage_scope == "batch":
        return standardise(advantage[None])[0]
    return advantage


def of_minibatches(
    config: RunConfig, advantage: Float[Array, "minibatch row *time"], blocks: int
) -> Float[Array, "minibatch row *time"]:
    """Each minibatch's advantages, standardised over what the scope says.

    Args:
        config: the scope.
        advantage: this device's rows of every minibatch, block after block.
        blocks: how many blocks this device has.
    """
    if not config.normalise_advantages or config.advantage_scope == "batch":
        return advantage
    if config.advantage_scope == "minibatch":
        return standardise(advantage)
    minibatches, rows = advantage.shape[:2]
    cut = advantage.reshape(minibatches * blocks, rows // blocks, *advantage.shape[2:])
    return standardise(cut, everywhere=False).reshape(advantage.shape)


def standardise(
    advantage: Float[Array, "group row *time"], *, everywhere: bool = True
) -> Float[Array, "group row *time"]:
    """Zero mean and unit standard deviation over each group of rows.

    Args:
        advantage: this device's rows of each group.
        everywhere: the groups go on over all devices (in equal shares).
    """
    axes = tuple(range(1, advantage.ndim))

    def mean(x: Array) -> Array:
        local = x.mean(axes, keepdims=True)
        return jax.lax.pmean(local, DEVICE) if everywhere else local

    centred = advantage - mean(advantage)
    return centred / (jnp.sqrt(mean(jnp.square(centred))) + 1e-8)
