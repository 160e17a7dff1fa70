"""Trees on the host as arrays by slash-separated path, with a leading seed axis."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

Arrays = Mapping[str, np.ndarray]


def under(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    """Those whose path starts with `prefix`, under their whole path."""
    return {name: array for name, array in arrays.items() if name.startswith(prefix)}


def zeros(arrays: Arrays) -> dict[str, np.ndarray]:
    """Zeros of the same shapes."""
    return {name: np.zeros_like(array) for name, array in arrays.items()}


def nest(arrays: Arrays, prefix: str) -> dict:
    """Nested dictionaries of those whose path starts with `prefix`, without it."""
    nested: dict = {}
    for name, array in under(arrays, prefix).items():
        *path, leaf = name.removeprefix(prefix).split("/")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = array
    return nested


def split(
    vector: Float[np.ndarray, "seed parameter"], like: Arrays
) -> dict[str, np.ndarray]:
    """A ravelled tree taken apart: path → array, in the shapes and order of `like`.

    Raises:
        ValueError: the vector has another length than the arrays together.
    """
    sizes = [array[0].size for array in like.values()]
    if vector.shape[1] != sum(sizes):
        raise ValueError(f"{vector.shape[1]} parameters instead of {sum(sizes)}")
    parts = np.split(vector, np.cumsum(sizes)[:-1], axis=1)
    return {
        name: part.reshape(array.shape)
        for (name, array), part in zip(like.items(), parts, strict=True)
    }


def join(arrays: Arrays) -> Float[np.ndarray, "seed parameter"]:
    """The inverse of `split`: all arrays as one vector per seed, in their order."""
    return np.concatenate([a.reshape(len(a), -1) for a in arrays.values()], axis=1)
