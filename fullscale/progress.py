"""Progress on stderr: a live bar on a terminal, a plain line now and then elsewhere."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fullscale.config import RunConfig
from fullscale.metrics import averages

PLAIN_SECONDS = 15.0  # at most one plain line in so many seconds
BAR_SECONDS = 0.2
RECENT_SECONDS = 30.0  # speed and time left are those of so many seconds

Report = Callable[[dict], None]
Clock = Callable[[], float]


@contextmanager
def progress(run: RunConfig, *, quiet: bool = False) -> Iterator[Report]:
    """A function to call with every log row.

    Args:
        run: says how far there is to go.
        quiet: report nothing at all.
    """
    if quiet:
        yield lambda row: None
    elif sys.stderr.isatty():
        with _bar(run) as report:
            yield report
    else:
        yield _plain(run)


class Pace:
    """What a glance at the log does not show: speed of late, time left, DDR so far."""

    def __init__(self, run: RunConfig, clock: Clock = time.monotonic) -> None:
        """Start the clock; the first update includes the time of compiling."""
        self._run, self._clock = run, clock
        self._seen: deque[tuple[float, int]] = deque()
        self._started = clock()
        self._transitions, self._kl = 0, 0.0
        self._meter_seconds = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take note of one log row."""
        now, done = self._clock(), int(row["transitions"])
        samples = self._run.samples_per_update
        if not self._seen:
            self._seen.append((self._started, done - samples))
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > RECENT_SECONDS:
            self._seen.popleft()
        kl = np.asarray(row["outer_kl"], dtype=float)
        self._transitions += samples
        self._kl += float(kl.mean())
        cost = row.get("meter_seconds", math.nan)
        self._meter_seconds += 0.0 if math.isnan(cost) else cost

    @property
    def transitions_per_second(self) -> float:
        """Of all seeds together, over the last `RECENT_SECONDS`; NaN before any."""
        return self._rate * self._run.num_seeds

    @property
    def seconds_left(self) -> float:
        """At the speed of late; NaN if unknown."""
        done = self._seen[-1][1] if self._seen else 0
        return (self._run.transitions - done) / self._rate

    @property
    def ddr(self) -> float:
        """Transitions per nat since this process began, a ratio of sums over seeds."""
        return self._transitions / self._kl if self._kl > 0 else math.inf

    @property
    def meter_share(self) -> float:
        """Share of the time since this process began that the meters took."""
        return self._meter_seconds / max(self._clock() - self._started, 1e-9)

    @property
    def _rate(self) -> float:
        """Transitions per second and seed."""
        if len(self._seen) < 2:
            return math.nan
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / max(last - first, 1e-9)


def describe(row: Mapping[str, Any], pace: Pace) -> str:
    """The numbers worth a glance: speed, time left, return, DDR, cost of the meters."""
    parts = [f"{pace.transitions_per_second:,.0f} transitions/s"]
    if pace.seconds_left > 0:
        parts.append(f"{duration(pace.seconds_left)} left")
    means = averages([row])
    for name, label in (("exact_return", "J"), ("episode_return", "return")):
        if name in means:
            parts.append(f"{label} {means[name]:.4g}")
            break
    parts.append(f"DDR {pace.ddr:.2e}")
    if pace.meter_share > 0:
        parts.append(f"meters {pace.meter_share:.1%} of the time")
    return " · ".join(parts)


def duration(seconds: float | int) -> str:
    """A span of time in words, to two places: "3 s", "12 min", "5 h 20 min"."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // (24 * 60)} d {minutes // 60 % 24} h"


def _plain(run: RunConfig) -> Report:
    pace, last = Pace(run), time.monotonic() - PLAIN_SECONDS

    def report(row: dict) -> None:
        nonlocal last
        pace.add(row)
        if time.monotonic() - last >= PLAIN_SECONDS or row["updates"] == run.updates:
            last = time.monotonic()
            sys.stderr.write(
                f"update {row['updates']:,}/{run.updates:,} · {describe(row, pace)}\n"
            )

    return report


@contextmanager
def _bar(run: RunConfig) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn(run.environment),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} transitions"),
        TextColumn("{task.fields[text]}"),
    )
    pace, last = Pace(run), 0.0
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("train", total=run.transitions, text="compiling")

        def report(row: dict) -> None:
            nonlocal last
            pace.add(row)
            if time.monotonic() - last >= BAR_SECONDS or row["updates"] == run.updates:
                last = time.monotonic()
                text = describe(row, pace)
                bar.update(task, completed=row["transitions"], text=text)

        yield report
