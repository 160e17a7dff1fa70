"""Whether the devices of a seed still hold the same: a checksum of every bit.

Learner, normaliser, keys and counters lie on all devices of a seed alike. `shard_map`
checks while it traces that they follow from what is alike; whether the devices really
computed the same, it cannot see.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, UInt32

from fullscale.loss import DEVICE
from fullscale.mesh import PER_SEED
from fullscale.state import TrainState


def compile_checksums(
    mesh: Mesh,
) -> Callable[[TrainState], UInt32[Array, "seed device"]] | None:
    """Jitted: states → a checksum of each device's copy of what is replicated.

    None where every seed has one device, so that there are no copies.

    Args:
        mesh: seeds × devices of a seed.
    """
    devices = mesh.shape[DEVICE]
    if devices == 1:
        return None

    def own(held: Any) -> UInt32[Array, "seed device"]:
        here = jnp.arange(devices) == jax.lax.axis_index(DEVICE)
        mine = jax.vmap(checksum)(held)
        return jax.lax.psum(jnp.where(here[None], mine[:, None], jnp.uint32(0)), DEVICE)

    mapped = jax.shard_map(own, mesh=mesh, in_specs=PER_SEED, out_specs=PER_SEED)
    jitted = jax.jit(mapped)
    nothing: Any = ()  # environments are nobody else's
    return lambda state: jitted(state._replace(worlds=nothing))


def checksum(tree: Any) -> UInt32[Array, ""]:
    """Σ (2i + 1)·wordᵢ modulo 2³² over the 32-bit words of all leaves.

    Odd factors, so that one changed word always changes the sum, and other factors for
    other places, so that an exchange does.
    """
    total, places = jnp.uint32(0), 0
    for leaf in jax.tree.leaves(tree):
        words = _words(leaf)
        place = jnp.arange(places, places + words.size, dtype=jnp.uint32)
        total = total + ((2 * place + 1) * words).sum(dtype=jnp.uint32)
        places += words.size
    return total


def _words(leaf: Array) -> UInt32[Array, " word"]:
    """The bits of an array, 32 at a time (or one number at a time if it has fewer)."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype.itemsize < 4:
        as_bits = leaf if leaf.dtype == bool else leaf.view(f"u{leaf.dtype.itemsize}")
        return as_bits.astype(jnp.uint32).reshape(-1)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(-1)
