"""`run.nc` and `parameters.safetensors`: a finished run for other tools.

Both are derived from the run folder's source of truth and written whole or not at all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fullscale import storage
from fullscale.metrics import attributes
from fullscale.storage import (
    FORMAT,
    SUMMARY,
    VERSION,
    StorageError,
    write_atomically,
)

PARAMETERS = "parameters.safetensors"
FILL = -9.99e33  # stands for "not measured"; NaN is never written


def write_parameters(folder: Path, parameters: Any) -> None:
    """Write nested dictionaries of arrays [seed, …] under slash-separated names.

    The networks are "policy" and "value"; what acting needs besides goes along.
    """
    from safetensors.numpy import save

    write_atomically(folder / PARAMETERS, save(dict(_flatten(parameters))))


def read_parameters(folder: Path) -> dict:
    """Read parameters back as nested dictionaries of arrays [seed, …].

    Raises:
        StorageError: there are none, or the file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / PARAMETERS
    try:
        return {"policy": {}, "value": {}} | nested(load(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except SafetensorError as error:
        raise StorageError(f"{str(path)!r} is damaged: {error}") from None


def nested(flat: Mapping[str, np.ndarray]) -> dict:
    """Nested dictionaries from slash-separated names."""
    tree: dict = {}
    for name, array in flat.items():
        *path, leaf = name.split("/")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = array
    return tree


def write_summary(folder: Path) -> None:
    """Write `run.nc` from the log: dims update, seed; units and meaning in attrs."""
    import xarray as xr

    record = storage.read(folder)
    data: dict[str, tuple] = {
        k: (("update", "seed"), v, attributes(k)) for k, v in record.metrics.items()
    }
    data |= {k: (("update",), v, attributes(k)) for k, v in record.series.items()}
    data |= {k: (("seed",), v, attributes(k)) for k, v in record.evaluation.items()}
    ratios = {"ddr_of_run": record.ddr(), "ddr_noise_of_run": record.ddr_noise()}
    data |= {k: (("seed",), v, attributes("ddr")) for k, v in ratios.items()}
    seeds = record.config.seed + np.arange(record.config.num_seeds)
    dataset = xr.Dataset(
        data,
        coords={
            "seed": ("seed", seeds),
            "transitions": ("update", record.transitions, attributes("transitions")),
        },
        attrs={
            "format": FORMAT,
            "version": VERSION,
            "started": record.started,
            "code_version": record.code_version,
            "prediction": record.config.prediction,
            "config_hash": record.config.content_hash(),
        },
    )
    encoding = {  # counts are never missing; a fill value would turn them into floats
        k: {"_FillValue": FILL if v.dtype.kind == "f" else None}
        for k, v in dataset.data_vars.items()
    }
    write_atomically(
        folder / SUMMARY, bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))
    )


def _flatten(tree: Mapping, prefix: str = "") -> list[tuple[str, np.ndarray]]:
    """Leaves of nested dictionaries with their slash-separated paths."""
    leaves = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves += _flatten(value, f"{name}/")
        else:
            leaves.append((name, np.ascontiguousarray(value)))
    return leaves
