"""`python -m bridge.study NAME --scale laptop`: predict → train → judge → report.

Started again it goes on with what is missing: a run that was killed continues bit for
bit, one that is there is not run again, and the report has the same bytes.
"""

import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from bridge import cli, deposit
from bridge.errors import UsageError
from bridge.studies import effects, reading, report, running
from bridge.studies.study import Study
from fullscale.storage import write_atomically

COMMAND = "python -m bridge.study"
DIVERGED = 3


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Run a study: its predictions, the runs that test them, verdicts, report."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A study of bridge/studies, or a .toml file of your own."""
    scale: Literal["laptop", "gpu", "cluster"] = "laptop"
    """How large; laptop is minutes on two cores."""
    out: Path = Path("runs/studies")
    """Runs, prediction and report go to OUT/NAME-SCALE."""
    report: Path | None = None
    """Another folder for the report's three files (.md, .json, .svg)."""
    devices: int | None = None
    """Devices per run; by default cores that share the seeds."""
    plan: bool = False
    """Say what would be run and what is predicted; run nothing."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return cli.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    study = reading.load(reading.find(arguments.name), arguments.scale)
    if arguments.devices is not None and arguments.devices < 1:
        raise UsageError(f"--devices {arguments.devices} should be at least 1")
    if arguments.plan:
        cli.write(json.dumps(study.record()) if arguments.json else _planned(study))
        return cli.DONE
    folder = arguments.out / f"{study.name}-{study.scale}"
    deposit.place(folder, {"prediction.json": report.dumps(study.record())})
    _start_jax(study, arguments.devices)
    runs = running.run_cells(study, folder, arguments.devices)
    number = len(study.effects)
    findings = [effects.judge(effect, runs, number) for effect in study.effects]
    content = report.to_json(study, findings, runs)
    place = arguments.report or folder
    _write(place, study, report.in_words(study, findings, runs), content, findings)
    name = place / f"{study.name}-{study.scale}.md"
    text = f"{study.name}: {content['verdict']} (report: {name})"
    cli.write(json.dumps(content, allow_nan=False) if arguments.json else text)
    return cli.DONE if len(runs) == len(study.cells) else DIVERGED


def _write(
    place: Path,
    study: Study,
    words: str,
    content: dict[str, object],
    findings: Sequence[effects.Finding],
) -> None:
    picture = io.BytesIO()
    report.draw(findings, picture)
    place.mkdir(parents=True, exist_ok=True)
    stem = f"{study.name}-{study.scale}"
    write_atomically(place / f"{stem}.svg", picture.getvalue())
    write_atomically(place / f"{stem}.json", report.dumps(content).encode())
    write_atomically(place / f"{stem}.md", words.encode())


def _planned(study: Study) -> str:
    lines = [f"{study.name}, {study.scale}: {study.question}"]
    lines += [
        f"  run {cell.task} {cell.arm}: {cell.config.num_seeds} × "
        f"{cell.config.transitions:,} transitions"
        for cell in study.cells
    ]
    lines += [
        f"  predicted on {e.task}: {e.name}: {e.predicted:g} "
        f"(between {e.low:g} and {e.high:g}; {e.source})"
        for e in study.effects
    ]
    return "\n".join(lines)


def _start_jax(study: Study, devices: int | None) -> None:
    from fullscale import runtime

    seeds = math.gcd(*(cell.config.num_seeds for cell in study.cells))
    runtime.set_up(cpu_devices=runtime.cpu_devices(seeds, devices))


if __name__ == "__main__":
    sys.exit(main())
