"""Keys: none is used twice, and streams, updates, blocks, epochs and seeds differ."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.key_reuse._core import check_key_reuse

from fullscale import keys, update
from fullscale.config import RunConfig
from tests.support.trainer import SMALL_BANDIT, SMALL_LQR, SMALL_REACHER, setup

LQR = dataclasses.replace(SMALL_LQR, meter_interval=0)


def reuse(config: RunConfig, devices: int = 4) -> None:
    """Check that start and update consume no key twice. Raises KeyReuseError."""
    one = setup(config, devices)
    base = keys.base_keys(0, config.num_seeds)
    check_key_reuse(one.start, base)
    state = jax.eval_shape(one.start, base)
    check_key_reuse(one.chunk, state, one.rates(), jnp.int32(1))


@pytest.mark.parametrize(
    "config",
    [
        SMALL_LQR,
        SMALL_BANDIT,
        SMALL_REACHER,
    ],
    ids=["lqr", "bandit", "reacher"],
)
def test_no_key_is_used_twice(config: RunConfig) -> None:
    reuse(config)


def test_a_key_used_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = update.minibatch_rows

    def twice(key: jax.Array, *rest: Any) -> jax.Array:
        other = 0 * jax.random.randint(key, (), 0, 2)
        return original(key, *rest) + other * jax.random.randint(key, (), 0, 2)

    monkeypatch.setattr(update, "minibatch_rows", twice)
    with pytest.raises(jax.errors.KeyReuseError):
        reuse(dataclasses.replace(LQR, update_epochs=3), 1)


@given(st.integers(0, 2**31 - 200), st.integers(0, 2**31 - 200))
@settings(max_examples=20)
def test_streams_updates_blocks_and_seeds_have_keys_of_their_own(
    seed: int, first: int
) -> None:
    base = keys.base_keys(seed, 3)
    found = key_table(base, jnp.arange(first, first + 4))
    words = np.asarray(jax.random.key_data(found)).reshape(-1, 2)
    assert len(np.unique(words, axis=0)) == len(words) == 3 * 6 * 4 * 5


@jax.jit
def key_table(base: jax.Array, updates: jax.Array) -> jax.Array:
    """Keys [seed, stream, update, block]."""

    def one(key: jax.Array, name: jax.Array, at: jax.Array) -> jax.Array:
        own = jax.random.fold_in(jax.random.fold_in(key, name), at)
        return keys.per_block(own, jnp.arange(5))

    table = jax.vmap(one, (None, None, 0))
    table = jax.vmap(table, (None, 0, None))
    table = jax.vmap(table, (0, None, None))
    return table(base, jnp.arange(6), updates)


def test_a_stream_is_what_the_table_above_says() -> None:
    base = keys.base_keys(3, 1)
    table = key_table(base, jnp.arange(4))
    for name in (keys.INIT, keys.RESET, keys.ROLLOUT, keys.SHUFFLE, keys.METER):
        own = keys.per_block(keys.stream(base[0], name, jnp.int32(2)), jnp.arange(5))
        np.testing.assert_array_equal(
            jax.random.key_data(own), jax.random.key_data(table[0, name, 2])
        )


def test_environments_of_all_devices_begin_apart() -> None:
    seen = np.asarray(setup(LQR, 4).fresh().worlds.observation)
    rows = seen.reshape(LQR.num_envs, -1)
    assert len(np.unique(rows, axis=0)) == len(rows)
