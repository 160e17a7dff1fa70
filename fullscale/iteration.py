"""One PPO update as a pure function: rollout → advantages → inner loop → outer step.

Runs inside `shard_map`: every function here sees one device's blocks, and reduces over
the mesh axis where it means the whole.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, Key

from fullscale import keys
from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.measure import episode_means, explained_variance, outer_kl
from fullscale.network import Agent
from fullscale.returns import advantages
from fullscale.rollout import rollout, start_worlds
from fullscale.state import Batch, Learner, Rates, TrainState, Trajectory, Worlds
from fullscale.update import inner_loop, make_optimiser, outer_step

Metrics = dict  # metric name → scalar


def start(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
) -> TrainState:
    """State before the first update, from a seed's base key."""
    zero = jnp.zeros((), jnp.int32)
    parameters = agent.init(keys.stream(key, keys.INIT, zero))
    worlds = start_worlds(
        environment,
        keys.stream(key, keys.RESET, zero),
        blocks,
        config.num_envs // config.num_blocks,
    )
    vector, _ = ravel_pytree(parameters)
    learner = Learner(parameters, make_optimiser(config).init(vector))
    state = TrainState(learner=learner, worlds=worlds, key=key, update=zero)
    return jax.tree.map(_strong, state)


def iteration(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    state: TrainState,
    rates: Rates,
    blocks: Int[Array, " block"],
) -> tuple[TrainState, Metrics]:
    """One update of one seed; returns the new state and its metrics."""
    before = state.learner.parameters
    worlds, trajectory, episodes = rollout(
        environment,
        agent,
        before,
        state.worlds,
        keys.stream(state.key, keys.ROLLOUT, state.update),
        blocks,
        config.rollout_length,
    )
    batch = make_batch(agent, before, trajectory, worlds, rates)
    key = keys.stream(state.key, keys.SHUFFLE, state.update)
    learner, report = inner_loop(
        config, agent, state.learner, batch, rates, key, blocks
    )
    policy = outer_step(
        before["policy"], learner.parameters["policy"], rates.outer_learning_rate
    )
    learner = learner._replace(parameters={**learner.parameters, "policy": policy})
    metrics = {
        "outer_kl": outer_kl(
            agent,
            before["policy"],
            policy,
            batch.observation,
            config.samples_per_update,
        ),
        **report.info._asdict(),
        "grad_norm": report.grad_norm,
        "explained_variance": explained_variance(
            batch.target - batch.advantage, batch.target
        ),
        **episode_means(episodes),
        **_exact(environment, policy),
    }
    state = TrainState(learner, worlds, state.key, state.update + 1)
    return state, metrics


def make_batch(
    agent: Agent, parameters: Any, trajectory: Trajectory, worlds: Worlds, rates: Rates
) -> Batch:
    """Transitions with advantages and targets, rows laid out block after block."""
    advantage = advantages(
        trajectory.reward,
        trajectory.value,
        trajectory.next_value,
        agent.value(parameters["value"], worlds.observation),
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
    )
    return jax.tree.map(_rows, batch)


def _strong(x: Array) -> Array:
    """The same array with a fixed dtype; a weak one would compile the update twice."""
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return x if is_key else jax.lax.convert_element_type(x, x.dtype)


def _rows(x: Array) -> Array:
    """[time, block, env, …] → [row, …] with all rows of a block together."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(-1, *x.shape[3:])


def _exact(environment: Environment, policy: Any) -> Metrics:
    if environment.exact_return is None:
        return {}
    return {"exact_return": environment.exact_return(policy)}
