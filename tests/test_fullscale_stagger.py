"""Staggered starts: time limits fall evenly, and cut first episodes are not counted."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullscale import mesh, rollout, stagger
from fullscale.config import ConfigError, RunConfig
from fullscale.environments import make_environment
from fullscale.environments.protocol import Discrete, Environment, Step
from fullscale.keys import base_keys
from fullscale.network import make_agent
from fullscale.presets import preset

HORIZON, LENGTH, ENVS = 12, 4, 32


def clock(horizon: int = HORIZON) -> Environment:
    """Nothing but a clock: reward 1 per step, a time limit, no end."""

    def reset(key: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
        del key
        return jnp.zeros(number, jnp.int32), jnp.ones((number, 1))

    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
        del key, action
        time, one = state + 1, jnp.ones((state.shape[0], 1))
        over = time >= horizon
        return Step(time, one, one[:, 0], jnp.zeros_like(over), over)

    return Environment(
        name="clock",
        observation_size=1,
        action=Discrete(2),
        horizon=horizon,
        reset=reset,
        step=step,
        elapse=lambda state, transitions: transitions.astype(state.dtype),
    )


def configured(**changes: Any) -> RunConfig:
    values = {
        "environment": "clock", "budget": 10**9, "num_envs": ENVS,
        "rollout_length": LENGTH, "minibatch_size": 16, "network": "linear",
    }  # fmt: skip
    return RunConfig(**{**values, **changes})


def late(config: RunConfig, horizon: int, blocks: np.ndarray | None = None) -> Any:
    if blocks is None:
        blocks = np.arange(config.num_blocks)
    return stagger.elapsed(config, clock(horizon), jnp.asarray(blocks, jnp.int32))


@pytest.mark.parametrize(
    ("wanted", "length", "horizon", "staggered"),
    [
        ("auto", 4, 12, True),
        ("auto", 12, 12, False),
        ("auto", 16, 12, False),
        ("auto", 4, None, False),
        ("on", 16, 12, True),
        ("off", 4, 12, False),
    ],
)
def test_auto_is_on_where_a_rollout_is_shorter_than_the_limit(
    wanted: str, length: int, horizon: int | None, *, staggered: bool
) -> None:
    config = configured(staggered_starts=wanted, rollout_length=length)
    environment = clock(horizon or HORIZON)
    if horizon is None:
        environment = dataclasses.replace(environment, horizon=None, elapse=None)
    assert stagger.is_staggered(config, environment) is staggered
    blocks = jnp.arange(config.num_blocks)
    elapsed = stagger.elapsed(config, environment, blocks)
    assert (elapsed is not None) is staggered


def test_on_is_refused_where_there_is_no_limit() -> None:
    with pytest.raises(ConfigError, match="'lqr', which has no time limit"):
        make_environment(preset("lqr", 10**6, staggered_starts="on"))
    make_environment(preset("lqr", 10**6))


def test_a_limit_without_a_clock_is_no_environment() -> None:
    with pytest.raises(ValueError, match="one needs the other"):
        dataclasses.replace(clock(), elapse=None)
    with pytest.raises(ValueError, match="one needs the other"):
        dataclasses.replace(clock(), horizon=None)


@given(
    envs=st.sampled_from([1, 2, 64, 96, 1024, 5 * 2**10, 2**15]),
    length=st.integers(1, 300),
    horizon=st.integers(2, 1200),
)
def test_limits_fall_evenly_into_updates(envs: int, length: int, horizon: int) -> None:
    """N·T/H per update up to 6 (4.1 seen at N = 49,152), on steps of a grid."""
    config = configured(
        num_envs=envs, rollout_length=length, minibatch_size=envs * length,
        staggered_starts="on",
    )  # fmt: skip
    ages = np.asarray(late(config, horizon)).ravel()
    assert ages.shape == (envs,)
    assert ages.min() >= 0
    assert ages.max() < horizon
    assert (ages % math.gcd(horizon, length) == 0).all()
    updates = np.arange(60)
    cut = [(k * length + ages) // horizon for k in (*updates, 60)]  # limits met so far
    per_update = np.diff(np.sum(cut, axis=1))
    assert np.abs(per_update - envs * length / horizon).max() <= 6


def test_phases_are_the_golden_ratios() -> None:
    config = configured(staggered_starts="on", num_envs=1024, minibatch_size=1024)
    got = np.asarray(late(config, 1000)).ravel()
    exact = [(i * 2654435769) % 2**32 / 2**32 for i in range(1024)]
    assert (np.abs(got - 4 * np.floor(250 * np.array(exact))) <= 4).all()
    assert (got == 4 * np.floor(250 * np.array(exact))).mean() > 0.99


@settings(max_examples=20)
@given(st.sampled_from([1, 2, 4]))
def test_an_environments_age_depends_on_its_global_index_only(devices: int) -> None:
    config = configured(staggered_starts="on", num_envs=128, minibatch_size=128)
    whole = late(config, 100)
    parts = np.split(np.arange(config.num_blocks), devices)
    np.testing.assert_array_equal(
        np.concatenate([late(config, 100, part) for part in parts]), whole
    )


@pytest.mark.parametrize("devices", [2, 4])
def test_devices_start_the_same_worlds(devices: int) -> None:
    config = configured()
    environment = clock()
    agent = make_agent(config, environment)
    worlds = [
        mesh.compile_start(config, environment, agent, mesh.make_mesh(number))(
            base_keys(0, 2)
        ).worlds
        for number in (1, devices)
    ]
    np.testing.assert_array_equal(worlds[0].state, worlds[1].state)
    np.testing.assert_array_equal(worlds[0].episode_length, worlds[1].episode_length)
    blocks = jnp.arange(config.num_blocks)
    ages = np.asarray(stagger.elapsed(config, environment, blocks))
    assert ages.max() > 0
    np.testing.assert_array_equal(worlds[0].state[0], ages)
    np.testing.assert_array_equal(worlds[0].state[1], ages)
    np.testing.assert_array_equal(worlds[0].episode_length[0] < 0, ages > 0)


@functools.cache
def history(wanted: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Limits, and number, return and length of episodes, in 18 updates' rollouts."""
    config = configured(staggered_starts=wanted)
    environment = clock()
    agent = make_agent(config, environment)
    blocks = jnp.arange(config.num_blocks)
    state = jax.jit(mesh.compile_start(config, environment, agent, mesh.make_mesh(1)))(
        base_keys(0, 1)
    )
    worlds = jax.tree.map(lambda x: x[0], state.worlds)
    parameters = jax.tree.map(lambda x: x[0], state.learner.parameters)

    @jax.jit
    def collect(worlds: Any, key: jax.Array) -> Any:
        worlds, trajectory, episodes = rollout.rollout(
            environment, agent, parameters, worlds, key, blocks, LENGTH
        )
        return worlds, (trajectory.truncated.sum(), *episodes)

    rows = []
    for key in jax.random.split(jax.random.key(1), 18):
        worlds, row = collect(worlds, key)
        rows.append(row)
    return tuple(np.array(rows).T)


def test_staggered_limits_come_evenly_and_others_all_at_once() -> None:
    expected = ENVS * LENGTH / HORIZON
    staggered, *_ = history("auto")
    assert np.abs(staggered - expected).max() <= 2
    together, *_ = history("off")
    np.testing.assert_array_equal(together, [0, 0, ENVS] * 6)


@pytest.mark.parametrize("wanted", ["auto", "off"])
def test_only_whole_episodes_are_counted(wanted: str) -> None:
    """Whole ones return and last H; the cut ones would pull the mean down."""
    cut, number, returns, length = history(wanted)
    np.testing.assert_array_equal(returns, HORIZON * number)
    np.testing.assert_array_equal(length, HORIZON * number)
    config = configured(staggered_starts=wanted)
    ages = late(config, HORIZON)
    cut_short = 0 if ages is None else int((np.asarray(ages) > 0).sum())
    assert cut.sum() - number.sum() == cut_short
    first = HORIZON // LENGTH
    np.testing.assert_array_equal(number[2 * first :], cut[2 * first :])
