"""What the benchmarks share: a clock, the machine in words, how results are shown."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


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
