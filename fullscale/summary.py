"""`run.nc` and `parameters.safetensors`: a finished run for other tools.

Both are derived from the run folder's source of truth and written whole or not at all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fullscale import storage
from fullscale.storage import FORMAT, SUMMARY, VERSION, write_atomically

PARAMETERS = "parameters.safetensors"
FILL = -9.99e33  # stands for "not measured"; NaN is never written

UNITS = {
    "outer_kl": "nats", "ddr": "transitions/nat", "entropy": "nats",
    "approx_kl": "nats", "clip_fraction": "1",
    "episode_return": "return", "episode_length": "transitions",
    "exact_return": "return", "policy_loss": "1", "value_loss": "return^2",
    "grad_norm": "1", "explained_variance": "1", "score": "return",
    "score_standard_error": "return",
}  # fmt: skip


def write_parameters(folder: Path, parameters: Any) -> None:
    """Write all parameters [seed, …] under slash-separated names."""
    from safetensors.numpy import save

    write_atomically(folder / PARAMETERS, save(dict(_flatten(parameters))))


def read_parameters(folder: Path) -> dict:
    """Read parameters back as nested dictionaries of arrays [seed, …]."""
    from safetensors.numpy import load

    nested: dict = {"policy": {}, "value": {}}
    for name, array in load((folder / PARAMETERS).read_bytes()).items():
        *path, leaf = name.split("/")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = array
    return nested


def write_summary(folder: Path) -> None:
    """Write `run.nc` from the log: dims update, seed; units in attrs."""
    import xarray as xr

    record = storage.read(folder)
    data: dict[str, tuple] = {
        k: (("update", "seed"), v, _attrs(k)) for k, v in record.metrics.items()
    }
    data |= {k: (("seed",), v, _attrs(k)) for k, v in record.evaluation.items()}
    seeds = record.config.seed + np.arange(record.config.num_seeds)
    dataset = xr.Dataset(
        {
            **data,
            "ddr_of_run": (("seed",), record.ddr(), {"units": UNITS["ddr"]}),
        },
        coords={
            "seed": ("seed", seeds),
            "transitions": ("update", record.transitions, {"units": "transitions"}),
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
    encoding = {k: {"_FillValue": FILL} for k in dataset.data_vars}
    write_atomically(
        folder / SUMMARY, bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))
    )


def _attrs(name: str) -> dict[str, str]:
    return {"units": UNITS[name]} if name in UNITS else {}


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
