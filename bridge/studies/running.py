"""Training a study's cells: one folder each, none twice, killed and gone on with.

A finished folder is left as it is; an unfinished one goes on from its checkpoint, bit
for bit (`fullscale.origin`); one that had none yet starts over.
"""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bridge.errors import UsageError
from bridge.studies.study import Cell, Study
from fullscale import checkpoint as checkpoints
from fullscale import config as config_module
from fullscale import origin, storage
from fullscale.origin import Finished, Plan
from fullscale.outputs import Outputs
from fullscale.runlog import holds_run
from fullscale.storage import RunRecord

DIVERGED = "diverged.txt"
OUTPUTS = Outputs(checkpoint_minutes=1.0)
Say = Callable[[str], None]


def say(line: str) -> None:
    """Progress, as a plain line on standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def run_cells(
    study: Study, folder: Path, devices: int | None, tell: Say = say
) -> dict[tuple[str, str], RunRecord]:
    """Train what is missing; returns the finished runs by task and arm.

    Raises:
        UsageError: the folder's runs are of another prediction.
    """
    claim = str(study.record()["sha256"])
    for number, cell in enumerate(study.cells, start=1):
        head = f"cell {number}/{len(study.cells)} {cell.task} {cell.arm}: "
        tell(head + _run_cell(cell, folder, claim, devices))
    return finished(study, folder)


def finished(study: Study, folder: Path) -> dict[tuple[str, str], RunRecord]:
    """The runs of a study that are there and finished."""
    found = {}
    for cell in study.cells:
        place = place_of(folder, cell.task, cell.arm)
        if (place / storage.METRICS).exists() and not (place / DIVERGED).exists():
            record = storage.read(place)
            if record.finished:
                found[cell.task, cell.arm] = record
    return found


def place_of(folder: Path, task: str, arm: str) -> Path:
    """The run folder of a cell."""
    return folder / "runs" / task.replace("/", "-") / arm


def _run_cell(cell: Cell, folder: Path, claim: str, devices: int | None) -> str:
    place = place_of(folder, cell.task, cell.arm)
    if (place / DIVERGED).exists():
        return (place / DIVERGED).read_text().strip()
    if cell.parent and (place_of(folder, cell.task, cell.parent) / DIVERGED).exists():
        place.mkdir(parents=True, exist_ok=True)
        return _mark(place, f"its parent {cell.parent} diverged")
    config = dataclasses.replace(cell.config, prediction=claim)
    plan = _plan(cell, config, folder, place)
    if isinstance(plan, Finished):
        return "there already"
    from fullscale.alarms import Diverged
    from fullscale.run import train

    try:
        scores = train(config, place, devices, outputs=OUTPUTS, plan=plan)["score"]
    except Diverged as error:
        return _mark(place, f"diverged: {error}")
    return f"score {sum(scores) / len(scores):.6g}"


def _mark(place: Path, sentence: str) -> str:
    storage.write_atomically(place / DIVERGED, f"{sentence}\n".encode())
    return sentence


def _plan(
    cell: Cell, config: config_module.RunConfig, folder: Path, place: Path
) -> Plan:
    """How the cell begins, or goes on."""
    if holds_run(place):
        before = config_module.load(place / storage.CONFIG)
        if before != config:
            raise UsageError(
                f"{str(place)!r} holds a run of another prediction or configuration; "
                "a prediction is never edited, give another --out"
            )
        if checkpoints.found(place) or storage.read(place).finished:
            return origin.resume(config, place)
    if place.exists():  # stopped before its first checkpoint
        shutil.rmtree(place)
    if not cell.parent:
        return origin.Fresh()
    parent = place_of(folder, cell.task, cell.parent)
    return origin.switch(config, parent, fresh_optimiser=cell.fresh_optimiser)
