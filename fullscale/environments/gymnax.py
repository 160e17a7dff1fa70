"""Any gymnax environment as ours: `reacher`, `swimmer`, `pendulum`.

gymnax does not clip actions; they are clipped to the Box here, while the log-density
stays that of the unclipped action. `step_env` is used because it never resets: it says
what is terminal, and the time limit is told apart by the clock in the state.
"""

import math
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.environments import spaces
from jaxtyping import Array, Int, PRNGKeyArray

from fullscale.environments.protocol import Box, Discrete, Environment, Step


def from_gymnax(name: str, gymnax_id: str) -> Environment:
    """A gymnax environment with its default parameters.

    Args:
        name: in the configuration.
        gymnax_id: in gymnax; its observations are flattened to vectors.
    """
    env, params = gymnax.make(gymnax_id)
    action = _action(env.action_space(params))
    horizon = params.max_steps_in_episode

    def reset(key: PRNGKeyArray, number: int) -> tuple[Any, Array]:
        keys = jax.random.split(key, number)
        observation, state = jax.vmap(env.reset_env, (0, None))(keys, params)
        return state, observation.reshape(number, -1)

    def step(key: PRNGKeyArray, state: Any, raw: Array) -> Step:
        keys = jax.random.split(key, raw.shape[0])
        taken = raw
        if isinstance(action, Box):
            taken = jnp.clip(raw, action.low, action.high)
        out = jax.vmap(env.step_env, (0, 0, 0, None))(keys, state, taken, params)
        observation, following, reward, terminated = out[:4]
        truncated = (following.time >= horizon) & ~terminated
        observation = observation.reshape(raw.shape[0], -1)
        return Step(following, observation, reward, terminated, truncated)

    return Environment(
        name=name,
        observation_size=int(
            jnp.prod(jnp.asarray(env.observation_space(params).shape))
        ),
        action=action,
        horizon=horizon,
        reset=reset,
        step=step,
        elapse=elapse,
    )


def elapse(state: Any, transitions: Int[Array, " env"]) -> Any:
    """The same states with their episode clocks set."""
    return state.replace(time=transitions.astype(state.time.dtype))


def _action(space: Any) -> Box | Discrete:
    if isinstance(space, spaces.Discrete):
        return Discrete(space.n)
    low, high = float(jnp.min(space.low)), float(jnp.max(space.high))
    return Box(math.prod(space.shape), low, high)
