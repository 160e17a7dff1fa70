"""Minibatches: a fresh permutation of each logical block's transitions per epoch.

A minibatch takes the same number of transitions from every block. Blocks, not devices,
own the permutations, so minibatches do not change with the number of devices.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from fullscale import keys

_ROUNDS = 4


def permutation(key: Key[Array, ""], size: int) -> Int[Array, " size"]:
    """A pseudo-random permutation of 0 … size−1; consumes `key`.

    For a power of two no sort is needed: rounds of xor with a random word, product
    with a random odd number modulo `size`, and xor with the shifted self, each of which
    is a bijection. Other sizes sort random words.
    """
    if size & (size - 1):
        return jnp.argsort(jax.random.bits(key, (size,)))
    bits = size.bit_length() - 1
    mask = jnp.uint32(size - 1)
    index = jnp.arange(size, dtype=jnp.uint32)
    words = jax.random.bits(key, (_ROUNDS, 2))
    for masking, factor in words:
        index = (index ^ masking) & mask
        index = (index * (factor | jnp.uint32(1))) & mask
        index = index ^ (index >> jnp.uint32((bits + 1) // 2))
    return index.astype(jnp.int32)


def minibatch_rows(
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
    rows_per_block: int,
    num_minibatches: int,
) -> Int[Array, "minibatch row"]:
    """Rows of each minibatch among this device's rows, laid out block after block.

    Consumes `key`, folded with each block's global index.
    """
    block_keys = keys.per_block(key, blocks)
    orders = jax.vmap(permutation, (0, None))(block_keys, rows_per_block)
    offsets = jnp.arange(blocks.shape[0], dtype=orders.dtype) * rows_per_block
    rows = (orders + offsets[:, None]).reshape(blocks.shape[0], num_minibatches, -1)
    return rows.swapaxes(0, 1).reshape(num_minibatches, -1)
