"""Calibrations: the design, resumable runs, forecasts on record, what is shipped."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import calibrate, campaign, figure, forecasts
from bridge.designs import DESIGNS, MIN_UPDATES, lqr_design
from bridge.errors import UsageError
from bridge.rows import rows
from fullscale import storage
from fullscale.config import RunConfig
from fullscale.presets import preset
from fullscale.storage import RunWriter
from theory import calibration, lqr
from theory import table as run_table

DESIGN = lqr_design()
SHIPPED = calibrate.files(calibrate.FOLDER, "lqr")


def fake_run(config: RunConfig, folder: Path, devices: int | None = None) -> None:
    """A finished run of four updates, without training."""
    del devices
    writer = RunWriter(folder, config, "0")
    for update in range(1, 5):
        writer.append(
            {
                "updates": update,
                "transitions": update * config.samples_per_update,
                "outer_kl": [0.5 / update] * config.num_seeds,
                "exact_return": [-float(update)] * config.num_seeds,
                "entropy": [float(update)] * config.num_seeds,
            }
        )
    score = [-2.0 - seed for seed in range(config.num_seeds)]
    writer.append(
        {"evaluation": {"score": score, "score_standard_error": [0.0] * len(score)}}
    )
    writer.close()


def small(**changes: object) -> RunConfig:
    return preset("lqr", 4 * 2048, num_seeds=2, **changes)


def test_every_cell_has_enough_updates_and_its_own_seeds() -> None:
    for cell in (*DESIGN.training, *DESIGN.held_out):
        assert cell.updates >= MIN_UPDATES
        assert cell.num_seeds == DESIGN.seeds >= 5
    trained = {(c.budget, c.seed) for c in DESIGN.training}
    assert len({budget for budget, _ in trained}) == len(trained) == 3
    held_seeds = {c.seed for c in DESIGN.held_out}
    assert min(held_seeds) > max(seed for _, seed in trained) + DESIGN.seeds


def test_budgets_are_a_factor_four_apart_and_one_more_is_held_out() -> None:
    budgets = sorted({c.budget for c in DESIGN.training})
    assert [b / budgets[0] for b in budgets] == [1, 4, 16]
    assert max(c.budget for c in DESIGN.held_out) == 4 * budgets[-1]


def test_a_value_of_sigma_is_never_trained_on() -> None:
    trained = {c.outer_learning_rate for c in DESIGN.training}
    held = {c.outer_learning_rate for c in DESIGN.held_out}
    assert held - trained == {0.125}


def test_no_held_out_cell_is_a_training_cell() -> None:
    def knobs(config: RunConfig) -> str:
        return dataclasses.replace(config, seed=0, num_seeds=1).content_hash()

    assert not set(map(knobs, DESIGN.training)) & set(map(knobs, DESIGN.held_out))


def test_the_designs_optimum_is_theorys() -> None:
    assert DESIGN.asymptote == lqr.standard().optimum()[1]


def test_rows_are_one_per_seed_with_ratios_of_sums(tmp_path: Path) -> None:
    fake_run(small(seed=7), tmp_path / "run")
    made: list[dict[str, Any]] = rows(storage.read(tmp_path / "run"))
    first, second = made
    assert (first["seed"], second["seed"]) == (7, 8)
    assert (first["score"], second["score"]) == (-2.0, -3.0)
    assert first["transitions"] == 4 * 2048
    total = 0.5 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    np.testing.assert_allclose(first["ddr"], 4 * 2048 / total)
    half = 0.5 * (1 / 3 + 1 / 4)
    np.testing.assert_allclose(first["ddr_second_half"], 2 * 2048 / half)
    assert first["plateau_score"] == -3.5
    assert first["last_quarter_entropy"] == 4.0
    assert first["ddr_noise"] is None


def test_cells_run_once_whatever_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [small(num_envs=n) for n in (32, 64)]
    ran = []

    def train(config: RunConfig, folder: Path, devices: int | None = None) -> None:
        ran.append(config.num_envs)
        if len(ran) == 2:
            raise KeyboardInterrupt
        fake_run(config, folder, devices)

    monkeypatch.setattr("fullscale.run.train", train)
    table = tmp_path / "table.nc"
    with pytest.raises(KeyboardInterrupt):
        campaign.run_cells(table, cells, None)
    assert len(run_table.read(table)) == 2
    assert campaign.run_cells(table, cells, None) == 1
    assert campaign.run_cells(table, cells, None) == 0
    assert ran == [32, 64, 64]
    assert sorted(run_table.read(table)["num_envs"].tolist()) == [32, 32, 64, 64]


def test_held_out_cells_wait_for_their_forecasts(tmp_path: Path) -> None:
    arguments = calibrate.Arguments("lqr", stage="held-out", folder=tmp_path)
    with pytest.raises(UsageError, match="not on record"):
        calibrate.main(arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_domain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no design for 'lqx'"):
        calibrate.main(calibrate.Arguments("lqx", folder=tmp_path))
    with pytest.raises(UsageError, match="no design for 'lqx'"):
        figure.main(figure.Arguments("lqx", tmp_path / "f.svg"))


def test_one_changed_digit_in_the_record_is_noticed(tmp_path: Path) -> None:
    text = SHIPPED.forecasts.read_text()
    path = tmp_path / "lqr-forecasts.json"
    place = text.index("-1.9", text.index("quantiles"))
    path.write_text(text[: place + 5] + "7" + text[place + 6 :])
    with pytest.raises(UsageError, match="was edited"):
        forecasts.read(path)
    for damage in ("", "{", "[]", "{}"):
        path.write_text(damage)
        with pytest.raises(UsageError, match="no readable forecasts"):
            forecasts.read(path)


def test_forecasts_on_record_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "lqr-forecasts.json"
    path.write_bytes(SHIPPED.forecasts.read_bytes())
    record = forecasts.read(path)
    forecasts.write(path, {**record, "created": "later"})
    assert path.read_bytes() == SHIPPED.forecasts.read_bytes()
    with pytest.raises(UsageError, match="another training table"):
        forecasts.write(path, {**record, "table_sha256": "0" * 64})


def test_the_shipped_calibration_says_what_is_on_record() -> None:
    """To 1e-3 of the gap: other processors round differently."""
    shipped = calibration.load(SHIPPED.sidecar)
    record = forecasts.read(SHIPPED.forecasts)
    assert DESIGN.asymptote is not None
    for cell in record["cells"]:
        samples = cell["num_envs"] * 32
        budget = np.array([float(cell["budget"] // samples * samples)])
        knobs = {k: np.array([float(cell[k])]) for k in forecasts.KNOBS[:-1]}
        draws = shipped.forecast(budget, knobs, cell["num_seeds"]).predictive.score
        gaps = DESIGN.asymptote - np.quantile(draws[:, 0], forecasts.LEVELS)
        recorded = DESIGN.asymptote - np.array(cell["quantiles"]["law"])
        np.testing.assert_allclose(gaps, recorded, rtol=1e-3)


def test_the_shipped_scores_are_those_of_the_record() -> None:
    record = forecasts.read(SHIPPED.forecasts)
    table = run_table.read(SHIPPED.held_out)
    again: dict[str, Any] = forecasts.score(record, DESIGN, table)
    shipped: dict[str, Any] = dict(calibration.load(SHIPPED.sidecar).held_out)
    assert shipped["forecasts"] == record["sha256"]
    for name, values in again["models"].items():
        np.testing.assert_allclose(values["crps"], shipped["models"][name]["crps"])
        assert values["coverage"] == shipped["models"][name]["coverage"]


def test_the_shipped_tables_hold_the_whole_design() -> None:
    assert campaign.pending(SHIPPED.training, DESIGN.training) == []
    assert campaign.pending(SHIPPED.held_out, DESIGN.held_out) == []


def test_held_out_runs_began_after_their_forecasts() -> None:
    """The table lacks start times; the sidecar and the record carry theirs."""
    shipped = calibration.load(SHIPPED.sidecar)
    record = json.loads(SHIPPED.forecasts.read_text())
    assert record["created"] < shipped.created


def test_scoring_refuses_missing_cells() -> None:
    record = forecasts.read(SHIPPED.forecasts)
    table = run_table.read(SHIPPED.held_out)
    with pytest.raises(UsageError, match="13 of 14 held-out cells"):
        forecasts.score(record, DESIGN, table.select(np.arange(len(table) - 8)))


def test_the_figure_is_drawn_the_same_twice(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        assert figure.main(figure.Arguments("lqr", tmp_path / name)) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_every_design_can_be_made() -> None:
    for name, make in DESIGNS.items():
        assert make().domain == name
