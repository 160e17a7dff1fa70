"""What the benchmarks share: a clock, the machine in words, how results are shown."""

import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from fullscale.config import RunConfig
from fullscale.presets import preset


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What to time: a preset, and the sizes that speed depends on."""

    environment: str = "reacher"
    """Which environment's preset to time."""
    minibatch_size: int = 512
    """Transitions per gradient step."""
    num_envs: int = 128
    """Parallel environments."""

    def config(self) -> RunConfig:
        """The preset with these sizes, and a budget that is never reached."""
        return preset(
            self.environment,
            10**9,
            num_envs=self.num_envs,
            minibatch_size=self.minibatch_size,
        )


def seconds(program: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def machine() -> str:
    """Processor and cores."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print one JSON object, or a line per figure."""
    lines = (f"{name}: {value}\n" for name, value in result.items())
    sys.stdout.write(json.dumps(result) + "\n" if as_json else "".join(lines))
