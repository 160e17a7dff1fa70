"""The run's log, `metrics.jsonl`: started, appended to, and cut back for a resume.

One process at a time writes it, which holds a lock on the file until it ends.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fullscale import config as config_module
from fullscale.config import RunConfig
from fullscale.files import (
    CONFIG,
    FORMAT,
    METRICS,
    VERSION,
    StorageError,
    write_atomically,
)


class RunWriter:
    """Appends to the run folder's `metrics.jsonl`, one flushed line at a time."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        code_version: str,
        about: Mapping[str, object] | None = None,
    ) -> None:
        """Create the folder and its first two files.

        Args:
            folder: a folder that holds no run.
            config: the run's configuration.
            code_version: of the code that runs.
            about: what the log's first line says besides, e.g. where the run came from.

        Raises:
            StorageError: the folder already holds a run, or cannot be written.
        """
        if holds_run(folder):
            raise StorageError(
                f"{str(folder)!r} already holds a run; give another --out, or --resume "
                "to go on with it"
            )
        head = {
            "format": FORMAT,
            "version": VERSION,
            "started": now(),
            "code_version": code_version,
            "prediction": config.prediction,
            "config_hash": config.content_hash(),
            **(about or {}),
        }
        with _sentences(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_config(folder, config)
            self._file: IO[bytes] = (folder / METRICS).open("ab")
            _lock(self._file, folder)
            self._file.truncate(0)  # a first line that a kill tore
        self.append(head)

    @classmethod
    def reopen(cls, folder: Path, updates: int) -> "RunWriter":
        """Cut the log of a run back to its first `updates` updates and go on with it.

        Raises:
            StorageError: another process writes it, it is damaged before the cut, it
                does not reach so far, or it cannot be written.
        """
        writer = cls.__new__(cls)
        with _sentences(folder):
            writer._file = (folder / METRICS).open("r+b")
        try:
            _lock(writer._file, folder)
            end = find_cut(writer._file, folder, updates)
            writer._file.truncate(end)
            writer._file.seek(end)
        except BaseException:
            writer._file.close()
            raise
        return writer

    def append(self, row: Mapping[str, object]) -> None:
        """Append one line; non-finite numbers become null. Flushed to the system."""
        line = json.dumps(_finite(row), allow_nan=False) + "\n"
        self._file.write(line.encode())
        self._file.flush()

    def sync(self) -> None:
        """Wait until everything so far is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush to the disk and close."""
        try:
            self.sync()
        finally:
            self._file.close()


def holds_run(folder: Path) -> bool:
    """Whether a folder holds a run: a log with at least its first line."""
    try:
        with (folder / METRICS).open("rb") as file:
            return file.readline().endswith(b"\n")
    except OSError:
        return False


class Row(NamedTuple):
    """A line of a log: what it says, and the byte after its end."""

    values: dict
    end: int


def rows(file: IO[bytes], folder: Path) -> Iterator[Row]:
    """Whole lines of a log; what follows the last newline is left out.

    Raises:
        StorageError: a line that is damaged, with its number.
    """
    end = 0
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            return
        end += len(line)
        yield Row(parse(line, folder, number), end)


def parse(line: bytes, folder: Path, number: int) -> dict:
    """A line of a log. Raises StorageError with the line's number."""
    with contextlib.suppress(ValueError):
        values = json.loads(line)
        if isinstance(values, dict):
            return values
    raise StorageError(f"{str(folder / METRICS)!r} is damaged at line {number}")


def find_cut(file: IO[bytes], folder: Path, updates: int) -> int:
    """The byte after the row of an update, or after the first line for update 0.

    Raises:
        StorageError: the log is damaged before, or does not reach so far.
    """
    last = 0
    for row in rows(file, folder):
        last = row.values.get("updates", last)
        if last == updates:
            return row.end
    raise StorageError(
        f"{str(folder / METRICS)!r} ends at update {last}, but the checkpoint to "
        f"resume from is of update {updates}: the log was changed since"
    )


def write_config(folder: Path, config: RunConfig) -> None:
    """Write `config.toml`, every default included."""
    write_atomically(folder / CONFIG, config_module.dumps(config).encode())


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat()


@contextlib.contextmanager
def _sentences(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {str(folder)!r}: {error.strerror}") from None


def _lock(file: IO[bytes], folder: Path) -> None:
    """Keep other processes from writing; where a file system cannot lock, trust."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise StorageError(
                f"another process is writing the run {str(folder)!r}; wait for it or "
                "stop it first"
            ) from None


def _finite(value: object) -> object:
    """The same value with non-finite floats replaced by None, recursively."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
