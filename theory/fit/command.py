"""What `python -m theory.fit` does, apart from the command line."""

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from theory import calibration as calibration_module
from theory import table as table_module
from theory.fit import assembly, held_out, leave_out
from theory.fit.options import Options
from theory.fit.two_stage import Fit, fit
from theory.table import RunTable, TableError


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Fit knobs → DDR and (budget, DDR) → score; write what a prediction reads.

    Attributes:
        table: the run table, a .nc file.
        out: where to write the calibration, a .json file; TABLE with .json by default.
        asymptote: the optimum in score units where it is known, else "free".
        law: "joint", exponents tied by theory; "saturating", the same with a bias that
            begins at the untrained gap; "free", all exponents free.
        ddr: the DDR that the map is fitted to.
        law_ddr: the DDR that the law is of: the noise-only limit, or the whole run's.
        pace: "theory": a run learns as fast as its DDR says; "fitted": faster or slower
            depending on knobs, where that forecasts left-out configurations better.
        knobs: knobs of the map; all that vary by default.
        hold_out: rows to leave out and forecast, as COLUMN=VALUE; a row that meets any
            is held out.
        held_out: another run table to forecast.
        leave_out: "budget" or a knob: fit without each of its values, and forecast it.
        min_updates: leave out runs with fewer updates, whose steps are not small.
        draws: bootstrap draws over configurations.
        seed: of the bootstrap.
        json: print one JSON object on standard output.
    """

    table: Annotated[Path, tyro.conf.Positional]
    out: Path | None = None
    asymptote: str = "free"
    law: Literal["joint", "saturating", "free"] = "joint"
    ddr: Literal["ddr", "ddr_noise"] = "ddr"
    law_ddr: Literal["limit", "run"] = "limit"
    pace: Literal["theory", "fitted"] = "theory"
    knobs: tuple[str, ...] = ()
    hold_out: tuple[str, ...] = ()
    held_out: Path | None = None
    leave_out: tuple[str, ...] = ()
    min_updates: int = 0
    draws: int = 400
    seed: int = 0
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False


def run(arguments: Arguments) -> dict[str, object]:
    """Fit, forecast what was held out, write the calibration, report.

    Raises:
        TableError: a bad table or argument.
        CalibrationError: the calibration cannot be written.
        NotConverged: the fit has no answer.
    """
    options = _options(arguments)
    table = table_module.read(arguments.table)
    training, left_out = split(table, arguments.hold_out)
    training, excluded = long_enough(training, arguments.min_updates)
    if arguments.held_out is not None:
        others = [left_out] if len(left_out) else []
        left_out = table_module.concatenate(
            [*others, table_module.read(arguments.held_out)]
        )
    result = fit(training, options)
    calibration = assembly.calibration(result, training, path=arguments.table)
    if len(left_out):
        evaluation = held_out.evaluate(result, calibration, left_out)
        calibration = dataclasses.replace(calibration, held_out=evaluation)
    left = {
        by: [
            dataclasses.asdict(row)
            for row in leave_out.leave_one_out(training, options, by)
        ]
        for by in arguments.leave_out
    }
    out = arguments.out or arguments.table.with_suffix(".json")
    calibration_module.save(calibration, out)
    return {
        "calibration": str(out),
        "hash": calibration.content_hash,
        "rows": len(training),
        "excluded_rows": excluded,
        "cells": len(result.cells),
        "budgets": list(calibration.budgets),
        "status": result.status.value,
        "statuses": dict(calibration.statuses),
        "estimates": _estimates(result),
        "ddr_residual_sd": result.map_fit.residual_sd,
        "ddr_left_out_error": result.map_fit.left_out_error,
        "config_sd": float(result.point.config_sd[0]),
        "seed_sd": float(result.point.seed_sd[0]),
        "held_out": dict(calibration.held_out),
        "leave_one_out": left,
    }


def long_enough(table: RunTable, min_updates: int) -> tuple[RunTable, int]:
    """The runs with at least so many updates, and how many others there were.

    Raises:
        TableError: no run is left.
    """
    if min_updates <= 0:
        return table, 0
    kept = table["updates"] >= min_updates
    if not np.any(kept):
        raise TableError(f"no run has {min_updates} updates; lower --min-updates")
    return table.select(kept), int(np.sum(~kept))


def split(table: RunTable, conditions: Sequence[str]) -> tuple[RunTable, RunTable]:
    """Training rows, and the rows that meet any condition "COLUMN=VALUE".

    Raises:
        TableError: a condition is malformed, matches no row, or matches all.
    """
    held = np.zeros(len(table), dtype=bool)
    for condition in conditions:
        name, separator, text = condition.partition("=")
        if not separator:
            raise TableError(f"--hold-out {condition!r} should be COLUMN=VALUE")
        matches = _matches(table[name], text)
        if not np.any(matches):
            raise TableError(f"--hold-out {condition!r} matches no row")
        held |= matches
    if np.all(held):
        raise TableError("--hold-out leaves no row to fit")
    return table.select(~held), table.select(held)


def _matches(values: np.ndarray, text: str) -> np.ndarray:
    if values.dtype.kind not in "if":
        return np.array([str(value) == text for value in values.tolist()])
    try:
        return values == float(text)
    except ValueError:
        raise TableError(f"--hold-out value {text!r} should be a number") from None


def _options(arguments: Arguments) -> Options:
    asymptote = None
    if arguments.asymptote != "free":
        try:
            asymptote = float(arguments.asymptote)
        except ValueError:
            asymptote = math.nan
        if not math.isfinite(asymptote):
            raise TableError(
                f'--asymptote {arguments.asymptote!r} should be a number or "free"'
            )
    if arguments.draws < 10:
        raise TableError(f"--draws {arguments.draws} should be at least 10")
    return Options(
        asymptote=asymptote,
        family=arguments.law,
        ddr_column=arguments.ddr,
        law_ddr=arguments.law_ddr,
        pace=arguments.pace,
        knobs=arguments.knobs or None,
        draws=arguments.draws,
        seed=arguments.seed,
    )


def _estimates(result: Fit) -> dict[str, dict[str, object]]:
    return {
        name: {
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "status": estimate.status.name.lower(),
            "interval": estimate.kind.name.lower(),
        }
        for name, estimate in result.estimates.items()
    }


def text(report: dict[str, typing.Any]) -> str:
    """The report for a reader."""
    lines = [f"{report['status']} {report['cells']} cells, {report['rows']} runs."]
    if report["excluded_rows"]:
        lines.append(f"  {report['excluded_rows']} runs with too few updates left out")
    lines.append(
        f"  scatter: configurations {report['config_sd']:.3g}, seeds "
        f"{report['seed_sd']:.3g}, log DDR {report['ddr_residual_sd']:.3g}"
    )
    for name, estimate in report["estimates"].items():
        low, value, high = (
            "open" if estimate[key] is None else f"{estimate[key]:.4g}"
            for key in ("low", "value", "high")
        )
        lines.append(f"  {name:34} {value:>10}   95 % {low} to {high}")
    sentences = {k: v for k, v in report["statuses"].items() if k != "fit"}
    lines.extend(f"  {name}: {sentence}" for name, sentence in sentences.items())
    lines.extend(_held_out_lines(report["held_out"]))
    for rows in report["leave_one_out"].values():
        lines.extend(map(_left_out_line, rows))
    lines.append(f"Calibration written to {report['calibration']}")
    return "\n".join(lines) + "\n"


def _held_out_lines(held: dict[str, typing.Any]) -> list[str]:
    if not held:
        return []
    lines = [f"Held out: {len(held['cells'])} cells, scored on {held['outcome']}."]
    for name, model in held["models"].items():
        coverage = ", ".join(f"{k}: {v:.2f}" for k, v in model["coverage"].items())
        line = f"  {name:16} CRPS {model['crps']:.4g}   coverage {coverage}"
        if model["regret_share"] is not None:
            line += f"   regret share {model['regret_share']:.3f}"
        if "skill_of_law" in model:
            skill = model["skill_of_law"]
            line += (
                f"   skill of law {skill['value']:.2f} "
                f"({skill['low']:.2f} to {skill['high']:.2f})"
            )
        lines.append(line)
    return lines


def _left_out_line(row: dict[str, typing.Any]) -> str:
    start = f"Without {row['by']} = {row['value']:g}: "
    if row["crps"] is None:
        return start + row["status"]
    skills = ", ".join(f"{k} {v['value']:.2f}" for k, v in row["skill"].items())
    return (
        f"{start}{row['cells']} cells, CRPS {row['crps']:.4g}, optimum exponent "
        f"{row['law']['optimum_exponent']:.3f}; skill of law over {skills}"
    )
