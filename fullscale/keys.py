"""Random streams by name: a key depends on what it is for, never on call order.

A stream is folded from the seed's base key with a constant, then with the update, then
with whatever distinguishes its uses (time step, global block, epoch). Nothing depends
on the number of devices, and a resumed run sees the same keys.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

INIT, RESET, ROLLOUT, SHUFFLE, EVALUATE, METER = range(6)


def stream(key: Key[Array, ""], name: int, update: Int[Array, ""]) -> Key[Array, ""]:
    """Key of one named stream at one update."""
    return jax.random.fold_in(jax.random.fold_in(key, name), update)


def per_block(
    key: Key[Array, ""], blocks: Int[Array, " block"]
) -> Key[Array, " block"]:
    """One key per logical block, from the block's global index."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, blocks)


def base_keys(seed: int, number: int) -> Key[Array, " seed"]:
    """Base keys of seeds seed … seed+number−1."""
    return jax.vmap(jax.random.key)(jnp.arange(seed, seed + number))
