"""Collecting: T steps of every environment under the behaviour policy."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fullscale import distributions, keys
from fullscale.environments.protocol import Environment, Step
from fullscale.network import Agent
from fullscale.state import Episodes, Trajectory, Worlds

# Length at the start of an episode that began late: negative to its end.
NOT_WHOLE = -(2**31)


def start_worlds(
    environment: Environment,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
    envs_per_block: int,
    elapsed: Int[Array, "block env"] | None = None,
) -> Worlds:
    """Freshly reset environments of the given global blocks; consumes `key`.

    Args:
        environment: what is reset.
        key: consumed; folded with the global block.
        blocks: global indices of this device's blocks.
        envs_per_block: environments of each.
        elapsed: transitions by which first episodes begin late (`fullscale.stagger`).
    """
    state, observation = jax.vmap(environment.reset, (0, None))(
        keys.per_block(key, blocks), envs_per_block
    )
    zero = jnp.zeros(observation.shape[:2], observation.dtype)
    length = jnp.zeros(zero.shape, jnp.int32)
    if elapsed is not None and environment.elapse is not None:
        state = jax.vmap(environment.elapse)(state, elapsed)
        length = jnp.where(elapsed > 0, NOT_WHOLE, length)
    return Worlds(
        state=state,
        observation=observation,
        episode_return=zero,
        episode_length=length,
    )


class _Collected(NamedTuple):
    """What one step leaves behind; the critic is applied to all steps at once later."""

    observation: Float[Array, "block env obs"]
    action: Array
    log_prob: Float[Array, "block env"]
    next_value: Float[Array, "block env"]
    reward: Float[Array, "block env"]
    terminated: Bool[Array, "block env"]
    truncated: Bool[Array, "block env"]
    bad_reward: Bool[Array, "block env"]
    bad_observation: Bool[Array, "block env"]


def rollout(  # noqa: PLR0913
    environment: Environment,
    agent: Agent,
    parameters: Any,
    worlds: Worlds,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
    length: int,
    *,
    mask_nonfinite: bool = False,
) -> tuple[Worlds, Trajectory, Episodes]:
    """Act for `length` steps; finished episodes start anew at once.

    Args:
        environment: what is stepped.
        agent: networks.
        parameters: {"policy", "value"} of the behaviour policy.
        worlds: environments of this device's blocks.
        key: consumed; folded with the step and the global block.
        blocks: global indices of this device's blocks.
        length: T.
        mask_nonfinite: end an episode at a reward or observation that is not finite,
            as a terminal step of reward 0; otherwise it is only marked.

    Returns:
        The environments afterwards, the trajectory [time, block, env, …], and this
        device's sums over finished episodes.
    """

    def body(worlds: Worlds, time: Array) -> tuple[Worlds, tuple[_Collected, Episodes]]:
        block_keys = keys.per_block(jax.random.fold_in(key, time), blocks)
        return _step(
            environment, agent, parameters, worlds, block_keys, mask=mask_nonfinite
        )

    worlds, (steps, episodes) = jax.lax.scan(body, worlds, jnp.arange(length))
    value = agent.value(parameters["value"], steps.observation)
    trajectory = Trajectory(value=value, **steps._asdict())
    return worlds, trajectory, Episodes(*(x.sum() for x in episodes))


def _step(
    environment: Environment,
    agent: Agent,
    parameters: Any,
    worlds: Worlds,
    block_keys: Key[Array, " block"],
    *,
    mask: bool,
) -> tuple[Worlds, tuple[_Collected, Episodes]]:
    act_keys, step_keys, reset_keys = jnp.moveaxis(
        jax.vmap(lambda k: jax.random.split(k, 3))(block_keys), 1, 0
    )
    policy = agent.policy(parameters["policy"], worlds.observation)
    action = jax.vmap(distributions.sample)(act_keys, policy)
    out = jax.vmap(environment.step)(step_keys, worlds.state, action)
    bad_reward = ~jnp.isfinite(out.reward)
    bad_observation = ~jnp.isfinite(out.observation).all(-1)
    if mask:
        out = _end_where(bad_reward | bad_observation, out)
    collected = _Collected(
        observation=worlds.observation,
        action=action,
        log_prob=distributions.log_prob(policy, action),
        next_value=_value_where_truncated(agent, parameters["value"], out),
        reward=out.reward,
        terminated=out.terminated,
        truncated=out.truncated,
        bad_reward=bad_reward,
        bad_observation=bad_observation,
    )
    worlds, episodes = _advance(environment, worlds, out, reset_keys)
    return worlds, (collected, episodes)


def _end_where(bad: Bool[Array, "block env"], out: Step) -> Step:
    """The same step, terminal and without reward where it is bad."""
    return out._replace(
        observation=jnp.where(bad[..., None], 0.0, out.observation),
        reward=jnp.where(bad, 0.0, out.reward),
        terminated=out.terminated | bad,
        truncated=out.truncated & ~bad,
    )


def _value_where_truncated(agent: Agent, parameters: Any, out: Step) -> Array:
    """The critic's value of the true final observation; not computed if none is."""
    return _if_any(
        out.truncated,
        lambda: agent.value(parameters, out.observation),
        jnp.zeros_like(out.reward),
    )


def _advance(
    environment: Environment,
    worlds: Worlds,
    out: Step,
    reset_keys: Key[Array, " block"],
) -> tuple[Worlds, Episodes]:
    """Count the step; put a fresh episode where one ended; sum up the whole ones."""
    done = out.terminated | out.truncated
    returns = worlds.episode_return + out.reward
    lengths = worlds.episode_length + 1
    whole = done & (lengths > 0)
    episodes = Episodes(
        number=whole.sum(dtype=returns.dtype),
        total_return=jnp.where(whole, returns, 0.0).sum(),
        total_length=jnp.where(whole, lengths, 0).sum(dtype=returns.dtype),
    )
    current = (out.state, out.observation)

    def renew() -> Any:
        fresh = jax.vmap(environment.reset, (0, None))(reset_keys, done.shape[1])
        return jax.tree.map(partial(_replace, done), fresh, current)

    state, observation = _if_any(done, renew, current)
    worlds = Worlds(
        state=state,
        observation=observation,
        episode_return=jnp.where(done, 0.0, returns),
        episode_length=jnp.where(done, 0, lengths),
    )
    return worlds, episodes


def _if_any(
    mask: Bool[Array, "..."], compute: Callable[[], Any], otherwise: Any
) -> Any:
    """`compute()` if any of `mask` is set, else `otherwise`, which costs nothing.

    A loop of at most one turn instead of `cond`, which computes both branches once
    seeds are vmapped.
    """

    def turn(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        pending, old = carry
        new = jax.tree.map(lambda n, o: n.astype(o.dtype), compute(), old)
        return jnp.zeros_like(pending), new

    return jax.lax.while_loop(lambda carry: carry[0], turn, (mask.any(), otherwise))[1]


def _replace(mask: Bool[Array, "block env"], new: Array, old: Array) -> Array:
    """`new` where the mask is set, over any trailing axes."""
    mask = mask.reshape(mask.shape + (1,) * (old.ndim - mask.ndim))
    return jnp.where(mask, new, old)
