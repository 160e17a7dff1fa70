"""A run's checkpoints as they lie on disk: found, verified, described, kept or removed.

`checkpoints/000123/` is the whole state after update 123:

    config.toml     the configuration in force
    host.json       counters, devices, code version, log, shapes of the arrays
    state/          the arrays, written by Orbax (see `snapshot`)
    manifest.json   SHA-256 of all these, written last

Nothing here needs JAX.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from fullscale import config as config_module
from fullscale import manifest
from fullscale.config import ConfigError, RunConfig
from fullscale.counters import Counters
from fullscale.files import CONFIG, StorageError

FORMAT, VERSION = "ppo-outer-loop/checkpoint", 1
FOLDER, HOST, STATE = "checkpoints", "host.json", "state"
KEEP = 2  # the newest ones, besides those marked as kept

Complain = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """What one array of the state is: its shape, and its dtype by name."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, without its arrays.

    Attributes:
        folder: where it lies.
        sha256: of its manifest, and so of all of it.
        config: the configuration in force.
        counters: of what was done.
        devices: how many were used.
        code_version: of the code that wrote it.
        kept: whether it ended a run and is never removed.
        leaves: path in the state → what the array is.
    """

    folder: Path
    sha256: str
    config: RunConfig
    counters: Counters
    devices: int
    code_version: str
    kept: bool
    leaves: Mapping[str, Leaf]


def path_of(run: Path, updates: int) -> Path:
    """Where a run's checkpoint after so many updates lies."""
    return run / FOLDER / f"{updates:06d}"


def found(run: Path) -> list[Path]:
    """A run's checkpoints, the newest first; which of them are intact is not known."""
    if not (run / FOLDER).is_dir():
        return []
    numbered = [path for path in (run / FOLDER).iterdir() if path.name.isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def host_file(
    counters: Counters,
    devices: int,
    code_version: str,
    leaves: Mapping[str, Leaf],
    *,
    kept: bool,
) -> bytes:
    """What `host.json` holds; the counters are integers of any size."""
    text = {
        "counters": counters._asdict(),
        "devices": devices,
        "code_version": code_version,
        "kept": kept,
        "leaves": {name: [leaf.dtype, leaf.shape] for name, leaf in leaves.items()},
    }
    return json.dumps(text, indent=1).encode()


def read(folder: Path) -> Checkpoint:
    """Verify a checkpoint and read what it says of itself.

    Raises:
        StorageError: damaged, in what, or of a version that this code cannot read.
    """
    sha256 = manifest.verify(folder, FORMAT, VERSION)
    try:
        config = config_module.load(folder / CONFIG)
    except ConfigError as error:
        raise StorageError(
            f"its configuration is not one of this code: {error}"
        ) from None
    host = json.loads((folder / HOST).read_bytes())
    return Checkpoint(
        folder=folder,
        sha256=sha256,
        config=config,
        counters=Counters(**host["counters"]),
        devices=host["devices"],
        code_version=host["code_version"],
        kept=host["kept"],
        leaves={
            name: Leaf(tuple(shape), dtype)
            for name, (dtype, shape) in host["leaves"].items()
        },
    )


def newest_intact(run: Path, complain: Complain) -> Checkpoint | None:
    """The newest checkpoint that is intact; None if there is none at all.

    Args:
        run: the run folder.
        complain: called with a sentence for each newer one that is not intact.

    Raises:
        StorageError: there are some, and none is intact.
    """
    damaged = []
    for folder in found(run):
        try:
            checkpoint = read(folder)
        except StorageError as error:
            damaged.append(f"{folder.name}: {error}")
            continue
        for sentence in damaged:
            complain(
                f"checkpoint {sentence}; going on from the one before, "
                f"{checkpoint.folder.name}"
            )
        return checkpoint
    if damaged:
        raise StorageError(
            f"none of the checkpoints of {str(run)!r} is intact ({'; '.join(damaged)});"
            " train into another --out"
        )
    return None


def at(place: Path, complain: Complain) -> Checkpoint:
    """The checkpoint in a folder, or the newest intact one of a run folder.

    Raises:
        StorageError: there is none, or it is damaged.
    """
    if (place / manifest.MANIFEST).exists() or place.parent.name == FOLDER:
        try:
            return read(place)
        except StorageError as error:
            raise StorageError(f"checkpoint {str(place)!r}: {error}") from None
    checkpoint = newest_intact(place, complain)
    if checkpoint is None:
        raise StorageError(
            f"{str(place)!r} holds no checkpoint; give a run folder that has one in "
            f"{FOLDER}/, or a folder in there"
        )
    return checkpoint


def clean(run: Path, checkpoint: Checkpoint | None, complain: Complain) -> None:
    """Put away what a kill or damage left: half-written folders, unusable checkpoints.

    Args:
        run: the run folder, which no other process writes.
        checkpoint: the one in use; newer ones are renamed to `….damaged`.
        complain: called with a sentence for each thing done.
    """
    if not (run / FOLDER).is_dir():
        return
    for folder in manifest.leftovers(run / FOLDER):
        manifest.discard(folder)
        complain(f"a checkpoint that was only half-written is gone: {folder.name}")
    done = checkpoint.counters.updates if checkpoint else -1
    for folder in found(run):
        if int(folder.name) > done:
            aside = folder.with_name(f"{folder.name}.damaged")
            manifest.discard(aside)
            folder.rename(aside)
            complain(f"checkpoint {folder.name} is now named {aside.name}")


def prune(run: Path) -> None:
    """Remove all but the newest two and the kept ones."""
    for folder in found(run)[KEEP:]:
        if not _is_kept(folder):
            manifest.discard(folder)


def _is_kept(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / HOST).read_bytes())["kept"])
    except (OSError, ValueError, KeyError):
        return False
