"""The labelled front: the same numbers as the functions behind it, by name and unit."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import positive_floats
from theory import labelled, laws, outer
from theory.calibrated import Calibration
from theory.sidecar import CalibrationError
from theory.table import from_rows

COM = xr.DataArray([0.0, 3.0, 30.0], dims="com", coords={"com": [0, 3, 30]})
STEP = xr.DataArray([0.1, 1.9], dims="step", coords={"step": [0.1, 1.9]})
LOOP = partial(outer.ewma_linear, curvature=1.0)


def state(**changed: object) -> xr.Dataset:
    arguments: dict = {"noise_variance": 2.0, "samples_per_update": 64}
    arguments |= {"outer_step": STEP, "com_updates": COM, **changed}
    return labelled.stationary(LOOP, **arguments)


def test_stationary_equals_the_loop_cell_by_cell() -> None:
    made = state()
    assert set(made.dims) == {"com", "step"}
    for com in COM.values:
        loop = outer.ewma_linear(0.1, 1.0, float(com))
        exact = loop.stationary(2.0, 64)
        cell = made.sel(com=com, step=0.1)
        assert float(cell["loss"]) == pytest.approx(exact.loss, rel=1e-12)
        assert float(cell["ddr"]) == pytest.approx(64 / exact.kl_per_update)
    assert np.isinf(float(made["loss"].sel(com=30, step=1.9)))
    assert float(made["ddr"].sel(com=30, step=1.9)) == 0


def test_units_are_in_the_attributes() -> None:
    made = state()
    assert made["kl_per_update"].attrs == {"units": "nats"}
    assert made["ddr"].attrs == {"units": "transitions per nat"}
    assert all("units" in made[name].attrs for name in made)


def test_order_of_dimensions_is_irrelevant() -> None:
    one = state(com_updates=COM, outer_step=STEP)
    samples = xr.DataArray([64.0, 64.0], dims="step", coords={"step": [0.1, 1.9]})
    two = state(samples_per_update=samples)
    xr.testing.assert_allclose(one, two.transpose(*one.dims))


@given(positive_floats(1e-3, 1e3), positive_floats(1e2, 1e9), positive_floats(1e2, 1e9))
def test_a_law_over_labels_is_the_law(source: float, budget: float, ddr: float) -> None:
    law = laws.JointLaw(0.1, 3.0, 2.0, source)
    made = labelled.gap(
        law.gap,
        budget=xr.DataArray([budget, 2 * budget], dims="budget"),
        ddr=xr.DataArray([ddr], dims="ddr"),
    )
    expected = [[law.gap(b, ddr)] for b in (budget, 2 * budget)]
    np.testing.assert_allclose(made["gap"].transpose("budget", "ddr"), expected)


def test_forecasts_equal_those_of_the_calibration() -> None:
    calibration = Calibration.synthetic(num_draws=20)
    budgets = xr.DataArray([1e6, 4e6], dims="budget", coords={"budget": [1e6, 4e6]})
    envs = xr.DataArray([16.0, 64.0, 256.0], dims="num_envs")
    made = labelled.forecast(calibration, budget=budgets, num_envs=envs, num_seeds=3)
    assert made["score"].dims[0] == "draw"
    assert made["score"].attrs == {"units": "score units"}
    direct = calibration.forecast(4e6, {"num_envs": 256.0}, 3).predictive
    cell = made.sel(budget=4e6).isel(num_envs=2)
    np.testing.assert_allclose(cell["score"], direct.score[:, 0])
    np.testing.assert_allclose(cell["ddr"], direct.ddr[:, 0])


def test_run_tables_keep_whole_numbers_and_get_units() -> None:
    row = {
        "environment": "lqr", "budget": 10**12 + 1, "num_envs": 64, "seed": 0,
        "transitions": 10**12 + 1, "score": -2.0, "ddr": 1e6,
    }  # fmt: skip
    made = labelled.runs(from_rows([row, {**row, "seed": 1}]))
    assert made["transitions"].dtype == np.int64
    assert made["transitions"].values.tolist() == [10**12 + 1] * 2
    assert made["ddr"].attrs == {"units": "transitions per nat"}
    assert "units" not in made["environment"].attrs


@st.composite
def bad_numbers(draw: st.DrawFn) -> float:
    return draw(st.sampled_from([float("nan"), float("inf"), -1.0]))


@given(bad_numbers(), st.sampled_from(["outer_step", "com_updates"]))
def test_impossible_knobs_are_refused_by_name(value: float, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        state(**{name: xr.DataArray([1.0, value], dims="step")})


def test_what_cannot_be_forecast_is_refused() -> None:
    calibration = Calibration.synthetic(num_draws=5)
    with pytest.raises(CalibrationError, match="num_envs"):
        labelled.forecast(calibration, budget=1e6)
    with pytest.raises(ValueError, match="dimension 'draw'"):
        labelled.forecast(
            calibration, budget=1e6, num_envs=xr.DataArray([1.0, 2.0], dims="draw")
        )
    with pytest.raises(ValueError, match="budget holds"):
        labelled.gap(laws.JointLaw(0, 1, 1, 1).gap, budget=-1.0, ddr=1.0)
