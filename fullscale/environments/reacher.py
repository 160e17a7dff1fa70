"""`reacher`: gymnax's Reacher-misc, time limit 100, never terminal.

gymnax does not clip actions; they are clipped to the Box here, while the log-density
stays that of the unclipped action. `step_env` is used because it never resets.
"""

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.environments.protocol import Box, Environment, Step


def make(config: RunConfig) -> Environment:
    """Wrap gymnax's environment with its default parameters."""
    del config
    return from_gymnax("reacher", "Reacher-misc")


def from_gymnax(name: str, gymnax_id: str) -> Environment:
    """A gymnax environment with Box actions that ends by its time limit only."""
    env, params = gymnax.make(gymnax_id)
    space = env.action_space(params)
    action = Box(space.shape[0], float(jnp.min(space.low)), float(jnp.max(space.high)))
    horizon = params.max_steps_in_episode

    def reset(key: PRNGKeyArray, number: int) -> tuple[Any, Array]:
        keys = jax.random.split(key, number)
        observation, state = jax.vmap(env.reset_env, (0, None))(keys, params)
        return state, observation

    def step(key: PRNGKeyArray, state: Any, raw: Float[Array, "env action"]) -> Step:
        keys = jax.random.split(key, raw.shape[0])
        clipped = jnp.clip(raw, action.low, action.high)
        out = jax.vmap(env.step_env, (0, 0, 0, None))(keys, state, clipped, params)
        observation, following, reward = out[:3]
        truncated = following.time >= horizon
        never = jnp.zeros_like(truncated)
        return Step(following, observation, reward, never, truncated)

    return Environment(
        name=name,
        observation_size=env.observation_space(params).shape[0],
        action=action,
        horizon=horizon,
        reset=reset,
        step=step,
    )
