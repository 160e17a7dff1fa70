"""The run folder: what a run writes, and how it is read back, also after a kill.

`metrics.jsonl` is append-only and is the source of truth: line 0 says what the run is
(format, version, start time, prediction hash, and `parent` if it started from another
run's checkpoint), then one line per update with one number per seed, then one line with
the final evaluation. In between, a line `checkpoint` for each one written, and a line
`resumed` where another process went on: the log was cut back to its checkpoint. A torn
last line is what a killed process leaves; reading drops it and counts it. Every other
file is written whole or not at all.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig
from fullscale.files import (
    CONFIG,
    FORMAT,
    METRICS,
    SUMMARY,
    VERSION,
    StorageError,
    write_atomically,
)
from fullscale.runlog import RunWriter, parse

__all__ = [
    "CONFIG",
    "FORMAT",
    "METRICS",
    "SUMMARY",
    "VERSION",
    "RunRecord",
    "RunWriter",
    "StorageError",
    "read",
    "write_atomically",
]


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
        resumed: what the log says of each process that went on with the run.
        parent: of which checkpoint it started, if it did; else empty.
    """

    config: RunConfig
    started: str
    code_version: str
    transitions: np.ndarray
    metrics: Mapping[str, np.ndarray]
    evaluation: Mapping[str, np.ndarray]
    torn_lines: int = 0
    series: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    resumed: Sequence[Mapping] = ()
    parent: Mapping = dataclasses.field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the final evaluation was written."""
        return bool(self.evaluation)

    @property
    def is_of_one_piece(self) -> bool:
        """Whether it trained from nothing to its end as one configuration says."""
        return not self.parent and not any(note["changes"] for note in self.resumed)

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
    if config.content_hash() not in _valid_hashes(rows):
        raise StorageError(
            f"{str(folder / CONFIG)!r} is not the configuration that its log names"
        )
    return _record(config, rows, torn)


def _parse(folder: Path, lines: Sequence[bytes]) -> tuple[list[dict], int]:
    """Rows of a log; the text after the last newline is what a kill tore."""
    *whole, rest = lines
    rows = [parse(line, folder, number) for number, line in enumerate(whole, start=1)]
    return rows, int(bool(rest))


def _valid_hashes(rows: Sequence[dict]) -> set[str | None]:
    """Hash of the configuration in force: the first line's, or that of a resume.

    A resume with another configuration writes its line before `config.toml`; until an
    update follows, the hash before it is right too.
    """
    valid = [rows[0].get("config_hash")]
    for row in rows:
        if "resumed" in row:
            valid.append(row["resumed"]["config_hash"])
        elif "updates" in row:
            valid = valid[-1:]
    return set(valid)


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
        resumed=tuple(row["resumed"] for row in rows if "resumed" in row),
        parent=rows[0].get("parent", {}),
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
