"""The theory over named axes: xarray in, `Dataset` with units out.

A thin front. Knobs are `DataArray`s (or plain numbers); they broadcast by the names of
their dimensions, whatever the order, and coordinates are kept:

    com = xr.DataArray([0, 3, 30], dims="com", coords={"com": [0, 3, 30]})
    step = xr.DataArray([0.1, 0.2], dims="step", coords={"step": [0.1, 0.2]})
    loop = partial(outer.ewma_linear, curvature=1.0)
    stationary(loop, noise_variance=1, samples_per_update=64,
               outer_step=step, com_updates=com)["loss"].plot()

Units are in `attrs["units"]`: a run table's, where the name is one of its columns.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import xarray as xr

from theory import columns
from theory.calibrated import Calibration
from theory.outer import Loop
from theory.table import RunTable

UNITS: Mapping[str, str] = {
    "acting_variance": "parameter units squared",
    "reference_variance": "parameter units squared",
    "cross_covariance": "parameter units squared",
    "step_second_moment": "parameter units squared",
    "kl_per_update": "nats",
    "loss": "loss units",
    "gap": "score units",
    "regret": "1",
    **{name: unit for name, (_, unit) in columns.ALL.items() if unit},
}

Knob = xr.DataArray | float | int


def stationary(
    make: Callable[..., Loop],
    *,
    noise_variance: Knob,
    samples_per_update: Knob,
    **knobs: Knob,
) -> xr.Dataset:
    """The stationary state of a loop over all combinations of labelled knobs.

    Args:
        make: builds the loop from the knobs by name, for instance `outer.ewma_linear`.
        noise_variance: σ², the variance of one sample's gradient.
        samples_per_update: n.
        knobs: the loop's arguments.

    Returns:
        Variables named as the fields of `outer.Stationary`, and `ddr`; inf where the
        loop is unstable (`ddr`: 0).

    Raises:
        ValueError: if a number is invalid, or everything is scalar and unstable.
    """
    given = {"noise": noise_variance, "samples": samples_per_update, **knobs}
    arrays, frame = _broadcast(given)
    noise, samples = arrays.pop("noise"), arrays.pop("samples")
    state = make(**arrays).stationary(noise, samples)
    values = {
        field.name: getattr(state, field.name) for field in dataclasses.fields(state)
    }
    with np.errstate(divide="ignore"):
        values["ddr"] = samples / np.asarray(values["kl_per_update"], dtype=float)
    return _dataset(values, frame)


def gap(
    law: Callable[..., object], *, budget: Knob, ddr: Knob, name: str = "gap"
) -> xr.Dataset:
    """A law over labelled budgets and DDRs.

    Args:
        law: (budget, ddr) → number, for instance the `gap` or `regret` of a law.
        budget: B > 0, transitions.
        ddr: D > 0, transitions per nat of noise KL.
        name: of the variable.

    Returns:
        One variable.

    Raises:
        ValueError: if a number is not finite and positive.
    """
    arrays, frame = _broadcast({"budget": budget, "ddr": ddr})
    return _dataset({name: law(arrays["budget"], arrays["ddr"])}, frame)


def forecast(
    calibration: Calibration, *, budget: Knob, num_seeds: int = 1, **knobs: Knob
) -> xr.Dataset:
    """A calibration's forecasts over labelled budgets and knobs.

    Args:
        calibration: the fit.
        budget: transitions.
        num_seeds: seeds that the forecast's mean score will be taken over.
        knobs: every varied knob of the calibration.

    Returns:
        `ddr`, `gap` and `score` of runs to come, with a leading dimension `draw`.

    Raises:
        CalibrationError: a knob is missing, impossible or unknown.
        ValueError: a knob has the dimension `draw`.
    """
    arrays, frame = _broadcast({"budget": budget, **knobs})
    if "draw" in frame.dims:
        raise ValueError("a knob has the dimension 'draw', which names the draws")
    flat = {name: np.ravel(values) for name, values in arrays.items()}
    made = calibration.forecast(flat.pop("budget"), flat, num_seeds).predictive
    shape = (calibration.num_draws, *frame.shape)
    values = {
        name: np.reshape(getattr(made, name), shape) for name in ("ddr", "gap", "score")
    }
    return _dataset(values, frame, leading={"draw": calibration.num_draws})


def runs(table: RunTable) -> xr.Dataset:
    """A run table as a `Dataset` with dimension `run` and units.

    Args:
        table: the runs.
    """
    columns = {name: ("run", table[name], units(name)) for name in table.data}
    return xr.Dataset(columns)


def units(name: str) -> Mapping[str, str]:
    """Attributes of a variable: its unit, where it has one on record."""
    return {"units": UNITS[name]} if name in UNITS else {}


def _broadcast(
    knobs: Mapping[str, Knob],
) -> tuple[dict[str, np.ndarray], xr.DataArray]:
    """Arrays of one shape, and an array that carries dimensions and coordinates."""
    labelled = [
        knob if isinstance(knob, xr.DataArray) else xr.DataArray(float(knob))
        for knob in knobs.values()
    ]
    together = xr.broadcast(*labelled)
    arrays = {
        name: np.asarray(array.values, dtype=np.float64)
        for name, array in zip(knobs, together, strict=True)
    }
    return arrays, together[0]


def _dataset(
    values: Mapping[str, object],
    frame: xr.DataArray,
    leading: Mapping[str, int] = MappingProxyType({}),
) -> xr.Dataset:
    """Values over the frame's dimensions, after those that lead (name → size)."""
    dims = (*leading, *frame.dims)
    shape = (*leading.values(), *frame.shape)
    variables = {
        name: (dims, np.broadcast_to(np.asarray(value, float), shape), units(name))
        for name, value in values.items()
    }
    return xr.Dataset(variables, coords=frame.coords)
