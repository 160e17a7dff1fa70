"""`--out`: a prediction and its configuration appear together, and stay as they are."""

import errno
import os
import stat
from pathlib import Path

import pytest

from bridge import deposit, predict, prediction
from bridge.errors import UsageError
from fullscale import config as config_module
from tests.support.runs import assert_refused, calibration_file, call


def ask(folder: Path, out: Path, budget: str = "4e6") -> tuple[str, ...]:
    path = folder / "calibration.json"
    if not path.exists():
        calibration_file(folder)
    return ("--budget", budget, "--calibration", str(path), "--out", str(out))


def test_out_writes_a_prediction_and_its_configuration(tmp_path: Path) -> None:
    out = tmp_path / "a" / "P"
    outcome = call(predict.main, *ask(tmp_path, out), "--json")
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml",
        "prediction.json",
    ]
    made = prediction.load(out / "prediction.json")
    config = config_module.load(out / "config.toml")
    assert config.prediction == made.sha256 == outcome.json["prediction"]["sha256"]
    assert config.num_envs == outcome.json["num_envs"] == 256
    assert config.content_hash() == made.config.content_hash()
    mode = stat.S_IMODE((out / "config.toml").stat().st_mode)
    assert mode & stat.S_IRUSR


def test_the_same_prediction_stands_with_its_date(tmp_path: Path) -> None:
    out = tmp_path / "P"
    call(predict.main, *ask(tmp_path, out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = call(predict.main, *ask(tmp_path, out), "--json")
    assert again.code == 0
    assert "stands unchanged" in again.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    (out / "config.toml").unlink()
    assert call(predict.main, *ask(tmp_path, out)).code == 0
    assert (out / "config.toml").read_bytes() == before["config.toml"]


def test_another_prediction_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "P"
    call(predict.main, *ask(tmp_path, out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert_refused(
        call(predict.main, *ask(tmp_path, out, "5e6")), "never edited", repr(str(out))
    )
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("name", ["prediction.json", "config.toml"])
def test_a_file_of_the_users_is_never_replaced(name: str, tmp_path: Path) -> None:
    out = tmp_path / "P"
    out.mkdir()
    (out / name).write_text("mine")
    assert_refused(call(predict.main, *ask(tmp_path, out)), name, "not replaced")
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == "mine"


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing(
    function: str, failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = getattr(os, function)

    def full(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments)

    asked = ask(tmp_path, tmp_path / "a" / "b")
    monkeypatch.setattr(deposit.os, function, full)
    assert_refused(call(predict.main, *asked), "No space left on device")
    assert len(calls) == failing
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "P", Path("/proc/none/P")):
        assert_refused(call(predict.main, *ask(tmp_path, out)), repr(str(out)))
    assert_refused(call(predict.main, *ask(tmp_path, tmp_path)[:-1], ""), "--out")


def test_an_existing_folder_keeps_its_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "P"
    out.mkdir()
    (out / "notes").write_text("mine")
    asked = ask(tmp_path, out)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(deposit.os, "fsync", full)
        assert call(predict.main, *asked).code == 2
    assert [path.name for path in out.iterdir()] == ["notes"]
    assert call(predict.main, *asked).code == 0
    assert len(list(out.iterdir())) == 3


def test_place_refuses_before_it_makes_anything(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("old")
    with pytest.raises(UsageError, match="not replaced"):
        deposit.place(tmp_path, {"a": "new", "b": "new"})
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
