"""Where a run's rows go besides `metrics.jsonl`: TensorBoard, and wandb if asked for.

Both show each metric as one curve, its mean over seeds (see `metrics.averages`), over
transitions. A long run is thinned to at most `POINTS` points, each the average of the
updates since the one before, so nothing is left out and a run of many small updates is
not slowed down; the log itself has every update and seed. Both libraries are imported
when they are opened.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fullscale.config import ConfigError, RunConfig
from fullscale.metrics import METRICS, averages
from fullscale.storage import METRICS as LOG
from fullscale.storage import RunWriter, StorageError

TENSORBOARD = "tensorboard"
POINTS = 1_000  # about what TensorBoard keeps of a curve
WANDB_EXTRA = "pip install 'ppo-outer-loop[wandb]'"


@runtime_checkable
class Sink(Protocol):
    """Where points of curves go."""

    def point(self, transitions: int, values: Mapping[str, float]) -> None:
        """Take one point of every curve."""

    def close(self) -> None:
        """Write what is left."""


class Log:
    """The run's log with curves drawn alongside: use it in the place of the log."""

    def __init__(
        self,
        writer: RunWriter,
        sinks: Sequence[Sink],
        stride: int,
        transitions: int = 0,
    ) -> None:
        """Pass rows on to `writer`, and one averaged point per `stride` to `sinks`.

        Args:
            writer: the run's log, open.
            sinks: where curves are drawn.
            stride: updates per point.
            transitions: made by an earlier process.
        """
        self.writer = writer
        self._sinks = sinks
        self._stride = stride
        self._waiting: list[Mapping[str, Any]] = []
        self._transitions = transitions

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; the log comes first, for it is the source of truth."""
        self.writer.append(row)
        if "evaluation" in row:
            self._draw()
            self._point(averages([row["evaluation"]]))
        elif "updates" in row:
            self._waiting.append(row)
            if row["updates"] % self._stride == 0:
                self._draw()

    def sync(self) -> None:
        """Wait until the log so far is on the disk."""
        self.writer.sync()

    def close(self) -> None:
        """Draw what waits, and close everything, the log first."""
        with contextlib.ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
            stack.callback(self._draw)
            self.writer.close()

    def _draw(self) -> None:
        if self._waiting:
            self._transitions = int(self._waiting[-1]["transitions"])
            self._point(averages(self._waiting))
            self._waiting = []

    def _point(self, values: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.point(self._transitions, values)


def attach(
    writer: RunWriter,
    folder: Path,
    config: RunConfig,
    *,
    transitions: int = 0,
    wandb: str = "",
) -> Log:
    """The log with TensorBoard, and wandb if a project is named.

    Args:
        writer: the run's log, open; closed if this fails.
        folder: the run folder.
        config: how long the run is.
        transitions: that an earlier process made; curves go on after them.
        wandb: the project's name; empty for none.

    Raises:
        ConfigError: wandb is asked for and not installed.
        StorageError: wandb refuses the run.
        OSError: the folder cannot be written.
    """
    sinks: list[Sink] = []
    try:
        if wandb:
            sinks.append(Wandb(folder, config, wandb))
        sinks.append(TensorBoard(folder, transitions))
    except BaseException:
        with contextlib.ExitStack() as stack:
            stack.callback(writer.close)
            for sink in sinks:
                stack.callback(sink.close)
        raise
    stride = max(1, math.ceil(config.updates / POINTS))
    return Log(writer, sinks, stride, transitions)


class TensorBoard:
    """Event files in the run folder's `tensorboard/`, written in this thread.

    The x axis is an int64, so transitions are exact. A resumed run writes a file of its
    own, which starts by voiding what an earlier one drew beyond its checkpoint. The
    records are framed here, because the library's own writer works in the background,
    overwrites a file of the same second, and forces every write onto the disk.
    """

    def __init__(self, folder: Path, transitions: int = 0) -> None:
        """Open a new event file for what follows after so many transitions."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        place = folder / TENSORBOARD
        place.mkdir(parents=True, exist_ok=True)
        # Files are read in the order of their names.
        name = f"events.out.tfevents.{time.time():.0f}.{transitions:020d}.{os.getpid()}"
        self._file = (place / name).open("wb")
        self._described: set[str] = set()
        self._write(Event(file_version="brain.Event:2"))
        if transitions:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(step=transitions + 1, session_log=start))

    def point(self, transitions: int, values: Mapping[str, float]) -> None:
        """Write one point of every curve; the first says what the metric is."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(
            value=[
                Summary.Value(tag=name, simple_value=x, metadata=self._metadata(name))
                for name, x in values.items()
            ]
        )
        self._write(Event(step=transitions, summary=summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: Any) -> None:
        """Append one TFRecord: length, its checksum, data, their checksum."""
        from tensorboardX.record_writer import masked_crc32c

        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        self._file.write(b"".join((length, next(sums), data, next(sums))))
        self._file.flush()

    def _metadata(self, name: str) -> Any:
        from tensorboardX.proto.summary_pb2 import SummaryMetadata

        metric = METRICS.get(name)
        if name in self._described or metric is None:
            return None
        self._described.add(name)
        return SummaryMetadata(summary_description=f"{metric.meaning} [{metric.unit}]")


def require_wandb() -> Any:
    """The module.

    Raises:
        ConfigError: it is not installed; the text names the extra.
    """
    try:
        import wandb
    except ImportError:
        raise ConfigError(
            f"--wandb needs the extra 'wandb', which is not installed: {WANDB_EXTRA}"
        ) from None
    return wandb


class Wandb:
    """A run of a wandb project; a resumed run goes on in the same one."""

    def __init__(self, folder: Path, config: RunConfig, project: str) -> None:
        """Start or go on, under an id from the run's own log.

        Raises:
            ConfigError: wandb is not installed.
            StorageError: wandb refuses.
        """
        module = require_wandb()
        values = {
            key: value if value != math.inf else "inf"
            for key, value in dataclasses.asdict(config).items()
        }
        try:
            self._run = module.init(
                project=project,
                name=folder.resolve().name,
                id=_identity(folder),
                resume="allow",
                dir=str(folder),
                config=values,
            )
        except module.Error as error:
            raise StorageError(f"--wandb {project!r}: {error}") from None
        self._run.define_metric("*", step_metric="transitions")

    def point(self, transitions: int, values: Mapping[str, float]) -> None:
        """Log one point of every curve."""
        self._run.log({**values, "transitions": transitions})

    def close(self) -> None:
        """Upload what is left."""
        self._run.finish()


def _identity(folder: Path) -> str:
    """What stays the same over all processes of a run: its start and configuration."""
    with (folder / LOG).open("rb") as file:
        head = json.loads(file.readline())
    text = f"{head['started']} {head['config_hash']}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
