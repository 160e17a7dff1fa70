"""A run's policies read back to be scored: the final ones, or those of a checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from fullscale import checkpoint as checkpoints
from fullscale import storage
from fullscale.config import RunConfig
from fullscale.normalise import from_dict
from fullscale.score import shaped_as
from fullscale.state import Normaliser
from fullscale.storage import StorageError
from fullscale.summary import PARAMETERS, nested, read_parameters


class Policies(NamedTuple):
    """Policies of all seeds of a run, and where in the run they are from.

    Attributes:
        config: the configuration in force.
        updates: updates done.
        transitions: transitions used.
        policy: policy parameters [seed, …].
        anchor: those of the EWMA anchor; None in plain PPO.
        normaliser: through which both see [seed, …]; None if they see observations as
            they are.
    """

    config: RunConfig
    updates: int
    transitions: int
    policy: Any
    anchor: Any | None
    normaliser: Normaliser | None


def final(run: Path) -> Policies:
    """The policies with which a run ended.

    Raises:
        StorageError: not a run folder, or one of a run that has not ended.
    """
    record = storage.read(run)
    if not (run / PARAMETERS).exists():
        raise StorageError(
            f"the run {str(run)!r} has not ended, so it has no {PARAMETERS}; "
            f"--checkpoint scores what it was at {_choices(run)}"
        )
    read = read_parameters(run)
    return Policies(
        record.config,
        record.updates,
        int(record.transitions[-1]),
        read["policy"],
        read.get("anchor"),
        from_dict(read.get("normaliser")),
    )


def of_checkpoint(run: Path, updates: int) -> Policies:
    """The policies after so many updates.

    Raises:
        StorageError: there is no such checkpoint, or it is damaged.
    """
    from fullscale import snapshot

    path = checkpoints.path_of(run, updates)
    if path not in checkpoints.found(run):
        raise StorageError(
            f"the run {str(run)!r} has no checkpoint of update {updates}; it has "
            f"{_choices(run)}"
        )
    checkpoint = checkpoints.at(path, lambda sentence: None)
    learner = nested(snapshot.read_arrays(checkpoint, "learner/"))["learner"]
    policy, anchor = learner["parameters"]["policy"], learner.get("anchor")
    normaliser = nested(snapshot.read_arrays(checkpoint, "normaliser/"))
    return Policies(
        checkpoint.config,
        checkpoint.counters.updates,
        checkpoint.counters.transitions,
        policy,
        None if anchor is None else shaped_as(policy, jnp.asarray(anchor["vector"])),
        from_dict(normaliser.get("normaliser")),
    )


def _choices(run: Path) -> str:
    """A run's checkpoints in words."""
    numbers = [str(int(path.name)) for path in reversed(checkpoints.found(run))]
    return f"update {', '.join(numbers)}" if numbers else "none"
