"""`bridge.configure`: other runs under the same prediction, and only those."""

import dataclasses
from pathlib import Path

import pytest

from bridge import configure, predict, prediction
from fullscale import config as config_module
from tests.support.runs import assert_refused, calibration_file, call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A prediction on record."""
    calibration = calibration_file(tmp_path)
    call(
        predict.main,
        *("--budget", "4e6", "--calibration", calibration, "--out", tmp_path / "P"),
    )
    return tmp_path / "P" / "prediction.json"


def test_the_recommended_run_again(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.toml"
    outcome = call(configure.main, path, "--out", out)
    assert outcome.code == 0
    assert str(out) in outcome.out
    assert out.read_bytes() == (path.parent / "config.toml").read_bytes()


@pytest.mark.parametrize("num_envs", [16, 64, 2048])
def test_another_number_of_environments(
    num_envs: int, path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.toml"
    asked = ("--num-envs", num_envs, "--seed", "5", "--seeds", "2", "--out", out)
    content = call(configure.main, path, *asked, "--json").json
    written = config_module.load(out)
    made = prediction.load(path)
    assert written == dataclasses.replace(
        made.config, num_envs=num_envs, seed=5, num_seeds=2, prediction=made.sha256
    )
    assert content["num_envs"] == num_envs
    assert content["prediction"] == made.sha256


def test_every_cell_can_be_configured(path: Path, tmp_path: Path) -> None:
    for cell in prediction.load(path).cells:
        out = tmp_path / f"{cell.num_envs}.toml"
        asked = ("--num-envs", cell.num_envs, "--out", out)
        assert call(configure.main, path, *asked).code == 0
        assert config_module.load(out).num_envs == cell.num_envs


def test_what_the_prediction_does_not_cover(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.toml"
    for asked, words in (
        (("--num-envs", "48"), "num_envs = 48"),
        (("--num-envs", "8192"), "covers"),
        (("--num-envs", "0"), "--num-envs"),
        (("--num-envs", "1e30"), "--num-envs"),
        (("--seeds", "0"), "--seeds"),
        (("--seed", "-1"), "--seed"),
        (("--preset", "hybrid"), "'recipe'"),
    ):
        outcome = call(configure.main, path, *asked, "--out", out)
        assert_refused(outcome, words)
        assert not out.exists()


def test_files_that_cannot_be_used(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.toml"
    out.write_text("mine")
    assert_refused(call(configure.main, path, "--out", out), "not replaced")
    assert out.read_text() == "mine"
    for bad in ("", "/", "/proc/none/c.toml"):
        assert_refused(call(configure.main, path, "--out", bad), "--out")
    free = tmp_path / "free.toml"
    assert_refused(call(configure.main, tmp_path / "no", "--out", free), "no")
    path.write_text(path.read_text()[:-30])
    assert_refused(call(configure.main, path, "--out", free))
    assert not free.exists()
    assert_refused(call(configure.main, path), "--out")
