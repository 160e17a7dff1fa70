"""gymnax's environments: their own physics, our ends, clips and clocks."""

import dataclasses
import functools
from collections.abc import Iterator

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale.environments import make_environment
from fullscale.environments.gymnax import from_gymnax
from fullscale.environments.protocol import Box, Discrete, Environment
from fullscale.presets import preset
from tests.support.trainer import setup

IDS = {"reacher": "Reacher-misc", "swimmer": "Swimmer-misc", "pendulum": "Pendulum-v1"}
HORIZONS = {"reacher": 100, "swimmer": 500, "pendulum": 200}
SIZES = {"reacher": (8, 2), "swimmer": (16, 2), "pendulum": (3, 1)}
BOUNDS = {"reacher": 1.0, "swimmer": 1.0, "pendulum": 2.0}
SMALL = {
    "num_envs": 16, "rollout_length": 8, "minibatch_size": 64, "update_epochs": 1,
    "hidden_sizes": (4,), "meter_interval": 0,
}  # fmt: skip
names = pytest.mark.parametrize("name", sorted(IDS))


@pytest.fixture(autouse=True)
def _promotion() -> Iterator[None]:
    """gymnax's Swimmer subtracts arrays of different rank."""
    with jax.numpy_rank_promotion("allow"):
        yield


@functools.cache
def made(name: str) -> Environment:
    """With compiled functions."""
    environment = make_environment(preset(name, 10**6))
    return dataclasses.replace(
        environment,
        reset=jax.jit(environment.reset, static_argnums=1),
        step=jax.jit(environment.step),
    )


@names
def test_sizes_and_limits_are_gymnaxs(name: str) -> None:
    environment = made(name)
    observation, action = SIZES[name]
    assert environment.observation_size == observation
    assert environment.action == Box(action, -BOUNDS[name], BOUNDS[name])
    assert environment.horizon == HORIZONS[name]
    assert environment.exact_return is None


@names
def test_steps_are_gymnaxs_own(name: str) -> None:
    """Ten steps, beside `env.step` of each environment by itself."""
    environment = made(name)
    env, params = gymnax.make(IDS[name])
    state, observation = environment.reset(jax.random.key(0), 2)
    keys = jax.random.split(jax.random.key(0), 2)
    theirs, its_state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    np.testing.assert_array_equal(observation, theirs)
    its_step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    for time in range(10):
        one = 0.5 * jnp.sin(jnp.arange(float(SIZES[name][1])) + time)
        action = jnp.stack([one, -one])
        out = environment.step(jax.random.key(9), state, action)
        theirs, its_state, reward, *_ = its_step(keys, its_state, action, params)
        np.testing.assert_allclose(out.observation, theirs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out.reward, reward, rtol=1e-5)
        state = out.state


@names
def test_an_episode_is_truncated_at_its_horizon_and_never_terminated(name: str) -> None:
    environment = made(name)
    limit = HORIZONS[name]
    state, _ = environment.reset(jax.random.key(0), 2)
    action = jnp.zeros((2, SIZES[name][1]))

    def body(state: object, key: jax.Array) -> tuple:
        out = environment.step(key, state, action)
        return out.state, (out.terminated, out.truncated)

    keys = jax.random.split(jax.random.key(1), limit)
    start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)
    _, (terminated, truncated) = jax.jit(lambda s: jax.lax.scan(body, s, keys))(start)
    assert not np.asarray(terminated).any()
    assert not np.asarray(truncated[:-1]).any()
    assert np.asarray(truncated[-1]).all()


@names
def test_an_old_episode_ends_sooner_and_looks_the_same(name: str) -> None:
    environment = made(name)
    state, _ = environment.reset(jax.random.key(0), 2)
    ages = HORIZONS[name] - jnp.asarray([2, 1])
    assert environment.elapse is not None
    old = environment.elapse(state, ages)
    assert [x.dtype for x in jax.tree.leaves(old)] == [
        x.dtype for x in jax.tree.leaves(state)
    ]
    action = jnp.zeros((2, SIZES[name][1]))
    first = environment.step(jax.random.key(1), old, action)
    np.testing.assert_array_equal(first.truncated, [False, True])
    second = environment.step(jax.random.key(1), first.state, action)
    np.testing.assert_array_equal(second.truncated, [True, True])
    fresh = environment.step(jax.random.key(1), state, action)
    np.testing.assert_array_equal(first.observation, fresh.observation)
    np.testing.assert_array_equal(first.reward, fresh.reward)


@names
def test_actions_are_clipped_to_the_box_by_the_environment(name: str) -> None:
    environment = made(name)
    state, _ = environment.reset(jax.random.key(0), 2)
    shape = (2, SIZES[name][1])
    inside, at, beyond = (
        environment.step(
            jax.random.key(1), state, jnp.full(shape, scale * BOUNDS[name])
        )
        for scale in (0.9, 1.0, 50.0)
    )
    np.testing.assert_array_equal(at.observation, beyond.observation)
    np.testing.assert_array_equal(at.reward, beyond.reward)
    assert not np.array_equal(inside.observation, at.observation)


def test_what_is_terminal_is_told_from_the_time_limit() -> None:
    """CartPole, pushed to the right, falls; held up by its clock alone, it is cut."""
    environment = from_gymnax("cart", "CartPole-v1")
    assert environment.action == Discrete(2)
    assert environment.elapse is not None
    state, _ = environment.reset(jax.random.key(0), 2)
    step, right = jax.jit(environment.step), jnp.ones(2, int)
    last = jnp.full(2, 499)
    cut = step(jax.random.key(0), environment.elapse(state, last), right)
    assert np.asarray(cut.truncated).all()
    assert not np.asarray(cut.terminated).any()
    for time in range(20):
        out = step(jax.random.key(time), state, right)
        state = out.state
        assert not np.asarray(out.truncated).any()
        if np.asarray(out.terminated).all():
            break
    assert np.asarray(out.terminated).all()
    both = step(jax.random.key(0), environment.elapse(state, last), right)
    assert np.asarray(both.terminated).all()
    assert not np.asarray(both.truncated).any()


@pytest.mark.parametrize("name", ["swimmer", "pendulum"])
def test_the_trainer_takes_them(name: str) -> None:
    """Traced, not run: they go through the same program as `reacher`."""
    one = setup(preset(name, 1024, **SMALL))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    state = jax.eval_shape(one.start, keys)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    after, metrics = jax.eval_shape(one.chunk, state, one.rates(), count)
    assert after == state
    assert metrics["outer_kl"].shape == (one.capacity, 1)
