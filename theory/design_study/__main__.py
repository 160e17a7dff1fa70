"""`python -m theory.design_study --out LOG`: run the design study, or go on with it."""

import importlib.metadata
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from theory.design_study import records, report
from theory.design_study.one_table import study
from theory.design_study.scenarios import SCENARIOS


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to run.

    Attributes:
        out: log, one JSON line per table; tables that it holds are not made again.
        tables: tables per scenario.
        draws: bootstrap draws per fit.
        seed: of the study.
        report: where to write the summary, as FILE.json and FILE.md; none by default.
    """

    out: Path
    tables: int = 200
    draws: int = 200
    seed: int = 0
    report: Path | None = None


def run(arguments: Arguments) -> None:
    """Make the tables that are missing, then the report if one is asked for.

    Raises:
        ValueError: no tables, too few draws, or a log of another study.
    """
    if arguments.tables < 1:
        raise ValueError(f"tables is {arguments.tables}; it must be at least 1.")
    setting = records.Setting(seed=arguments.seed, draws=arguments.draws)
    done, torn = records.read(arguments.out, setting)
    if torn:
        sys.stderr.write(f"{torn} torn lines in {arguments.out}; made again\n")
    for name, scenario in SCENARIOS.items():
        for number in range(arguments.tables):
            if (name, number) not in done:
                made = study(scenario, arguments.seed, number, arguments.draws)
                records.append(arguments.out, setting, name, number, made)
                sys.stderr.write(f"{name}: {number + 1} of {arguments.tables}\n")
    if arguments.report is not None:
        _write_report(arguments, arguments.report)


def _write_report(arguments: Arguments, path: Path) -> None:
    setting = records.Setting(seed=arguments.seed, draws=arguments.draws)
    found, _ = records.read(arguments.out, setting)
    used = [r for (_, number), r in found.items() if number < arguments.tables]
    packages = ("ppo-outer-loop", "numpy", "scipy")
    summary = {
        "command": f"python -m theory.design_study --tables {arguments.tables} "
        f"--draws {arguments.draws} --seed {arguments.seed} --out LOG --report "
        f"{path.with_suffix('')}",
        "tables": arguments.tables,
        **vars(setting),
        "versions": ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages),
        "scenarios": report.aggregate(used),
    }
    path.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.markdown(summary))


def main(arguments: Arguments) -> int:
    """Run the command; returns the exit code."""
    try:
        run(arguments)
    except ValueError as error:
        sys.stderr.write(f"theory.design_study: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            tyro.cli(
                Arguments, prog="python -m theory.design_study", description=__doc__
            )
        )
    )
