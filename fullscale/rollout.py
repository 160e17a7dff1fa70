"""Collecting: T steps of every environment under the behaviour policy."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from fullscale import distributions, keys
from fullscale.agent import Agent, Carry
from fullscale.environments.protocol import Environment, Step
from fullscale.state import Episodes, Moments, Trajectory, Worlds
from fullscale.varying import as_varying

# Length at the start of an episode that began late: negative to its end.
NOT_WHOLE = -(2**31)
VALUES_AT_ONCE = (
    65_536  # transitions of a device to which the critic is applied at once
)


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
    """What one step leaves behind.

    A critic without a memory is applied to all steps at once later; until then `value`
    is None. `moments` are of the observations' distances from where they began.
    """

    value: Float[Array, "block env"] | None
    moments: Moments | None
    observation: Shaped[Array, "block env obs"]
    action: Array
    log_prob: Float[Array, "block env"]
    next_value: Float[Array, "block env"]
    reward: Float[Array, "block env"]
    terminated: Bool[Array, "block env"]
    truncated: Bool[Array, "block env"]
    bad_reward: Bool[Array, "block env"]
    bad_observation: Bool[Array, "block env"]
    start: Bool[Array, "block env"]


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
    watch: bool = False,
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
        watch: take the moments of the observations as the environment gives them.

    Returns:
        The environments afterwards, the trajectory [time, block, env, …], and this
        device's sums over finished episodes.
    """
    first = worlds.observation.mean((0, 1), keepdims=True)
    step = partial(
        _step,
        environment,
        agent,
        parameters,
        reference=first if watch else None,
        mask=mask_nonfinite,
    )

    def body(worlds: Worlds, time: Array) -> tuple[Worlds, tuple[_Collected, Episodes]]:
        return step(worlds, keys.per_block(jax.random.fold_in(key, time), blocks))

    def stretch(worlds: Worlds, times: Array) -> tuple[Worlds, tuple[Carry, Any]]:
        after, collected = jax.lax.scan(body, worlds, times)
        return after, (worlds.carry, collected)

    times = jnp.arange(length).reshape(-1, agent.stretch or length)
    worlds, (carry, collected) = jax.lax.scan(stretch, worlds, times)
    steps, episodes = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), collected)
    if not agent.stretch:
        value = _values(agent, parameters["value"], steps.observation)
        steps = steps._replace(value=value)
    if watch:
        steps = steps._replace(moments=_whole(first, steps.moments))
    trajectory = Trajectory(carry=carry, **steps._asdict())
    return worlds, trajectory, Episodes(*(x.sum() for x in episodes))


def _values(
    agent: Agent, parameters: Any, observation: Shaped[Array, "time block env obs"]
) -> Float[Array, "time block env"]:
    """The critic's values, of all steps at once while that needs little memory."""
    length, *batch, _ = observation.shape
    most = max(1, VALUES_AT_ONCE // math.prod(batch))
    at_once = max(d for d in range(1, length + 1) if length % d == 0 and d <= most)
    if at_once == length:
        return agent.value(parameters, observation)
    cut = observation.reshape(-1, at_once, *observation.shape[1:])
    value = jax.lax.map(partial(agent.value, parameters), cut)
    return value.reshape(length, *batch)


def _step(
    environment: Environment,
    agent: Agent,
    parameters: Any,
    worlds: Worlds,
    block_keys: Key[Array, " block"],
    *,
    reference: Float[Array, "1 1 obs"] | None,
    mask: bool,
) -> tuple[Worlds, tuple[_Collected, Episodes]]:
    act_keys, step_keys, reset_keys = jax.vmap(lambda k: tuple(jax.random.split(k, 3)))(
        block_keys
    )
    seen, begins = agent.see(worlds.observation), worlds.begins
    remembered = worlds.carry
    policy, mind = agent.act(parameters["policy"], remembered.policy, seen, begins)
    value, judgement = agent.judge(parameters["value"], remembered.value, seen, begins)
    worlds = worlds._replace(carry=Carry(mind, judgement))
    action = jax.vmap(distributions.sample)(act_keys, policy)
    out = jax.vmap(environment.step)(step_keys, worlds.state, action)
    out = jax.tree.map(lambda part: as_varying(part, action), out)  # also constants
    bad_reward = ~jnp.isfinite(out.reward)
    bad_observation = ~jnp.isfinite(out.observation).all(-1)
    if mask:
        out = _end_where(bad_reward | bad_observation, out)
    collected = _Collected(
        value=value if agent.stretch else None,
        moments=None if reference is None else _moments(worlds.observation - reference),
        observation=seen,
        action=action,
        log_prob=distributions.log_prob(policy, action),
        next_value=_value_where_truncated(agent, parameters["value"], judgement, out),
        reward=out.reward,
        terminated=out.terminated,
        truncated=out.truncated,
        bad_reward=bad_reward,
        bad_observation=bad_observation,
        start=begins,
    )
    worlds, episodes = _advance(environment, worlds, out, reset_keys)
    return worlds, (collected, episodes)


def _moments(x: Float[Array, "block env obs"]) -> Moments:
    """Mean and mean square around zero of one step."""
    return Moments(x.mean((0, 1)), jnp.square(x).mean((0, 1)))


def _whole(first: Float[Array, "1 1 obs"], steps: Moments) -> Moments:
    """Of all steps, from those of the distances from `first`."""
    away, square = steps.mean.mean(0), steps.variance.mean(0)
    variance = jnp.maximum(square - jnp.square(away), 0.0)
    return Moments(first[0, 0] + away, variance)


def _end_where(bad: Bool[Array, "block env"], out: Step) -> Step:
    """The same step, terminal and without reward where it is bad."""
    return out._replace(
        observation=jnp.where(bad[..., None], 0.0, out.observation),
        reward=jnp.where(bad, 0.0, out.reward),
        terminated=out.terminated | bad,
        truncated=out.truncated & ~bad,
    )


def _value_where_truncated(
    agent: Agent, parameters: Any, carry: Any, out: Step
) -> Array:
    """The critic's value of the true final observation; not computed if none is.

    `carry` is the critic's after the step; what it would become is not kept.
    """
    going_on = jnp.zeros_like(out.truncated)
    return _if_any(
        out.truncated,
        lambda: agent.judge(parameters, carry, agent.see(out.observation), going_on)[0],
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
        once = jax.random.clone(reset_keys)  # `_if_any` turns at most once
        fresh = jax.vmap(environment.reset, (0, None))(once, done.shape[1])
        return jax.tree.map(partial(_replace, done), fresh, current)

    state, observation = _if_any(done, renew, current)
    worlds = worlds._replace(
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
