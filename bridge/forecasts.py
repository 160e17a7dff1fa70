"""Forecasts on record: what the law and its rivals say of cells that have not run.

Written before the held-out cells run and never edited; the score recomputes the same
draws (they are seeded) and refuses if they differ from the record.
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
from theory import nulls, scores, sidecar
from theory import table as run_table
from theory.calibration import Calibration
from theory.fit import assembly
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
    """Put forecasts on record.

    Raises:
        UsageError: other forecasts are on record there already.
    """
    if path.exists():
        if _comparable(json.loads(path.read_text())) == _comparable(record):
            return
        raise UsageError(
            f"{str(path)!r} holds other forecasts; forecasts are never edited: "
            "a new training table needs a new calibration"
        )
    write_atomically(path, json.dumps(record, indent=1).encode())


def check(path: Path, record: dict) -> None:
    """Refuse to score other forecasts than those on record.

    Raises:
        UsageError: they are missing, damaged or different.
    """
    try:
        recorded = json.loads(path.read_text())
    except (OSError, ValueError):
        raise UsageError(f"{str(path)!r} holds no readable forecasts") from None
    content = {key: value for key, value in recorded.items() if key != "sha256"}
    if sidecar.content_hash(content) != recorded.get("sha256"):
        raise UsageError(f"{str(path)!r} was edited: its hash does not match")
    if not _agree(_comparable(recorded), _comparable(record)):
        raise UsageError(f"{str(path)!r} holds other forecasts than the fit gives now")


def _rivals(fitted: Fit) -> dict:
    return {name: rival.forecast for name, rival in nulls.fit_all(fitted).items()}


def _identity(config: RunConfig) -> dict[str, object]:
    """What names a cell in the record."""
    values = dataclasses.asdict(config)
    names = ("num_envs", "outer_learning_rate", "clip_epsilon", "budget", "num_seeds")
    return {**{k: values[k] for k in names}, "config_hash": config.content_hash()}


def _comparable(record: dict) -> dict:
    """A record without what differs between two computations of the same."""
    skip = ("created", "sha256", "calibration")
    return {key: value for key, value in record.items() if key not in skip}


def _agree(left: object, right: object) -> bool:
    """Equal, numbers to 1e-6 (other processors round differently)."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            _agree(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_agree, left, right))
    if isinstance(left, float) or isinstance(right, float):
        return bool(np.isclose(left, right, rtol=1e-6, atol=1e-9))  # type: ignore[arg-type]
    return left == right
