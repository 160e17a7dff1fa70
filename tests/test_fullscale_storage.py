import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import storage
from fullscale.config import RunConfig
from fullscale.presets import preset
from fullscale.storage import METRICS, RunWriter, StorageError, write_atomically
from fullscale.summary import write_summary

CONFIG = preset("lqr", 10**13, num_envs=2**20, num_seeds=2)


def write_run(folder: Path, updates: int, config: RunConfig = CONFIG) -> RunWriter:
    writer = RunWriter(folder, config, "1.2.3")
    for update in range(1, updates + 1):
        writer.append(
            {
                "updates": update,
                "transitions": update * config.samples_per_update,
                "outer_kl": np.array([0.5, 0.25]) / update,
                "episode_return": [math.nan, 1.0],
            }
        )
    return writer


def test_a_run_reads_back_as_written(tmp_path: Path) -> None:
    writer = write_run(tmp_path / "run", 3)
    writer.append({"evaluation": {"score": [1.0, 2.0]}})
    writer.close()
    record = storage.read(tmp_path / "run")
    assert record.config == CONFIG
    assert record.finished
    assert record.code_version == "1.2.3"
    np.testing.assert_array_equal(record.evaluation["score"], [1.0, 2.0])
    np.testing.assert_array_equal(
        record.metrics["outer_kl"], [[0.5, 0.25], [0.25, 0.125], [0.5 / 3, 0.25 / 3]]
    )


def test_not_measured_is_null_in_the_log_and_nan_in_memory(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1).close()
    text = (tmp_path / "run" / METRICS).read_text()
    assert "NaN" not in text
    assert "null" in text
    returns = storage.read(tmp_path / "run").metrics["episode_return"]
    np.testing.assert_array_equal(returns, [[np.nan, 1.0]])


@pytest.mark.parametrize("transitions", [2**31 - 1, 2**32, 10**12, 10**16 + 1])
def test_large_counters_are_exact(tmp_path: Path, transitions: int) -> None:
    writer = RunWriter(tmp_path / "run", CONFIG, "0")
    row = {"updates": 1, "transitions": transitions, "outer_kl": [1.0, 1.0]}
    writer.append(row)
    writer.close()
    assert storage.read(tmp_path / "run").transitions[0] == transitions
    write_summary(tmp_path / "run")
    import xarray as xr

    with xr.open_dataset(tmp_path / "run" / "run.nc", engine="h5netcdf") as data:
        assert int(data["transitions"][0]) == transitions


@given(cut=st.integers(1, 400))
def test_a_torn_last_line_is_dropped_and_counted(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("torn") / "run"
    write_run(folder, 5).close()
    path = folder / METRICS
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    record = storage.read(folder)
    kept = whole[:-cut].count(b"\n") - 1
    assert record.updates == kept
    assert record.torn_lines == (0 if whole[:-cut].endswith(b"\n") else 1)
    assert not record.finished


def test_damage_in_the_middle_is_refused_with_its_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 3).close()
    path = tmp_path / "run" / METRICS
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:10]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StorageError, match="line 3"):
        storage.read(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, "version 99"),
        ({"format": "other"}, "does not start as a run log"),
        ({"config_hash": "0" * 64}, "not the configuration"),
    ],
)
def test_foreign_logs_are_refused(tmp_path: Path, change: dict, words: str) -> None:
    write_run(tmp_path / "run", 1).close()
    path = tmp_path / "run" / METRICS
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps({**json.loads(first), **change}) + "\n" + "".join(rest))
    with pytest.raises(StorageError, match=words):
        storage.read(tmp_path / "run")


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1).close()
    with pytest.raises(StorageError, match="already holds a run"):
        RunWriter(tmp_path / "run", CONFIG, "0")


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a run folder"):
        storage.read(tmp_path / "nothing")


@given(
    kl=st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=20),
    share=st.floats(0.01, 0.99),
)
def test_ddr_is_a_ratio_of_sums_and_splits(kl: list[float], share: float) -> None:
    """Splitting one update's KL into two parts of the log leaves Σ KL unchanged."""

    def record(values: list[float]) -> storage.RunRecord:
        return storage.RunRecord(
            config=CONFIG,
            started="",
            code_version="",
            transitions=np.arange(1, len(values) + 1),
            metrics={"outer_kl": np.array(values)[:, None]},
            evaluation={},
        )

    total = CONFIG.samples_per_update * len(kl) / math.fsum(kl)
    np.testing.assert_allclose(record(kl).ddr(), total, rtol=1e-12)
    split = [kl[0] * share, kl[0] * (1 - share), *kl[1:]]
    per_row = record(split).ddr() / len(split)
    np.testing.assert_allclose(per_row, total / len(kl), rtol=1e-12)


def test_ddr_of_the_second_half_leaves_out_the_first() -> None:
    record = storage.RunRecord(
        config=CONFIG,
        started="",
        code_version="",
        transitions=np.arange(1, 5),
        metrics={"outer_kl": np.array([[100.0], [100.0], [2.0], [2.0]])},
        evaluation={},
    )
    np.testing.assert_allclose(record.ddr(skip=2), CONFIG.samples_per_update / 2.0)


def test_atomic_write_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
