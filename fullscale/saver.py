"""When checkpoints are written: by time, by updates, and at the end."""

import time
from pathlib import Path
from typing import Any

from fullscale import snapshot
from fullscale.config import RunConfig
from fullscale.counters import Counters
from fullscale.outputs import Outputs
from fullscale.runlog import RunWriter


class Saver:
    """Writes a run's checkpoints when they are due.

    A checkpoint comes after the rows of its updates: these are forced to the disk
    first, so that a log always reaches as far as its checkpoints.
    """

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        outputs: Outputs,
        log: RunWriter,
        *,
        devices: int,
        code_version: str,
    ) -> None:
        """Count time from now on."""
        self._run, self._config, self._outputs, self._log = run, config, outputs, log
        self._devices, self._code_version = devices, code_version
        self._last = time.monotonic()

    def limit(self, done: int, count: int) -> int:
        """At most `count` updates, and none beyond the next checkpoint by updates."""
        interval = self._outputs.checkpoint_interval
        return min(count, interval - done % interval) if interval else count

    def due(self, done: int) -> bool:
        """Whether to write one after so many updates; the last has its own."""
        if not self._outputs.checkpoints or done >= self._config.updates:
            return False
        interval = self._outputs.checkpoint_interval
        elapsed = time.monotonic() - self._last
        return elapsed >= self._outputs.checkpoint_seconds or bool(
            interval and done % interval == 0
        )

    def save(self, state: Any, counters: Counters, *, kept: bool = False) -> None:
        """Write one, after the log's rows are on the disk.

        Raises:
            OSError: the disk is full; those from before are intact.
        """
        self._log.sync()
        snapshot.save(
            self._run,
            self._config,
            state,
            counters,
            devices=self._devices,
            code_version=self._code_version,
            kept=kept,
        )
        self._log.append({"checkpoint": {"updates": counters.updates}})
        self._last = time.monotonic()

    def finish(self, state: Any, counters: Counters) -> None:
        """Write the last one, which is kept."""
        if self._outputs.checkpoints:
            self.save(state, counters, kept=True)
