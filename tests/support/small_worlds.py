"""Small environments for networks with a memory."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fullscale.environments.protocol import Box, Discrete, Environment, Step

DELAY = 3  # transitions after the cue at which `recall` asks for it
LIMIT = 7  # of an episode of `wander`


def recall() -> Environment:
    """A cue ±1, then nothing but the time; the last action earns 1 if it names the cue.

    The observation at which it is asked for is the same for both cues: without a
    memory nothing earns more than 1/2 on average.
    """

    def show(cue: Array, time: Array) -> Float[Array, "env 2"]:
        asked = (time == DELAY).astype(cue.dtype)
        return jnp.stack([jnp.where(time == 0, cue, 0.0), asked], axis=-1)

    def reset(key: PRNGKeyArray, number: int) -> tuple[Any, Array]:
        cue = jax.random.rademacher(key, (number,), float)
        time = jnp.zeros(number, jnp.int32)
        return (cue, time), show(cue, time)

    def step(key: PRNGKeyArray, state: Any, action: Int[Array, " env"]) -> Step:
        del key
        cue, time = state
        last = time == DELAY
        right = (action == 1) == (cue > 0)
        state = (cue, time + 1)
        reward = (last & right).astype(cue.dtype)
        return Step(state, show(*state), reward, last, jnp.zeros_like(last))

    return Environment("recall", 2, Discrete(2), None, reset, step)


def following(x: Float[Array, "*batch 2"]) -> Float[Array, "*batch 2"]:
    """The next observation of `wander`, a function of the one before."""
    return jnp.cos(
        3.0 * x + jnp.asarray([0.5, 1.5], x.dtype).reshape((1,) * (x.ndim - 1) + (2,))
    )


def wander() -> Environment:
    """A chaotic walk that ends at random, or else at the time limit."""

    def reset(key: PRNGKeyArray, number: int) -> tuple[Any, Array]:
        x = jax.random.uniform(key, (number, 2))
        return (x, jnp.zeros(number, jnp.int32)), x

    def step(key: PRNGKeyArray, state: Any, action: Float[Array, "env 1"]) -> Step:
        x, time = state
        x, time = following(x), time + 1
        ended = jax.random.bernoulli(key, 0.1, time.shape)
        reward = action[:, 0] * x[:, 0]
        return Step((x, time), x, reward, ended, ~ended & (time >= LIMIT))

    def elapse(state: Any, time: Int[Array, " env"]) -> Any:
        return state[0], time

    return Environment("wander", 2, Box(1), LIMIT, reset, step, elapse)


def wide(size: int) -> Environment:
    """Observations of many numbers, and nothing to do."""

    def reset(key: PRNGKeyArray, number: int) -> tuple[Any, Array]:
        time = jnp.zeros(number, jnp.int32)
        return time, jax.random.normal(key, (number, size))

    def step(key: PRNGKeyArray, state: Any, action: Int[Array, " env"]) -> Step:
        x = jax.random.normal(key, (*state.shape, size))
        never = jnp.zeros_like(state, bool)
        return Step(state + 1, x, action.astype(x.dtype), never, never)

    return Environment("wide", size, Discrete(2), None, reset, step)
