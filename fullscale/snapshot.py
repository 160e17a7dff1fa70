"""The state's arrays in a checkpoint: any tree of arrays, by the paths of its leaves.

Orbax writes and reads them, each device its own part, so that a state can be read onto
another number of devices. What it does not do is done here: it reads flipped bits
without a word (`manifest`), refuses arrays of size 0, and on a full disk logs pages of
tracebacks and raises a ValueError.
"""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import checkpoint as checkpoints
from fullscale import config as config_module
from fullscale import manifest
from fullscale.checkpoint import FORMAT, HOST, STATE, VERSION, Checkpoint, Leaf
from fullscale.config import RunConfig
from fullscale.counters import Counters
from fullscale.files import CONFIG


def by_path(tree: Any) -> dict[str, Any]:
    """Leaves of a tree by their slash-separated paths; None has no leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in leaves
    }
    assert len(named) == len(leaves), "two leaves have the same path"
    return named


def describe(tree: Any) -> dict[str, Leaf]:
    """Shape and dtype of every leaf, by path."""
    return {
        name: Leaf(tuple(leaf.shape), str(leaf.dtype))
        for name, leaf in by_path(tree).items()
    }


def save(
    run: Path,
    config: RunConfig,
    state: Any,
    counters: Counters,
    *,
    devices: int,
    code_version: str,
    kept: bool = False,
) -> Path:
    """Write a checkpoint whole or not at all, then remove those no longer kept.

    Args:
        run: the run folder.
        config: in force.
        state: any tree of arrays.
        counters: of what was done.
        devices: how many are used.
        code_version: of the code that runs.
        kept: never to be removed.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: the disk is full; checkpoints from before are intact.
    """
    path = checkpoints.path_of(run, counters.updates)
    path.parent.mkdir(exist_ok=True)
    arrays = by_path(state)
    with manifest.new_folder(path, FORMAT, VERSION) as folder:
        host = checkpoints.host_file(
            counters, devices, code_version, describe(state), kept=kept
        )
        (folder / HOST).write_bytes(host)
        (folder / CONFIG).write_text(config_module.dumps(config), encoding="utf-8")
        _write(folder / STATE, {k: x for k, x in arrays.items() if x.size})
    checkpoints.prune(run)
    return path


def restore(checkpoint: Checkpoint, template: Any) -> Any:
    """The state, laid out like the template.

    Args:
        checkpoint: verified.
        template: tree of `jax.ShapeDtypeStruct` with shardings, of the same leaves as
            the checkpoint (see `difference`).
    """
    wanted = by_path(template)
    stored = {name: leaf for name, leaf in wanted.items() if leaf.size}
    arrays = _read(checkpoint.folder / STATE, stored)
    for name in wanted.keys() - stored.keys():
        leaf = wanted[name]
        arrays[name] = jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)
    _, structure = jax.tree.flatten(template)
    return jax.tree.unflatten(structure, [arrays[name] for name in wanted])


def read_arrays(checkpoint: Checkpoint, under: str = "") -> dict[str, np.ndarray]:
    """Arrays by path, on the host; only paths that start with `under`, and no keys."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    template = {
        name: jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype), sharding=place)
        for name, leaf in checkpoint.leaves.items()
        if name.startswith(under) and not leaf.dtype.startswith("key")
    }
    arrays = restore(checkpoint, template)
    return {name: np.asarray(arrays[name]) for name in template}


def host_arrays(state: Any) -> dict[str, np.ndarray]:
    """Arrays of a state by path, without its keys."""
    return {
        name: np.asarray(array)
        for name, array in by_path(state).items()
        if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    }


def with_arrays(state: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The state with these arrays by path, each where the state's own lies."""
    leaves = [
        jax.device_put(arrays[name].astype(old.dtype), old.sharding)
        if name in arrays
        else old
        for name, old in by_path(state).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(state), leaves)


def difference(leaves: Mapping[str, Leaf], template: Any) -> str:
    """The first way in which a state is not as the template says; empty if in none."""
    wanted = describe(template)
    for name in sorted(leaves.keys() | wanted.keys()):
        has, wants = leaves.get(name), wanted.get(name)
        if has != wants:
            return f"{name} is {has or 'not in it'} instead of {wants or 'left out'}"
    return ""


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    import orbax.checkpoint as ocp

    with _quiet(), contextlib.closing(ocp.PyTreeCheckpointer()) as writer:
        try:
            writer.save(path.absolute(), dict(arrays))
        except ValueError as error:
            raise _as_os_error(error) from None


def _read(path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The named arrays; Orbax reads only these."""
    import orbax.checkpoint as ocp

    how = ocp.checkpoint_utils.construct_restore_args(dict(wanted))
    args = ocp.args.PyTreeRestore(
        item=dict(wanted), restore_args=how, partial_restore=True
    )
    with _quiet(), contextlib.closing(ocp.PyTreeCheckpointer()) as reader:
        return reader.restore(path.absolute(), args=args)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Errors are raised; the log would show the tracebacks of every thread as well."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _as_os_error(error: ValueError) -> Exception:
    """What the storage layer meant: an OSError with its number, if it named one."""
    text = str(error)
    number = re.search(r"OS error (\d+)", text)
    if number:
        return OSError(int(number[1]), os.strerror(int(number[1])))
    if "RESOURCE_EXHAUSTED" in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return error
