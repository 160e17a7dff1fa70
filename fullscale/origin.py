"""How a run begins: anew, where a process stopped, or from another run's checkpoint.

Decided from what lies on the disk, before JAX starts and before anything is written.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from fullscale import checkpoint as checkpoints
from fullscale import config as config_module
from fullscale.checkpoint import Checkpoint
from fullscale.config import ConfigError, RunConfig
from fullscale.files import CONFIG, METRICS, StorageError
from fullscale.runlog import holds_run, rows

Changes = Mapping[str, tuple[object, object]]  # key → values before and after

# What is laid down in a run's first update, or is what its numbers mean throughout.
LAID_DOWN = (
    "environment", "seed", "num_seeds", "num_envs", "rollout_length", "prediction",
    "staggered_starts",
)  # fmt: skip
# What the policy of a checkpoint is made of.
SAME = ("environment", "num_seeds", "network", "learn_std")


@dataclasses.dataclass(frozen=True)
class Fresh:
    """From nothing."""

    devices: int | None = None


@dataclasses.dataclass(frozen=True)
class Finished:
    """Nothing to do: the run has its final evaluation."""

    evaluation: Mapping[str, list[float]]
    devices: int | None = None


@dataclasses.dataclass(frozen=True)
class Continue:
    """Go on with a run.

    Attributes:
        checkpoint: from which; None for the run's beginning.
        changes: keys that are no longer as the checkpoint has them.
        evaluation: of the run so far, if it was finished and its budget is extended.
    """

    checkpoint: Checkpoint | None
    changes: Changes
    evaluation: Mapping[str, list[float]] | None = None

    @property
    def devices(self) -> int | None:
        """How many the checkpoint was written on."""
        return self.checkpoint.devices if self.checkpoint else None


@dataclasses.dataclass(frozen=True)
class Switch:
    """A new run whose learner is that of a checkpoint.

    Attributes:
        checkpoint: of which.
        fresh_optimiser: whether the optimiser's state starts anew.
    """

    checkpoint: Checkpoint
    fresh_optimiser: bool = False
    devices: int | None = None


Plan = Fresh | Finished | Continue | Switch


def complain(sentence: str) -> None:
    """Say on stderr what was not as it should be, or what is done about it."""
    sys.stderr.write(f"warning: {sentence}\n")


def resume(config: RunConfig, run: Path, *, accept_changes: bool = False) -> Plan:
    """How to go on with the run in a folder.

    Args:
        config: as it is to go on.
        run: the run folder; one without a run starts one.
        accept_changes: go on with a configuration that is not the run's.

    Raises:
        StorageError: no checkpoint is intact, the log is damaged, or the configuration
            was changed in a way that is not accepted.
    """
    if not holds_run(run):
        complain(f"{str(run)!r} holds no run yet; this starts one")
        return Fresh()
    log = _scan(run)
    if log.evaluation is not None and log.config_hash == config.content_hash():
        return Finished(log.evaluation)
    checkpoint = checkpoints.newest_intact(run, complain)
    if checkpoint is None:
        _check_beginning(run, log)
    before = checkpoint.config if checkpoint else config_module.load(run / CONFIG)
    changes = config_module.changes(before, config)
    _check_changes(changes, config, accept_changes=accept_changes)
    if checkpoint and checkpoint.counters.updates > config.updates:
        raise StorageError(
            f"budget = {config.budget} is {config.updates} updates, and the run is "
            f"already at update {checkpoint.counters.updates}; give a larger budget"
        )
    return Continue(checkpoint, changes, log.evaluation)


@dataclasses.dataclass
class _Log:
    """What a log says of its run: who is its parent, how far it is."""

    config_hash: str = ""
    has_parent: bool = False
    had_checkpoint: bool = False
    evaluation: Mapping[str, list[float]] | None = None


def _scan(run: Path) -> _Log:
    """Read a log up to its end, or up to where it is damaged."""
    log = _Log()
    try:
        with (run / METRICS).open("rb") as file:
            for row in rows(file, run):
                _take(log, row.values)
    except StorageError as error:
        if not log.had_checkpoint:
            raise
        complain(f"{error}; what follows its last checkpoint is made again")
    return log


def _take(log: _Log, row: Mapping) -> None:
    if "config_hash" in row:
        log.config_hash, log.has_parent = row["config_hash"], "parent" in row
    if "checkpoint" in row:
        log.had_checkpoint = True
    if "resumed" in row:
        log.config_hash = row["resumed"]["config_hash"]
        log.had_checkpoint |= row["resumed"]["updates"] > 0
    log.evaluation = row.get("evaluation")


def _check_beginning(run: Path, log: _Log) -> None:
    """Refuse to begin again where that would lose something. Raises StorageError."""
    name = repr(str(run))
    if log.evaluation is not None:
        raise StorageError(
            f"the run {name} is finished and has no checkpoint to go on from; train "
            "the changed configuration into another --out"
        )
    if log.had_checkpoint:
        raise StorageError(
            f"the run {name} had checkpoints, and none is left in "
            f"{checkpoints.FOLDER}/; put one back, or train into another --out"
        )
    if log.has_parent:
        raise StorageError(
            f"the run {name} was stopped before its own first checkpoint; remove it "
            "and start it again with --from"
        )
    complain(f"the run {name} has no checkpoint yet; it starts over")


def _check_changes(
    changes: Changes, config: RunConfig, *, accept_changes: bool
) -> None:
    """Refuse what is not accepted, or means another run. Raises StorageError."""
    fixed = set(LAID_DOWN) | ({"initial_std"} if config.learn_std else set())
    refused = {key: values for key, values in changes.items() if key in fixed}
    if refused:
        raise StorageError(
            f"a run keeps what it began with, but {text_of(refused)}; start a new run "
            "from this one's checkpoint with --from"
        )
    if changes and not accept_changes:
        raise StorageError(
            f"the configuration is not the run's: {text_of(changes)}; give the run's "
            "own, or --accept-changes to go on with the new one"
        )


def switch(config: RunConfig, place: Path, *, fresh_optimiser: bool = False) -> Switch:
    """How to start from the checkpoint in a folder, or the newest of a run folder.

    Raises:
        StorageError: there is none that is intact.
        ConfigError: it cannot be the new run's beginning.
    """
    checkpoint = checkpoints.at(place, complain)
    check_switch(checkpoint.config, config)
    return Switch(checkpoint, fresh_optimiser)


def check_switch(before: RunConfig, after: RunConfig) -> None:
    """Refuse a configuration whose policy cannot be the checkpoint's.

    Raises:
        ConfigError: with the key, its value, and what it should be.
    """
    same = SAME if before.learn_std else (*SAME, "initial_std")
    for key in same:
        old, new = getattr(before, key), getattr(after, key)
        if old != new:
            raise ConfigError(f"{key} = {new!r} should be the checkpoint's, {old!r}")
    old, new = before.hidden_sizes, after.hidden_sizes
    twice = tuple(2 * width for width in old)
    if before.network != "linear" and new not in (old, twice):
        raise ConfigError(
            f"hidden_sizes = {list(new)} should be the checkpoint's, {list(old)}, or "
            f"twice that, {list(twice)}"
        )
    if before.normalise_observations and not after.normalise_observations:
        raise ConfigError(
            "normalise_observations = False should be True: the checkpoint's policy "
            "acts on standardised observations"
        )
    if before.normalise_observations or before.normalise_rewards:
        for key in ("normalise_observations", "normalise_rewards"):
            if getattr(after, key) and not getattr(before, key):
                raise ConfigError(
                    f"{key} = True should be False: the checkpoint's running moments, "
                    "which the new run goes on with, have none of it"
                )


def text_of(changes: Changes) -> str:
    """The changes as a phrase: every key with both values."""
    return ", ".join(
        f"{key} = {_toml(new)} (was {_toml(old)})"
        for key, (old, new) in changes.items()
    )


def recordable(changes: Changes) -> dict[str, list[object]]:
    """The changes for the log, where JSON has no infinity."""
    return {
        key: [str(value) if value == math.inf else value for value in values]
        for key, values in changes.items()
    }


def _toml(value: object) -> str:
    return json.dumps(value).replace("Infinity", "inf")
