"""Forecasts on record: what the law and its rivals say of cells that have not run.

Written before the held-out cells run and never edited. What is scored is the record
itself: an ensemble of 100 quantiles per cell and model.
"""

import dataclasses
import datetime
import json
from pathlib import Path

import numpy as np

from bridge.designs import Design
from bridge.errors import UsageError
from fullscale.config import RunConfig
from fullscale.storage import write_atomically
from theory import cells as cells_module
from theory import nulls, scores, sidecar
from theory import table as run_table
from theory.calibration import Calibration
from theory.cells import Cells
from theory.fit import assembly, held_out
from theory.fit.options import Options
from theory.fit.two_stage import Fit, fit

FORMAT, VERSION = "ppo-outer-loop/forecasts", 1
LEVELS = tuple((i + 0.5) / 100 for i in range(100))  # an ensemble of equal weights
DRAWS = 400


def fit_design(design: Design, table: Path) -> tuple[Fit, Calibration]:
    """Fit the design's law to its training table.

    Raises:
        TableError: the table is missing, incomplete or cannot be fitted.
        NotConverged: the fit has no answer.
    """
    rows = run_table.read(table)
    options = Options(
        asymptote=design.asymptote, family=design.law, pace=design.pace, draws=DRAWS
    )
    result = fit(rows, options)
    return result, assembly.calibration(result, rows, path=table, name=design.domain)


def forecasts(design: Design, fitted: Fit, calibration: Calibration) -> dict:
    """Quantiles of the mean score of every held-out cell, per model.

    Returns:
        JSON values: the models' quantiles per cell, what is forecast and how it will
        be scored, and the hash of the calibration that forecast.
    """
    models = {"law": calibration.forecast, **_rivals(fitted)}
    cells = []
    for config in design.held_out:
        knobs = {
            name: np.array([float(getattr(config, name))])
            for name in calibration.model.ddr_map.knobs
        }
        budget = np.array([float(config.transitions)])
        quantiles = {}
        for name, forecast in models.items():
            draws = forecast(budget, knobs, config.num_seeds)
            values = draws.predictive.score if name == "law" else draws
            quantiles[name] = np.quantile(values[:, 0], LEVELS).tolist()
        cells.append({**_identity(config), "quantiles": quantiles})
    record = {
        "format": FORMAT,
        "version": VERSION,
        "domain": design.domain,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "calibration": calibration.content_hash,
        "table_sha256": calibration.table_sha256,
        "quantity": f"mean score over {design.seeds} seeds",
        "outcome": scores.outcome_name(design.asymptote),
        "scores": "CRPS and 50/80/90 % coverage of the outcome; regret share of the N "
        "with the best mean forecast, on every grid of N at otherwise equal knobs",
        "quantile_levels": list(LEVELS),
        "cells": cells,
    }
    return {**record, "sha256": sidecar.content_hash(record)}


def write(path: Path, record: dict) -> None:
    """Put forecasts on record; what is on record is never touched.

    Raises:
        UsageError: forecasts from another training table are on record there.
    """
    if not path.exists():
        write_atomically(path, json.dumps(record, indent=1).encode())
    elif read(path)["table_sha256"] != record["table_sha256"]:
        raise UsageError(
            f"{str(path)!r} holds forecasts from another training table, and forecasts "
            "are never edited; a new table needs a new calibration"
        )


def read(path: Path) -> dict:
    """Forecasts on record.

    Raises:
        UsageError: they are missing, damaged, edited, or of an unknown version.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        content = {key: value for key, value in record.items() if key != "sha256"}
        intact = sidecar.content_hash(content) == record["sha256"]
    except (OSError, ValueError, KeyError, AttributeError):
        raise UsageError(f"{str(path)!r} holds no readable forecasts") from None
    if not intact:
        raise UsageError(f"{str(path)!r} was edited: its hash does not match")
    if (record["format"], record["version"]) != (FORMAT, VERSION):
        raise UsageError(
            f"{str(path)!r} should have format {FORMAT!r}, version {VERSION}"
        )
    return record


def score(record: dict, design: Design, table: run_table.RunTable) -> dict[str, object]:
    """Score recorded forecasts, as they stand, on the held-out runs.

    Raises:
        UsageError: a cell has not run, or has fewer seeds than was forecast.
    """
    knobs = tuple(k for k in KNOBS if k != "budget")
    cells = cells_module.from_table(table, ddr_column="ddr", knobs=knobs)
    columns = [_recorded(record, cells, index) for index in range(len(cells))]
    if len(columns) != len(record["cells"]):
        raise UsageError(
            f"{len(columns)} of {len(record['cells'])} held-out cells have run; "
            "run --stage held-out first"
        )
    models = {
        name: np.stack([column[name] for column in columns], axis=-1)
        for name in columns[0]
    }
    result = held_out.score_models(cells, models, design.asymptote)
    return {
        **result,
        "forecasts": record["sha256"],
        "forecasts_made": record["created"],
    }


def _recorded(record: dict, cells: Cells, index: int) -> dict[str, np.ndarray]:
    """Recorded quantiles per model of one measured cell."""
    here = {name: float(values[index]) for name, values in cells.knobs.items()}
    here |= {
        "budget": float(cells.budget[index]),
        "num_seeds": float(cells.num_seeds[index]),
    }
    for cell in record["cells"]:
        if all(cell[name] == value for name, value in here.items()):
            return {k: np.array(v) for k, v in cell["quantiles"].items()}
    raise UsageError(f"there is no forecast of the cell {here}")


def _rivals(fitted: Fit) -> dict:
    return {name: rival.forecast for name, rival in nulls.fit_all(fitted).items()}


KNOBS = ("num_envs", "outer_learning_rate", "clip_epsilon", "budget")


def _identity(config: RunConfig) -> dict[str, object]:
    """What names a cell in the record."""
    values = dataclasses.asdict(config)
    names = (*KNOBS, "num_seeds")
    return {**{k: values[k] for k in names}, "config_hash": config.content_hash()}
