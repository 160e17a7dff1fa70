"""From a fit and its table to the calibration that forecasts read."""

import datetime
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from theory import columns
from theory.calibration import Calibration
from theory.fit.status import Status
from theory.fit.two_stage import Fit
from theory.table import RunTable, to_rows


def calibration(
    fit: Fit,
    table: RunTable,
    *,
    path: Path | None = None,
    name: str = "",
    held_out: Mapping[str, object] | None = None,
) -> Calibration:
    """The calibration of a fit.

    Args:
        fit: a converged fit.
        table: the training rows.
        path: the run table's file, whose name and hash are recorded.
        name: by default the file's stem, or the environment's name.
        held_out: cells that were held out and their scores.
    """
    first = to_rows(table.select(np.array([0])))[0]
    varied = table.varied()
    knobs = fit.model.ddr_map.knobs
    fixed = {k: _fixed(k, first[k]) for k in columns.IDENTITY if k in first}
    domain = str(first["environment"])
    return Calibration(
        name=name or (path.stem if path else domain),
        domain=domain,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        ddr_column=fit.options.ddr_column,
        model=fit.model,
        point=fit.point,
        draws=fit.draws,
        fixed={k: v for k, v in fixed.items() if k not in varied},
        varied={k: tuple(np.unique(fit.cells.knobs[k]).tolist()) for k in knobs},
        budgets=table.budgets(),
        held_out=dict(held_out or {}),
        statuses=statuses(fit),
        table_file=path.name if path else "",
        table_sha256=hashlib.sha256(path.read_bytes()).hexdigest() if path else "",
    )


def statuses(fit: Fit) -> dict[str, str]:
    """A sentence about the fit, and one per parameter that is not plainly estimated."""
    sentences = {"fit": fit.status.value}
    for name, estimate in fit.estimates.items():
        if estimate.status is not Status.CONVERGED:
            sentences[name] = estimate.sentence()
    return sentences


def _fixed(name: str, value: object) -> object:
    return "reset" if name == "com" and value is None else value
