"""Inside `shard_map`: over which mesh axes an array may differ.

A scan's carry must vary from the start over all axes over which it will; a replicated
array that is made to vary has its gradient summed over devices.
"""

import jax
from jaxtyping import Array, Shaped


def as_varying(
    x: Shaped[Array, "..."], *others: Shaped[Array, "..."]
) -> Shaped[Array, "..."]:
    """The same numbers, varying also over every axis over which the others do."""
    axes = frozenset().union(*(jax.typeof(other).vma for other in others))
    missing = tuple(axes - jax.typeof(x).vma)
    return jax.lax.pcast(x, missing, to="varying") if missing else x
