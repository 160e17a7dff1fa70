"""Rollouts of networks with a memory: replayed, across episodes, cut into stretches."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import instruments
from fullscale import rollout as rollout_module
from fullscale.agent import Agent, Carry, Stretch
from fullscale.batch import make_batch, rows, stretches
from fullscale.config import RunConfig
from fullscale.distributions import log_prob
from fullscale.network import make_agent
from fullscale.precision import full
from fullscale.presets import preset
from fullscale.rollout import rollout, start_worlds
from fullscale.schedule import rates as scheduled
from fullscale.state import Batch, Rates, Trajectory, Worlds
from tests.support.small_worlds import following, wander

TIME, ENVS, STRETCH = 15, 6, 5  # T ≠ N ≠ 256, one environment per block
BLOCKS = jnp.arange(ENVS)


def config_of(network: str, precision: str) -> RunConfig:
    recurrent = {"segment_length": STRETCH} if network == "gru" else {}
    return preset(
        "reacher", 10**6, num_envs=ENVS, rollout_length=TIME, minibatch_size=30,
        network=network, hidden_sizes=(5, 4), compute_precision=precision,
        storage_precision=precision, **recurrent,
    )  # fmt: skip


class Collected(NamedTuple):
    agent: Agent
    parameters: dict
    before: Worlds
    trajectory: Trajectory
    worlds: Worlds
    batch: Batch


@functools.cache
def collected(network: str, precision: str = "full") -> Collected:
    """The second of two rollouts, so that its first carry is not zero."""
    config, environment = config_of(network, precision), wander()
    agent = make_agent(config, environment)
    drawn = agent.init(jax.random.key(0))
    parameters = jax.tree.map(
        lambda p: p + 0.3 * jnp.sin(jnp.arange(p.size)).reshape(p.shape), drawn
    )
    rates: Rates = jax.tree.map(lambda column: column[0], scheduled(config, [0]))

    @jax.jit
    def collect(worlds: Worlds, key: jax.Array) -> tuple:
        after, trajectory, _ = rollout(
            environment, agent, parameters, worlds, key, BLOCKS, TIME
        )
        batch = make_batch(config, agent, parameters, trajectory, after, rates)
        return after, trajectory, batch

    worlds = start_worlds(environment, jax.random.key(1), BLOCKS, 1)
    worlds = worlds._replace(carry=agent.carry((ENVS, 1)))
    before, *_ = collect(worlds, jax.random.key(2))
    worlds, trajectory, batch = collect(before, jax.random.key(3))
    return Collected(agent, parameters, before, trajectory, worlds, batch)


def done(trajectory: Trajectory) -> np.ndarray:
    return np.asarray(trajectory.terminated | trajectory.truncated)


def test_the_rollout_has_episodes_of_every_kind() -> None:
    """What the tests below rest on."""
    one = collected("gru")
    assert np.asarray(one.trajectory.terminated)[:-1].any()
    assert np.asarray(one.trajectory.truncated)[:-1].any()
    assert 0 < np.asarray(one.trajectory.start).mean() < 0.5
    assert np.abs(np.asarray(one.before.carry.policy)).min() > 0
    assert not done(one.trajectory)[STRETCH - 1].all()


def test_an_episode_starts_where_the_one_before_has_ended() -> None:
    one = collected("gru")
    start = np.asarray(one.trajectory.start)
    np.testing.assert_array_equal(start[1:], done(one.trajectory)[:-1])
    np.testing.assert_array_equal(start[0], np.asarray(one.before.episode_length) == 0)
    np.testing.assert_array_equal(one.worlds.begins, done(one.trajectory)[-1])


@pytest.mark.parametrize("network", ["gru", "mlp"])
def test_replaying_step_after_step_gives_what_was_stored(network: str) -> None:
    """T4, the slow twin: one environment at a time, its memory wiped after each end."""
    one = collected(network)
    agent, trajectory = one.agent, one.trajectory
    act, judge = jax.jit(agent.act), jax.jit(agent.judge)
    never = jnp.zeros((1,), bool)
    for env in range(ENVS):
        fresh = agent.carry((1,))
        carry = jax.tree.map(lambda c, e=env: c[e], one.before.carry)
        if bool(one.before.begins[env, 0]):
            carry = fresh
        for time in range(TIME):
            seen = trajectory.observation[time, env]
            policy, mind = act(one.parameters["policy"], carry.policy, seen, never)
            value, judgement = judge(one.parameters["value"], carry.value, seen, never)
            carry = type(carry)(mind, judgement)
            at = (time, env)
            np.testing.assert_allclose(
                log_prob(policy, trajectory.action[at]),
                trajectory.log_prob[at],
                atol=1e-5,
            )
            np.testing.assert_allclose(value, trajectory.value[at], atol=1e-5)
            if bool(trajectory.truncated[at][0]):
                last, _ = judge(
                    one.parameters["value"], judgement, following(seen), never
                )
                np.testing.assert_allclose(last, trajectory.next_value[at], atol=1e-5)
            if done(trajectory)[at][0]:
                carry = fresh
        left = jax.tree.map(lambda c, e=env: c[e], one.worlds.carry)
        if not bool(one.worlds.begins[env, 0]):
            jax.tree.map(
                functools.partial(np.testing.assert_allclose, atol=1e-5), left, carry
            )


def replayed(one: Collected) -> tuple[np.ndarray, np.ndarray]:
    """Log-densities and values of the batch, as the first minibatch has them."""

    @jax.jit
    def replay() -> tuple:
        policy = one.agent.policy(one.parameters["policy"], one.batch.observation)
        value = one.agent.value(one.parameters["value"], one.batch.observation)
        return log_prob(policy, one.batch.action), value

    again, value = replay()
    np.testing.assert_array_equal(again, replay()[0])
    return np.asarray(again), np.asarray(value)


@pytest.mark.parametrize("precision", ["full", "bfloat16"])
@pytest.mark.parametrize("network", ["gru", "mlp"])
def test_a_batch_with_unchanged_parameters_has_ratio_one(
    network: str, precision: str
) -> None:
    """T1: 1e-5 of stored log-densities; exactly when recomputed at the same shapes."""
    one = collected(network, precision)
    again, value = replayed(one)
    np.testing.assert_allclose(again, one.batch.log_prob, atol=1e-5)
    np.testing.assert_allclose(value, one.batch.target - one.batch.advantage, atol=1e-5)


@pytest.mark.parametrize("network", ["gru", "mlp"])
def test_the_policy_acts_on_what_is_stored(network: str) -> None:
    """Negative control: at full precision the observations were others."""
    one = collected(network, "bfloat16")
    stored = one.trajectory.observation
    assert stored.nbytes * 2 == collected(network).trajectory.observation.nbytes
    state, _ = one.before.state
    assert (np.asarray(full(stored[0])) != np.asarray(state)).any()
    moved = jax.tree.map(  # the next number of half precision, away from zero
        lambda x: (
            x + jnp.asarray(x.dtype == jnp.uint16, x.dtype) if x.dtype != bool else x
        ),
        one.batch.observation,
    )
    again, _ = replayed(one._replace(batch=one.batch._replace(observation=moved)))
    assert np.abs(again - np.asarray(one.batch.log_prob)).max() > 1e-4


def test_values_of_the_end_do_not_touch_the_memory() -> None:
    """The carry afterwards is the policy's and critic's own, batch or no batch."""
    one = collected("gru")
    environment = wander()
    again = jax.jit(
        lambda: (
            rollout(
                environment,
                one.agent,
                one.parameters,
                one.before,
                jax.random.key(3),
                BLOCKS,
                TIME,
            )[0].carry
        )
    )()
    jax.tree.map(np.testing.assert_array_equal, again, one.worlds.carry)


def test_a_memory_one_step_late_would_be_noticed() -> None:
    """Negative control: zeroing after the step, not before it, is another function."""
    one = collected("gru")
    stretch = one.batch.observation
    late = jnp.roll(stretch.start, 1, axis=1)
    assert isinstance(stretch, Stretch)
    policy = one.agent.policy(one.parameters["policy"], stretch._replace(start=late))
    again = log_prob(policy, one.batch.action)
    assert np.abs(np.asarray(again - one.batch.log_prob)).max() > 1e-2


def test_rows_are_stretches_of_one_environment_each() -> None:
    """Block after block, then time, then environment; the carry that belongs to it."""
    time, block, env = np.meshgrid(
        np.arange(6), np.arange(4), np.arange(2), indexing="ij"
    )
    x = jnp.asarray(time + 10 * block + 100 * env)
    cut = np.asarray(stretches(x, 3))
    assert cut.shape == (4 * 2 * 2, 3)
    expected = [
        [t + 10 * b + 100 * e for t in range(first, first + 3)]
        for b in range(4)
        for first in (0, 3)
        for e in range(2)
    ]
    np.testing.assert_array_equal(cut, expected)
    carry = np.asarray(rows(x[::3]))
    np.testing.assert_array_equal(carry, cut[:, 0])
    np.testing.assert_array_equal(stretches(x, 1)[:, 0], rows(x))


def test_the_meters_halves_are_even_and_odd_environments_with_their_memories() -> None:
    """The split-half meter cuts stretches as it cuts transitions."""
    config = preset(
        "reacher", 10**6, num_envs=8, rollout_length=6, minibatch_size=24,
        network="gru", segment_length=3,
    )  # fmt: skip
    blocks = config.num_blocks
    assert config.can_be_halved
    time, block, env = np.meshgrid(
        np.arange(6), np.arange(blocks), np.arange(8 // blocks), indexing="ij"
    )
    x = jnp.asarray(1000 * env + 10 * block + time, float)
    cut = stretches(x, 3)
    stretch = Stretch(cut[..., None], cut > 0, Carry(rows(x[::3])[:, None], ()))
    batch = Batch(stretch, cut, cut, cut, cut, None)
    halves = instruments.split(config, batch, blocks)
    for half in range(2):
        kept = np.asarray(halves.log_prob[half])
        assert set((kept // 1000 % 2).ravel()) == {half}
        first = halves.observation.carry.policy[half, :, 0]
        np.testing.assert_array_equal(first, kept[:, 0])
    together = np.sort(np.asarray(halves.log_prob).ravel())
    np.testing.assert_array_equal(together, np.sort(np.asarray(x).ravel()))


def test_carries_of_stretches_are_those_on_the_way() -> None:
    one = collected("gru")
    carry = np.asarray(one.trajectory.carry.policy)
    assert carry.shape == (TIME // STRETCH, ENVS, 1, 4)
    np.testing.assert_array_equal(carry[0], one.before.carry.policy)
    assert isinstance(one.batch.observation, Stretch)
    np.testing.assert_array_equal(
        one.batch.observation.carry.policy, rows(one.trajectory.carry.policy)
    )


def test_transitions_of_feed_forward_networks_have_no_time_axis() -> None:
    one = collected("mlp")
    assert one.batch.observation.shape == (ENVS * TIME, 2)
    assert jax.tree.leaves((one.worlds.carry, one.trajectory.carry)) == []


@pytest.mark.parametrize("most", [1, 20, 30, 10**6])
def test_values_of_parts_are_those_of_all_steps(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = collected("mlp")
    monkeypatch.setattr(rollout_module, "VALUES_AT_ONCE", most)
    value = jax.jit(functools.partial(rollout_module._values, one.agent))(
        one.parameters["value"], one.trajectory.observation
    )
    np.testing.assert_allclose(value, one.trajectory.value, rtol=1e-6, atol=1e-6)


def moments_watched(offset: float) -> Any:
    """Moments that a rollout takes, and all its observations, without a normaliser."""
    environment, one = wander(), collected("mlp")
    shifted = one.before._replace(observation=one.before.observation + offset)
    # `wander` goes on from its state: only the first observation is shifted.
    _, trajectory, _ = jax.jit(
        lambda worlds: rollout(
            environment,
            one.agent,
            one.parameters,
            worlds,
            jax.random.key(3),
            BLOCKS,
            TIME,
            watch=True,
        )
    )(shifted)
    return trajectory.moments, np.asarray(trajectory.observation, np.float64)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_moments_are_those_of_what_was_seen(offset: float) -> None:
    moments, seen = moments_watched(offset)
    whole = seen.reshape(-1, 2)
    np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments.variance, whole.var(0), rtol=1e-4)
