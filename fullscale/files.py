"""Writing whole files or none, and the names and the error of the run folder."""

import os
import tempfile
from pathlib import Path

FORMAT, VERSION = "ppo-outer-loop/run", 1
CONFIG, METRICS, SUMMARY = "config.toml", "metrics.jsonl", "run.nc"


class StorageError(ValueError):
    """A run folder that cannot be read or written; the text says which and why."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all (temporary file, fsync, rename)."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def force_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def umask() -> int:
    """The process's file mode mask (it can only be read by setting it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
