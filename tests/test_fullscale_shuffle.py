import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale.shuffle import minibatch_rows, permutation
from tests.support.statistical import assert_mean

SIZES = (1, 2, 6, 8, 64, 96, 512)
compiled = jax.jit(permutation, static_argnums=1)


@given(st.integers(0, 2**31), st.sampled_from(SIZES))
def test_it_is_a_permutation(seed: int, size: int) -> None:
    order = np.asarray(compiled(jax.random.key(seed), size))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [8, 64, 96])
def test_every_place_is_equally_likely(size: int) -> None:
    """First, middle and last element: mean place (size−1)/2, and its square's mean.

    False-failure rate 1e-6 a call; sees a shift of a tenth of the range.
    """
    keys = jax.vmap(jax.random.key)(jnp.arange(4000))
    orders = np.asarray(jax.jit(jax.vmap(lambda k: permutation(k, size)))(keys))
    for place in (0, size // 2, size - 1):
        share = orders[:, place] / (size - 1)
        assert_mean(share, 0.5, effect=0.1)
        second = (size - 1) * (2 * size - 1) / 6 / (size - 1) ** 2
        assert_mean(share**2, second, effect=0.1)


def test_neighbours_are_not_kept_together() -> None:
    """Elements next to each other before are rarely next to each other after."""
    keys = jax.vmap(jax.random.key)(jnp.arange(2000))
    orders = np.asarray(jax.jit(jax.vmap(lambda k: permutation(k, 64)))(keys))
    adjacent = (np.abs(np.diff(orders, axis=1)) == 1).mean(axis=1)
    assert_mean(adjacent, 2 / 64, effect=0.01)


def test_a_shift_is_noticed_by_the_same_assertion() -> None:
    order = (np.arange(64)[None] + np.arange(2000)[:, None]) % 64
    adjacent = (np.abs(np.diff(order, axis=1)) == 1).mean(axis=1)
    with pytest.raises(AssertionError):
        assert_mean(adjacent, 2 / 64, effect=0.01)


@given(st.integers(0, 2**31))
def test_minibatches_cover_every_row_once_and_every_block_equally(seed: int) -> None:
    rows = np.asarray(jitted_rows(jax.random.key(seed), jnp.arange(4), 12, 3))
    np.testing.assert_array_equal(np.sort(rows.ravel()), np.arange(48))
    blocks = np.sort(rows // 12, axis=1)
    np.testing.assert_array_equal(blocks, np.repeat([np.arange(4)], 3, 0).repeat(4, 1))


jitted_rows = jax.jit(minibatch_rows, static_argnums=(2, 3))


@given(st.integers(0, 2**31))
def test_a_block_is_shuffled_alike_wherever_it_lives(seed: int) -> None:
    """Blocks 2 and 3 alone are ordered as they are among all four."""
    key = jax.random.key(seed)
    alone = np.asarray(jitted_rows(key, jnp.asarray([2, 3]), 12, 3))
    among = np.asarray(jitted_rows(key, jnp.arange(4), 12, 3))
    np.testing.assert_array_equal(alone + 24, among[:, 8:])


def test_epochs_and_seeds_differ() -> None:
    first, second = (compiled(jax.random.key(s), 512) for s in (0, 1))
    assert (np.asarray(first) != np.asarray(second)).mean() > 0.9
