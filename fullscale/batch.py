"""A rollout as the batch that is learned from: advantages, targets, rows.

A row is one transition, or, for networks with a memory, a stretch of them. Rows are
laid out block after block, and within a block time after time, so that its environments
follow each other.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from fullscale.agent import Agent, Stretch
from fullscale.config import RunConfig
from fullscale.returns import advantages
from fullscale.state import Batch, Rates, Trajectory, Worlds


def make_batch(
    config: RunConfig,
    agent: Agent,
    parameters: Any,
    trajectory: Trajectory,
    worlds: Worlds,
    rates: Rates,
) -> Batch:
    """All transitions of an update, with advantages and targets.

    Args:
        config: whether values are clipped.
        agent: networks.
        parameters: of the behaviour policy and its critic.
        trajectory: what was collected, rewards as they are to be learned from.
        worlds: the environments after it; their memory is read and not changed.
        rates: traced knobs.
    """
    advantage = advantages(
        trajectory.reward,
        trajectory.value,
        trajectory.next_value,
        last_value(agent, parameters, worlds),
        trajectory.terminated,
        trajectory.truncated,
        rates,
    )
    batch = Batch(
        observation=trajectory.observation,
        action=trajectory.action,
        log_prob=trajectory.log_prob,
        advantage=advantage,
        target=advantage + trajectory.value,
        value=None if config.value_clip == float("inf") else trajectory.value,
    )
    if not agent.stretch:
        return jax.tree.map(rows, batch)
    cut = partial(stretches, length=agent.stretch)
    observation, start = cut(trajectory.observation), cut(trajectory.start)
    carry = jax.tree.map(rows, trajectory.carry)
    batch = jax.tree.map(cut, batch)
    return batch._replace(observation=Stretch(observation, start, carry))


def last_value(agent: Agent, parameters: Any, worlds: Worlds) -> Array:
    """The critic's value of what the environments show now, [block, env]."""
    seen, begins = agent.see(worlds.observation), worlds.begins
    value, _ = agent.judge(parameters["value"], worlds.carry.value, seen, begins)
    return value


def rows(x: Shaped[Array, "time block env *rest"]) -> Shaped[Array, "row *rest"]:
    """[time, block, env, …] → [row, …] with all rows of a block together."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(-1, *x.shape[3:])


def stretches(
    x: Shaped[Array, "time block env *rest"], length: int
) -> Shaped[Array, "row length *rest"]:
    """[time, block, env, …] → [row, length, …], each row of one environment."""
    x = x.reshape(-1, length, *x.shape[1:])
    x = jnp.moveaxis(x, (2, 0, 3, 1), (0, 1, 2, 3))
    return x.reshape(-1, *x.shape[3:])
