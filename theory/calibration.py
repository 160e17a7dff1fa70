"""The calibration sidecar: what a fit hands to a forecast, as one JSON file.

`load` reads it, `Calibration.forecast` uses it, `save` writes it. Importing this module
needs numpy only, so that a prediction costs a fraction of a second.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from theory import sidecar
from theory.calibrated import Calibration, payload, rows
from theory.ddr_map import DdrMap
from theory.forecast import FREE, KNOWN, LAW_PARAMETERS, LIMIT, RUN, Model, Parameters
from theory.sidecar import CalibrationError

__all__ = ["Calibration", "CalibrationError", "load", "rows", "save"]


def save(calibration: Calibration, path: Path) -> None:
    """Write the sidecar, whole or not at all. Raises CalibrationError."""
    sidecar.write(path, payload(calibration))


def load(path: Path | str) -> Calibration:
    """Read a sidecar: the .json file, or its name without suffix.

    Raises:
        CalibrationError: missing, not JSON, not a calibration, of an unknown version,
            damaged, non-finite, without draws, or inconsistent.
    """
    content = sidecar.read(Path(path))
    try:
        return _from_payload(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"{str(path)!r} is not complete: {error}") from None


def _from_payload(content: Mapping[str, typing.Any]) -> Calibration:
    form = content["model"]
    ddr_map = DdrMap(
        terms=tuple(form["ddr_map"]["terms"]),
        transient_terms=_optional_tuple(form["ddr_map"]["transient_terms"]),
        centres=dict(form["ddr_map"]["centres"]),
    )
    model = Model(
        **{**form, "ddr_map": ddr_map, "pace_terms": tuple(form["pace_terms"])}
    )
    if model.law_ddr not in (LIMIT, RUN) or model.asymptote not in (KNOWN, FREE):
        raise ValueError("its model is of an unknown kind")
    fixed = {k: math.inf if v == "inf" else v for k, v in content["fixed"].items()}
    return Calibration(
        **{
            item.name: content[item.name]
            for item in dataclasses.fields(Calibration)
            if item.name not in _BUILT
        },
        model=model,
        point=_parameters(content["point"], model),
        draws=_parameters(content["draws"], model),
        fixed=fixed,
        varied={k: tuple(v) for k, v in content["varied"].items()},
        budgets=tuple(content["budgets"]),
    )


_BUILT = ("model", "point", "draws", "fixed", "varied", "budgets")


def _optional_tuple(values: list | None) -> tuple | None:
    return None if values is None else tuple(values)


def _parameters(values: Mapping[str, list], model: Model) -> Parameters:
    """Arrays of the right widths, all with the same number (≥ 1) of rows."""
    arrays = {key: np.array(value, dtype=float) for key, value in values.items()}
    rows_ = {len(array) for array in arrays.values()}
    if rows_ == {0} or len(rows_) != 1:
        raise ValueError("it holds no draws, or parameters with different numbers")
    widths = {
        "ddr_map": len(model.ddr_map.coefficient_names),
        "law": len(LAW_PARAMETERS[model.family]),
        "pace": len(model.pace_terms),
    }
    if any(arrays[name].shape[1:] != (width,) for name, width in widths.items()):
        raise ValueError("its parameters do not fit its model")
    return Parameters(**arrays)
