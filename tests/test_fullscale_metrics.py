"""One table of metrics: what runs log, what the page says and what files carry."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import run, storage
from fullscale.metrics import METRICS, TRAVELLED, averages
from fullscale.presets import preset

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
RESERVED = {"solve_rate"}  # no environment of this version has a goal
DECADE = re.compile(r"kl_to_update_1(0*)$")

SCHEDULED = preset(
    "lqr", 6 * 128, num_envs=16, rollout_length=8, minibatch_size=64, update_epochs=2,
    com=4.0, final_learning_rate=1e-3, final_clip_epsilon=0.1, final_com=2.0,
    final_outer_learning_rate=0.5, meter_interval=2, num_seeds=2,
)  # fmt: skip
EPISODIC = preset(
    "reacher", 4 * 1_600, num_envs=16, rollout_length=100, minibatch_size=100,
    update_epochs=1, hidden_sizes=(8,), evaluation_episodes=8, meter_interval=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run folder of each kind."""
    place = tmp_path_factory.mktemp("runs")
    for config in (SCHEDULED, EPISODIC):
        run.train(config, place / config.environment, devices=1)
    return sorted(place.iterdir())


def logged(folder: Path) -> set[str]:
    lines = [json.loads(x) for x in (folder / storage.METRICS).read_text().splitlines()]
    rows = [row for row in lines if "updates" in row]
    ends = [row["evaluation"] for row in lines if "evaluation" in row]
    return {name for row in rows + ends for name in row}


def documented() -> dict[str, tuple[str, str]]:
    """Name → (unit, meaning) on the page, decades as one name."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", PAGE.read_text(), re.M)
    assert len(rows) == len({name for name, *_ in rows})
    return {name: (unit, meaning) for name, unit, meaning in rows}


def one_decade(names: Mapping[str, Any]) -> dict[str, Any]:
    """The same with all decades under one name."""
    return {DECADE.sub("kl_to_update_N", name): x for name, x in names.items()}


def test_the_page_says_what_the_table_says() -> None:
    table = {
        name: (unit, re.sub(r"update [\d,]+ and", "update N and", meaning))
        for name, (unit, meaning) in one_decade(METRICS).items()
    }
    assert documented() == table


def test_runs_log_what_is_in_the_table_and_nothing_else(folders: list[Path]) -> None:
    names = set().union(*map(logged, folders))
    assert names <= set(METRICS)
    found = set(one_decade(dict.fromkeys(names)))
    assert found == set(one_decade(METRICS)) - RESERVED


def test_run_nc_has_every_logged_metric_with_unit_and_meaning(
    folders: list[Path],
) -> None:
    import xarray as xr

    for folder in folders:
        record = storage.read(folder)
        with xr.open_dataset(folder / storage.SUMMARY, engine="h5netcdf") as data:
            for name in logged(folder):
                assert data[name].attrs["units"] == METRICS[name].unit
                assert data[name].attrs["long_name"] == METRICS[name].meaning
            for name in ("updates", "transitions", "gradient_steps"):
                assert data[name].dtype == np.int64
            np.testing.assert_array_equal(data["transitions"], record.transitions)
            np.testing.assert_allclose(data["ddr_noise_of_run"], record.ddr_noise())
        raw = xr.open_dataset(
            folder / storage.SUMMARY, engine="h5netcdf", mask_and_scale=False
        )
        with raw:
            for name, values in raw.data_vars.items():  # type: ignore[assignment]
                assert np.isfinite(values).all(), f"{name} holds a NaN"


def test_the_meters_cost_is_logged_where_they_ran(folders: list[Path]) -> None:
    for folder in folders:
        record = storage.read(folder)
        if not record.config.meter_interval:
            assert "meter_seconds" not in record.series
            continue
        metered = record.series["updates"] % record.config.meter_interval == 0
        cost = record.series["meter_seconds"]
        assert np.isnan(cost[~metered]).all()
        assert (cost[metered][1:] >= 0.0).all()  # the first has nothing to compare with


def test_ddr_noise_is_a_ratio_of_sums_over_metered_updates(tmp_path: Path) -> None:
    def record(**metrics: list) -> storage.RunRecord:
        return storage.RunRecord(
            SCHEDULED, "", "", np.arange(1, 5),
            {k: np.array(v, dtype=float) for k, v in metrics.items()}, {},
        )  # fmt: skip

    noise = [[None, None], [0.5, None], [None, None], [1.5, None]]
    found = record(outer_noise_kl=noise).ddr_noise()
    np.testing.assert_allclose(found, [2 * 128 / 2.0, math.nan])
    assert np.isnan(record(outer_kl=noise).ddr_noise()).all()


finite = st.floats(1e-6, 1e6)


@given(st.lists(st.lists(finite, min_size=2, max_size=2), min_size=1, max_size=6))
def test_averages_are_means_over_updates_and_seeds(values: list[list[float]]) -> None:
    rows = [
        {"updates": i, "entropy": row, "ddr": np.array(row), "learning_rate": row[0]}
        for i, row in enumerate(values)
    ]
    found = averages(rows)
    numbers = np.array(values)
    assert found["updates"] == len(values) - 1
    np.testing.assert_allclose(found["entropy"], numbers.mean(), rtol=1e-12)
    np.testing.assert_allclose(found["learning_rate"], numbers[:, 0].mean(), rtol=1e-12)
    np.testing.assert_allclose(found["ddr"], 1 / (1 / numbers).mean(), rtol=1e-12)
    assert averages([found]) == pytest.approx(found, rel=1e-12)


def test_averages_leave_out_what_was_not_measured() -> None:
    rows: list[dict[str, Any]] = [
        {"outer_noise_kl": [None, None], "entropy": [1.0, None], "ddr": [math.inf] * 2},
        {"outer_noise_kl": [3.0, 5.0], "entropy": np.array([2.0, np.nan])},
        {"outer_noise_kl": [None, None], "clip_fraction": [None, None]},
    ]
    assert averages(rows) == {"outer_noise_kl": 4.0, "entropy": 1.5}
    assert averages([]) == {}


def test_ddr_counts_updates_that_did_not_move_and_noise_scale_is_a_ratio() -> None:
    rows: list[dict[str, Any]] = [
        {"ddr": [math.inf], "noise_trace": [4.0], "gradient_square": [-1.0]},
        {"ddr": [10.0], "noise_trace": [8.0], "gradient_square": [3.0]},
    ]
    for row in rows:
        row["noise_scale"] = [row["noise_trace"][0] / row["gradient_square"][0]]
    found = averages(rows)
    assert found["ddr"] == 20.0  # two updates' transitions over one's KL
    assert found["noise_scale"] == 6.0


def test_every_decade_has_a_name() -> None:
    assert list(TRAVELLED) == [f"kl_to_update_{10**i}" for i in range(10)]
