"""One PPO update as a pure function: rollout → advantages → inner loop → outer step.

Runs inside `shard_map`: every function here sees one device's blocks, and reduces over
the mesh axis where it means the whole.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, Key

from fullscale import instruments, keys, normalise, stagger
from fullscale.batch import make_batch
from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.measure import (
    episode_means,
    explained_variance,
    nonfinite,
    outer_kl,
)
from fullscale.network import Agent
from fullscale.rollout import rollout, start_worlds
from fullscale.state import Moments, Rates, TrainState, Trajectory, Worlds
from fullscale.update import Report, inner_loop, outer_step, start_learner

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
        stagger.elapsed(config, environment, blocks),
    )
    shape = worlds.episode_return.shape
    worlds = worlds._replace(
        carry=agent.carry(shape),
        discounted_return=jnp.zeros(shape) if config.normalise_rewards else None,
    )
    policy, _ = ravel_pytree(parameters["policy"])
    frozen = jnp.zeros((instruments.DECADES, policy.size), policy.dtype)
    state = TrainState(
        learner=start_learner(config, parameters),
        worlds=worlds,
        key=key,
        update=zero,
        frozen=frozen if config.meter_interval else None,
        normaliser=normalise.start(config, environment.observation_size),
    )
    return jax.tree.map(_strong, state)


def iteration(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    state: TrainState,
    rates: Rates,
    blocks: Int[Array, " block"],
    update: Int[Array, ""],
) -> tuple[TrainState, Metrics]:
    """One update of one seed; returns the new state and its metrics.

    `update` is `state.update` once more, the same for all seeds: whether the meters
    run must not depend on a vmapped value, or they would always run.
    """
    before = state.learner
    agent = normalise.seeing(agent, state.normaliser)
    worlds, trajectory, episodes = rollout(
        environment,
        agent,
        before.parameters,
        state.worlds,
        keys.stream(state.key, keys.ROLLOUT, state.update),
        blocks,
        config.rollout_length,
        mask_nonfinite=config.nonfinite == "mask",
        watch=config.normalise_observations,
    )
    worlds, returns = _discounted_returns(worlds, trajectory, rates)
    normaliser = normalise.after(state.normaliser, trajectory.moments, returns)
    scaled = normalise.rewards(state.normaliser, trajectory.reward)
    trajectory = trajectory._replace(reward=scaled)
    batch = make_batch(config, agent, before.parameters, trajectory, worlds, rates)
    key = keys.stream(state.key, keys.SHUFFLE, state.update)
    after, report = inner_loop(config, agent, before, batch, rates, key, blocks)
    learner = outer_step(config, before, after, rates)
    policy = learner.parameters["policy"]
    kl = outer_kl(
        agent,
        before.parameters["policy"],
        policy,
        batch.observation,
        config.samples_per_update,
    )
    value = batch.target - batch.advantage
    metrics = {
        "outer_kl": kl,
        **_learning(config, report),
        "explained_variance": explained_variance(value, batch.target),
        **episode_means(episodes),
        **nonfinite(trajectory, blocks),
        **_exact(environment, policy),
    }
    after_update = update + 1
    frozen = state.frozen
    if frozen is not None:
        frozen = instruments.freeze(frozen, policy, after_update)
        key = keys.stream(state.key, keys.METER, state.update)
        read = partial(
            instruments.read, config, agent, before, batch, rates, key, blocks
        )
        travelled = partial(
            instruments.travelled, config, agent, frozen, policy, batch, after_update
        )
        now = after_update % config.meter_interval == 0
        metrics |= _meter(read, travelled, now, tuple(jax.typeof(frozen).vma))
    state = TrainState(learner, worlds, state.key, state.update + 1, frozen, normaliser)
    return state, metrics


def _discounted_returns(
    worlds: Worlds, trajectory: Trajectory, rates: Rates
) -> tuple[Worlds, Moments | None]:
    """Moments of discounted returns of the update, where rewards are normalised."""
    if worlds.discounted_return is None:
        return worlds, None
    found, after = normalise.discounted_returns(
        trajectory.reward,
        trajectory.terminated | trajectory.truncated,
        worlds.discounted_return,
        rates.discount,
    )
    return worlds._replace(discounted_return=after), normalise.moments_of(found)


def _learning(config: RunConfig, report: Report) -> Metrics:
    """What the gradient steps reported, under the names of the log."""
    info = report.info._asdict()
    if config.is_plain_ppo:
        del info["importance_cap_fraction"]
    return {
        **info,
        "grad_norm": report.grad_norm,
        "anchor_age": report.anchor_age,
        "skipped_gradient_steps": report.skipped,
        "nonfinite_gradients": report.nonfinite,
    }


def _meter(
    read: Callable[[], instruments.Reading],
    travelled: Callable[[], Array],
    now: Bool[Array, ""],
    spread: tuple[str, ...],
) -> Metrics:
    """The meters' numbers where they run now, else NaN on the same mesh axes."""

    def measure() -> Metrics:
        decades = {f"kl_to_update_{10**i}": x for i, x in enumerate(travelled())}
        return {**read()._asdict(), **decades}

    shapes = jax.eval_shape(measure)

    def nothing() -> Metrics:
        nan = {k: jnp.full(s.shape, jnp.nan, s.dtype) for k, s in shapes.items()}
        return jax.tree.map(lambda x: jax.lax.pcast(x, spread, to="varying"), nan)

    return jax.lax.cond(now, measure, nothing)


def _strong(x: Array) -> Array:
    """The same array with a fixed dtype; a weak one would compile the update twice."""
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return x if is_key else jax.lax.convert_element_type(x, x.dtype)


def _exact(environment: Environment, policy: Any) -> Metrics:
    if environment.exact_return is None:
        return {}
    return {"exact_return": environment.exact_return(policy)}
