"""The run log: cut back to a checkpoint, and one process at a time."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import storage
from fullscale.config import RunConfig
from fullscale.presets import preset
from fullscale.runlog import RunWriter, holds_run
from fullscale.storage import METRICS, StorageError

CONFIG = preset("lqr", 10**9)


def write_run(folder: Path, updates: Sequence[int], config: RunConfig = CONFIG) -> Path:
    writer = RunWriter(folder, config, "0")
    for update in updates:
        writer.append({"updates": update, "transitions": 5 * update, "x": [1.0]})
        writer.append({"checkpoint": {"updates": update}})
    writer.close()
    return folder / METRICS


@given(
    updates=st.integers(1, 6),
    keep=st.integers(0, 6),
    rest=st.binary(max_size=30),
)
def test_a_log_is_cut_back_to_the_row_of_its_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, updates: int, keep: int, rest: bytes
) -> None:
    """Whatever follows goes, readable or not; what stays stays byte for byte."""
    folder = tmp_path_factory.mktemp("log") / "run"
    log = write_run(folder, range(1, updates + 1))
    whole = log.read_bytes()
    log.write_bytes(whole + rest)
    keep = min(keep, updates)
    writer = RunWriter.reopen(folder, keep)
    writer.append({"resumed": {"config_hash": CONFIG.content_hash(), "changes": {}}})
    writer.append({"updates": keep + 1, "transitions": 0, "x": [2.0]})
    writer.close()
    lines = whole.splitlines(keepends=True)
    kept = b"".join(lines[: 2 * keep or 1])
    found = log.read_bytes()
    assert found.startswith(kept)
    assert len(found[len(kept) :].splitlines()) == 2
    record = storage.read(folder)
    assert record.updates == keep + 1
    assert record.torn_lines == 0
    assert len(record.resumed) == 1


def test_a_log_that_ends_early_or_is_damaged_before_is_not_cut(tmp_path: Path) -> None:
    log = write_run(tmp_path, [1, 2, 3])
    whole = log.read_bytes()
    with pytest.raises(StorageError, match=r"ends at update 3, but .* is of update 4"):
        RunWriter.reopen(tmp_path, 4)
    assert log.read_bytes() == whole
    for damage in (b"\0\0\n", b"[1]\n", b"{\n"):
        lines = whole.splitlines(keepends=True)
        lines[3] = damage
        log.write_bytes(b"".join(lines))
        with pytest.raises(StorageError, match="damaged at line 4"):
            RunWriter.reopen(tmp_path, 3)
        assert log.read_bytes() == b"".join(lines)
        RunWriter.reopen(tmp_path, 1).close()
        assert log.read_bytes() == b"".join(lines[:2])


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, CONFIG, "0")
    writer.append({"updates": 1, "transitions": 1, "x": [1.0]})
    with pytest.raises(StorageError, match="another process is writing the run"):
        RunWriter.reopen(tmp_path, 0)
    assert storage.read(tmp_path).updates == 1
    writer.close()
    RunWriter.reopen(tmp_path, 1).close()


def test_a_first_line_that_a_kill_tore_is_no_run(tmp_path: Path) -> None:
    assert not holds_run(tmp_path)
    (tmp_path / METRICS).write_bytes(b'{"format": "ppo-outer')
    assert not holds_run(tmp_path)
    write_run(tmp_path, [1])
    assert holds_run(tmp_path)
    assert storage.read(tmp_path).updates == 1
    with pytest.raises(StorageError, match=r"already holds a run.*--resume"):
        RunWriter(tmp_path, CONFIG, "0")


def test_which_configuration_is_in_force(tmp_path: Path) -> None:
    """That of the last resume; until an update follows, the one before it as well."""
    other, third = (preset("lqr", 10**9, clip_epsilon=e) for e in (0.1, 0.05))
    write_run(tmp_path, [1])

    def readable(config: RunConfig) -> bool:
        (tmp_path / "config.toml").write_text(storage.config_module.dumps(config))
        try:
            return storage.read(tmp_path).config == config
        except StorageError:
            return False

    def resume(config: RunConfig) -> None:
        writer = RunWriter.reopen(tmp_path, 1)
        note = {"config_hash": config.content_hash(), "changes": {"clip_epsilon": []}}
        writer.append({"resumed": note})
        writer.close()

    assert [readable(c) for c in (CONFIG, other, third)] == [True, False, False]
    resume(other)
    assert [readable(c) for c in (CONFIG, other, third)] == [True, True, False]
    with (tmp_path / METRICS).open("a") as log:
        log.write(json.dumps({"updates": 2, "transitions": 2, "x": [0.0]}) + "\n")
    assert [readable(c) for c in (CONFIG, other, third)] == [False, True, False]
    assert readable(other)
    assert not storage.read(tmp_path).is_of_one_piece


def test_a_run_of_one_piece(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1])
    assert storage.read(tmp_path / "a").is_of_one_piece
    writer = RunWriter.reopen(tmp_path / "a", 1)
    writer.append({"resumed": {"config_hash": CONFIG.content_hash(), "changes": {}}})
    writer.close()
    assert storage.read(tmp_path / "a").is_of_one_piece
    RunWriter(tmp_path / "b", CONFIG, "0", {"parent": {"path": "a"}}).close()
    record = storage.read(tmp_path / "b")
    assert record.parent == {"path": "a"}
    assert not record.is_of_one_piece


def test_a_full_disk_tears_at_most_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system takes half of a line and then no more, also when it is closed."""
    writer = RunWriter(tmp_path, CONFIG, "0")
    row = {"updates": 1, "transitions": 5, "x": [1.0]}
    writer.append(row)

    class Full:
        def __init__(self, file: object) -> None:
            self.file = file

        def write(self, data: bytes) -> None:
            os.write(self.file.fileno(), data[: len(data) // 2])  # type: ignore[attr-defined]
            raise OSError(28, "No space left on device")

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    monkeypatch.setattr(writer, "_file", Full(writer._file))
    with pytest.raises(OSError, match="No space"):
        writer.append({**row, "updates": 2})
    writer.close()
    record = storage.read(tmp_path)
    assert (record.updates, record.torn_lines) == (1, 1)
    RunWriter.reopen(tmp_path, 1).close()
    assert storage.read(tmp_path).torn_lines == 0
