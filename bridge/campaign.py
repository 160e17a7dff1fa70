"""Running the cells of a design: resumable, one table that grows run by run.

A cell whose rows are in the table is done. Everything else of a run (its log) is kept
in a scratch folder only until its rows are written.
"""

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bridge.rows import rows
from fullscale import storage
from fullscale.config import RunConfig
from theory import table as run_table


def pending(table: Path, cells: Sequence[RunConfig]) -> list[RunConfig]:
    """The cells whose rows are not all in the table yet, largest batch first.

    Equal sizes stand together, so that a compiled program serves them all.
    """
    done = _done(table)
    left = [cell for cell in cells if _key(dataclasses.asdict(cell)) not in done]
    return sorted(left, key=lambda cell: (cell.num_envs, cell.budget))


def run_cells(table: Path, cells: Sequence[RunConfig], devices: int | None) -> int:
    """Train what is pending and append its rows; returns how many cells were run."""
    from fullscale.run import train

    left = pending(table, cells)
    for number, cell in enumerate(left, start=1):
        with tempfile.TemporaryDirectory(prefix="ppo-outer-loop-") as scratch:
            folder = Path(scratch) / "run"
            train(cell, folder, devices)
            added = rows(storage.read(folder))
            run_table.append(table, added)
            shutil.rmtree(folder)
        score = sum(float(str(row["score"])) for row in added) / len(added)
        sys.stderr.write(
            f"cell {number}/{len(left)}: N={cell.num_envs} σ={cell.outer_learning_rate}"
            f" ε={cell.clip_epsilon} B={cell.budget:,} → score {score:.6g}\n"
        )
    return len(left)


_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(RunConfig)
    if field.name not in ("seed", "num_seeds", "evaluation_episodes", "prediction")
}


def _done(table: Path) -> set[tuple]:
    if not table.exists():
        return set()
    return {_key(row) for row in run_table.to_rows(run_table.read(table))}


def _key(values: dict) -> tuple:
    """The knobs of a cell as comparable texts.

    A table that was written before a knob existed holds runs at the knob's default.
    """
    return tuple(_text(values.get(name, _DEFAULTS[name])) for name in _DEFAULTS)


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(str(item) for item in value)
    if value is None or value in ("reset", "constant"):
        return "no number"
    if isinstance(value, bool | int | float):
        return repr(float(value))
    return str(value)
