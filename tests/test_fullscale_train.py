"""The command: a run folder, refusals in one sentence, readable after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from fullscale import config as config_module
from fullscale import run as run_module
from fullscale import storage, train
from fullscale.alarms import MUST_BE_FINITE, Diverged, check_finite
from fullscale.config import RunConfig, dumps
from fullscale.presets import preset
from fullscale.run import compile_program, sizes_of
from fullscale.summary import read_parameters
from tests.support.trainer import SMALL_BANDIT, SMALL_LQR, SMALL_REACHER, vector

ROOT = Path(__file__).parent.parent


def write(path: Path, config: RunConfig) -> Path:
    path.write_text(dumps(config))
    return path


def call(path: Path, out: Path, **options: object) -> int:
    return train.main(train.Arguments(path, out, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config", [SMALL_LQR, SMALL_BANDIT, SMALL_REACHER], ids=["lqr", "bandit", "reacher"]
)
def test_training_leaves_a_run_folder(
    tmp_path: Path, config: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c.toml", config)
    assert call(path, tmp_path / "run", devices=1, json=True) == 0
    result = json.loads(capsys.readouterr().out)
    record = storage.read(tmp_path / "run")
    assert record.finished
    assert record.config == config_module.load(path)
    assert record.updates == config.updates
    assert record.transitions[-1] == config.transitions == result["transitions"]
    np.testing.assert_allclose(record.evaluation["score"], result["score"])
    assert np.isfinite(record.ddr()).all()
    assert (tmp_path / "run" / "run.nc").exists()
    assert vector(read_parameters(tmp_path / "run")).size > 0


def test_run_nc_holds_the_log_with_units(tmp_path: Path) -> None:
    import xarray as xr

    call(write(tmp_path / "c.toml", SMALL_LQR), tmp_path / "run", devices=1, json=True)
    record = storage.read(tmp_path / "run")
    with xr.open_dataset(tmp_path / "run" / "run.nc", engine="h5netcdf") as data:
        assert data["outer_kl"].attrs["units"] == "nats"
        np.testing.assert_allclose(data["outer_kl"], record.metrics["outer_kl"])
        np.testing.assert_array_equal(data["transitions"], record.transitions)
        assert data.attrs["config_hash"] == record.config.content_hash()


def test_runs_of_equal_sizes_share_a_program() -> None:
    other = preset(
        "lqr", 4_096, num_envs=16, rollout_length=8, minibatch_size=64,
        update_epochs=2, outer_learning_rate=0.5, clip_epsilon=0.05, seed=7,
        meter_interval=0,
    )  # fmt: skip
    assert sizes_of(other) == sizes_of(SMALL_LQR)
    assert compile_program(sizes_of(other), 1) is compile_program(
        sizes_of(SMALL_LQR), 1
    )


def test_equal_runs_are_equal_and_seeds_are_not(tmp_path: Path) -> None:
    path = write(tmp_path / "c.toml", SMALL_LQR)
    for name in ("a", "b"):
        call(path, tmp_path / name, devices=1, json=True)
    a, b = (read_parameters(tmp_path / name) for name in ("a", "b"))
    np.testing.assert_array_equal(vector(a), vector(b))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('environment = "kinetix-sfl-m"\nbudget = 1e9\nnum_envs = 2048', "Kinetix"),
        ('environment = "nowhere"\nbudget = 1e6', "unknown environment 'nowhere'"),
        ('environment = "lqr"\nbudget = 1e6\nnum_env = 3', "did you mean 'num_envs'"),
        ('environment = "lqr"\nbudget = ', "not valid TOML"),
        ("budget = 1e6", "environment"),
    ],
)
def test_a_bad_configuration_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(text)
    assert call(tmp_path / "c.toml", tmp_path / "run") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.mkdir(), "Is a directory"),
        (lambda p: p.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    ],
)
def test_an_unreadable_configuration_is_refused(
    tmp_path: Path, prepare: object, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path / "c.toml")  # type: ignore[operator]
    assert call(tmp_path / "c.toml", tmp_path / "run") == 2
    assert words in capsys.readouterr().err


def test_bad_devices_and_used_folders_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c.toml", SMALL_LQR)
    assert call(path, tmp_path / "run", devices=0) == 2
    assert call(path, tmp_path / "run", devices=3) == 2
    assert "devices = 3" in capsys.readouterr().err
    assert call(path, tmp_path / "run", devices=1, json=True) == 0
    assert call(path, tmp_path / "run", devices=1) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    path = write(tmp_path / "c.toml", SMALL_LQR)
    assert call(path, tmp_path / "file" / "run", devices=1) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_run_that_diverges_says_where_and_exits_3(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"updates": 3, "transitions": 96, **dict.fromkeys(MUST_BE_FINITE)}
    row |= {name: np.array([1.0, 1.0]) for name in MUST_BE_FINITE}
    row["value_loss"] = np.array([1.0, np.nan])
    with pytest.raises(Diverged, match=r"value_loss .* update 3 .* seed number 1"):
        check_finite(SMALL_LQR, row)

    def diverge(*_: object, **__: object) -> None:
        raise Diverged("outer_kl is not finite")

    monkeypatch.setattr(run_module, "train", diverge)
    path = write(tmp_path / "c.toml", SMALL_LQR)
    assert call(path, tmp_path / "run", devices=1) == 3
    assert "not finite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(28, "No space left on device"), 2, "No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (run_module.OutOfMemory("does not fit"), 2, "does not fit"),
    ],
)
def test_what_stops_a_run_is_one_sentence(
    tmp_path: Path,
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run_module, "train", stop)
    path = write(tmp_path / "c.toml", SMALL_LQR)
    assert call(path, tmp_path / "run", devices=1) == code
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_too_large_a_run_says_that_it_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(run_module, "_train", exhaust)
    with pytest.raises(run_module.OutOfMemory, match="num_envs × rollout_length"):
        run_module.train(SMALL_LQR, tmp_path / "run")


def test_a_killed_run_can_be_read(tmp_path: Path) -> None:
    config = preset("lqr", 10**9, num_envs=16, rollout_length=8, minibatch_size=64)
    path = write(tmp_path / "c.toml", config)
    command = [sys.executable, "-m", "fullscale.train", path, "--out", tmp_path / "run"]
    process = subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    log = tmp_path / "run" / storage.METRICS
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not (
        log.exists() and log.stat().st_size > 20_000
    ):
        assert process.poll() is None
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    record = storage.read(tmp_path / "run")
    assert record.updates > 0
    assert not record.finished
    np.testing.assert_array_equal(
        record.transitions, np.arange(1, record.updates + 1) * 128
    )


def test_help_is_from_types() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "fullscale.train", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--out" in out.stdout
    assert "--devices" in out.stdout
