"""The run folder: what a run writes, and how it is read back, also after a kill.

`metrics.jsonl` is append-only and is the source of truth: line 0 says what the run is
(format, version, start time, prediction hash), then one line per update with one number
per seed, then one line with the final evaluation. A torn last line is what a killed
process leaves; reading drops it and counts it. Every other file is written whole or
not at all.
"""

import dataclasses
import datetime
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig

FORMAT, VERSION = "ppo-outer-loop/run", 1
CONFIG, METRICS, SUMMARY = "config.toml", "metrics.jsonl", "run.nc"


class StorageError(ValueError):
    """A run folder that cannot be read or written; the text says which and why."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as it lies on disk, finished or not.

    Attributes:
        config: the configuration it ran with.
        started: UTC start time, ISO 8601.
        code_version: version of the code that ran.
        transitions: transitions used after each update, exact, [update].
        metrics: name → values [update, seed]; NaN where a value was not finite or
            not measured.
        evaluation: name → values [seed]; empty until the run finished.
        series: name → values [update] that all seeds share: exact counts, knobs as
            they were used, speed.
        torn_lines: lines dropped because a killed process left them half-written.
    """

    config: RunConfig
    started: str
    code_version: str
    transitions: np.ndarray
    metrics: Mapping[str, np.ndarray]
    evaluation: Mapping[str, np.ndarray]
    torn_lines: int = 0
    series: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the final evaluation was written."""
        return bool(self.evaluation)

    @property
    def updates(self) -> int:
        """Updates on record."""
        return len(self.transitions)

    def ddr(self, *, skip: int = 0) -> np.ndarray:
        """DDR per seed in transitions per nat: a ratio of sums, [seed].

        Args:
            skip: updates left out at the start (half of them for a plateau, whose
                ratio the transient would spoil).
        """
        kl = self.metrics["outer_kl"][skip:].sum(axis=0)
        samples = self.config.samples_per_update * (self.updates - skip)
        with np.errstate(divide="ignore"):
            return samples / kl

    def ddr_noise(self) -> np.ndarray:
        """The same with `outer_noise_kl`, over the updates where the meter ran, [seed].

        NaN where it never did.
        """
        noise = self.metrics.get("outer_noise_kl")
        if noise is None:
            return np.full(self.config.num_seeds, np.nan)
        measured = np.isfinite(noise)
        samples = self.config.samples_per_update * measured.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return samples / np.where(measured, noise, 0.0).sum(axis=0)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all (temporary file, fsync, rename)."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's file mode mask (it can only be read by setting it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


class RunWriter:
    """Appends to the run folder's `metrics.jsonl`, one flushed line at a time."""

    def __init__(self, folder: Path, config: RunConfig, code_version: str) -> None:
        """Create the folder and its first two files.

        Raises:
            StorageError: the folder already holds a run, or cannot be written.
        """
        if (folder / METRICS).exists():
            raise StorageError(
                f"{str(folder)!r} already holds a run; give another --out"
            )
        head = {
            "format": FORMAT,
            "version": VERSION,
            "started": datetime.datetime.now(datetime.UTC).isoformat(),
            "code_version": code_version,
            "prediction": config.prediction,
            "config_hash": config.content_hash(),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = config_module.dumps(config)
            write_atomically(folder / CONFIG, text.encode())
            self._file = (folder / METRICS).open("a", encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"cannot write {str(folder)!r}: {error.strerror}"
            ) from None
        self.append(head)

    def append(self, row: Mapping[str, object]) -> None:
        """Append one line; non-finite numbers become null. Flushed to the system."""
        self._file.write(json.dumps(_finite(row), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Flush to the disk and close."""
        os.fsync(self._file.fileno())
        self._file.close()


def read(folder: Path) -> RunRecord:
    """Read a run folder, whether the run finished, goes on, or was killed.

    Raises:
        StorageError: not a run folder, unknown version, or damaged in the middle.
    """
    try:
        config = config_module.load(folder / CONFIG)
        lines = (folder / METRICS).read_bytes().split(b"\n")
    except ConfigError as error:
        raise StorageError(f"{str(folder)!r} is not a run folder: {error}") from None
    except OSError as error:
        raise StorageError(
            f"{str(folder)!r} is not a run folder: {METRICS}: {error.strerror}"
        ) from None
    rows, torn = _parse(folder, lines)
    if not rows or rows[0].get("format") != FORMAT:
        raise StorageError(f"{str(folder / METRICS)!r} does not start as a run log")
    if rows[0].get("version") != VERSION:
        raise StorageError(
            f"{str(folder / METRICS)!r} has format version {rows[0].get('version')!r};"
            f" this code reads version {VERSION}"
        )
    if rows[0].get("config_hash") != config.content_hash():
        raise StorageError(
            f"{str(folder / CONFIG)!r} is not the configuration the run started with"
        )
    return _record(config, rows, torn)


def _parse(folder: Path, lines: Sequence[bytes]) -> tuple[list[dict], int]:
    """Rows of a log; the text after the last newline is what a kill tore."""
    *whole, rest = lines
    rows = []
    for number, line in enumerate(whole):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise StorageError(
                f"{str(folder / METRICS)!r} is damaged at line {number + 1}"
            ) from None
    return rows, int(bool(rest))


def _record(config: RunConfig, rows: Sequence[dict], torn: int) -> RunRecord:
    steps = [row for row in rows if "updates" in row]
    last = [row["evaluation"] for row in rows if "evaluation" in row]
    kinds = {k: isinstance(v, list) for row in steps for k, v in row.items()}
    nothing = [None] * config.num_seeds
    return RunRecord(
        config=config,
        started=rows[0]["started"],
        code_version=rows[0]["code_version"],
        transitions=np.array([row["transitions"] for row in steps], dtype=np.int64),
        metrics={
            k: np.array([row.get(k, nothing) for row in steps], dtype=float)
            for k, per_seed in kinds.items()
            if per_seed
        },
        evaluation=(
            {k: np.array(v, dtype=float) for k, v in last[-1].items()} if last else {}
        ),
        torn_lines=torn,
        series={
            k: _series([row.get(k) for row in steps])
            for k, per_seed in kinds.items()
            if not per_seed and k != "transitions"
        },
    )


def _series(values: Sequence[object]) -> np.ndarray:
    """Counts as exact int64; anything else as floats, NaN for null."""
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if whole else float)


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
