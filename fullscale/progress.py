"""Progress on stderr: a live bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fullscale.config import RunConfig

PLAIN_SECONDS = 15.0  # at most one plain line in so many seconds

Report = Callable[[dict], None]


@contextmanager
def progress(run: RunConfig, *, quiet: bool = False) -> Iterator[Report]:
    """A function to call with the last log row of each chunk.

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


def describe(row: dict) -> str:
    """The numbers worth a glance: speed, return, outer KL."""
    parts = [f"{row['transitions_per_second']:,.0f} transitions/s"]
    for name, label in (("exact_return", "J"), ("episode_return", "return")):
        if name in row and np.isfinite(row[name]).any():
            parts.append(f"{label} {np.nanmean(row[name]):.4g}")
            break
    parts.append(f"outer KL {np.mean(row['outer_kl']):.2e} nats")
    return " · ".join(parts)


def _plain(run: RunConfig) -> Report:
    last = time.monotonic() - PLAIN_SECONDS

    def report(row: dict) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS or row["updates"] == run.updates:
            last = time.monotonic()
            sys.stderr.write(
                f"update {row['updates']:,}/{run.updates:,} · {describe(row)}\n"
            )

    return report


@contextmanager
def _bar(run: RunConfig) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(run.environment),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} transitions"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("train", total=run.transitions, text="compiling")

        def report(row: dict) -> None:
            bar.update(task, completed=row["transitions"], text=describe(row))

        yield report
