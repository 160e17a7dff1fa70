"""Networks of twice the width that compute the same function.

Unit j of a layer of width H keeps its place; units H … 2H−1 are new. Their incoming
weights are as a fresh network of the new width draws them, and their outgoing weights
to everything that was there before are zero (to other new units they are fresh), so
that each old sum gets exact zeros added at its end. Gradients reach the outgoing
weights at once and through them everything else (the aim of Net2Net, Chen et al. 2016,
without its copies of units, which would move together for ever).
"""

import numpy as np
from jaxtyping import Float

from fullscale.arrays import Arrays, join, split

GATES = 3  # blocks side by side in the arrays of a GRU layer


def widen(old: Arrays, fresh: Arrays) -> dict[str, np.ndarray]:
    """Old parameters in the shapes of fresh ones, computing what the old ones do.

    Args:
        old: path → array [seed, …].
        fresh: the same paths; each axis is as long as before, or twice that.

    Raises:
        ValueError: other paths or other lengths, by path.
    """
    if old.keys() != fresh.keys():
        name = min(old.keys() ^ fresh.keys())
        raise ValueError(f"{name} is in only one of the two networks")
    return {name: _widened(name, old[name], fresh[name]) for name in fresh}


def _widened(name: str, old: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    if old.shape == fresh.shape:
        return old.copy()
    if any(n not in (o, 2 * o) for o, n in zip(old.shape, fresh.shape, strict=True)):
        raise ValueError(
            f"{name} has shape {fresh.shape[1:]}, neither {old.shape[1:]} nor twice it"
        )
    gates = GATES if _is_packed(name) else 1
    before, after = _apart(old, gates), _apart(fresh, gates).copy()
    width = before.shape[-1]
    if old.ndim == 3:
        after[:, before.shape[1] :, :, :width] = 0.0
        after[:, : before.shape[1], :, :width] = before
    else:
        after[..., :width] = before
    return after.reshape(fresh.shape).astype(old.dtype)


def _is_packed(name: str) -> bool:
    """Whether a GRU's three gates lie side by side in the last axis."""
    *path, leaf = name.split("/")
    inside = [part for part in path if part.startswith("GatedRecurrence")]
    return bool(inside) and not (leaf == "bias" and path[-1] == inside[-1])


def _apart(array: np.ndarray, gates: int) -> np.ndarray:
    """[seed, …, gates·width] → [seed, …, gates, width]."""
    return array.reshape(*array.shape[:-1], gates, array.shape[-1] // gates)


def widen_vector(
    vector: Float[np.ndarray, "seed parameter"], old: Arrays, fresh: Arrays
) -> Float[np.ndarray, "seed wide_parameter"]:
    """A ravelled tree of the shapes of `old`, widened.

    Args:
        vector: e.g. an anchor, or an optimiser's moment.
        old: arrays of the old shapes.
        fresh: arrays of the new shapes, whose values new entries take where they are
            not zero by construction.
    """
    return join(widen(split(vector, old), fresh))
