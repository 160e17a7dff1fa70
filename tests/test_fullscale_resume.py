"""T5, T5b, T6: a run that was stopped and goes on is the run that was not stopped."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import begin as begin_module
from fullscale import checkpoint as checkpoints
from fullscale import config as config_module
from fullscale import keys, origin, program, run, snapshot, storage, train
from fullscale.config import MAX_COUNT, RunConfig
from fullscale.counters import Counters
from fullscale.outputs import Outputs
from fullscale.storage import RunWriter, StorageError
from tests.support.trainer import METERED_LQR, SMALL_BANDIT, SMALL_REACHER

ROOT = Path(__file__).parent.parent
CLOCKS = ("transitions_per_second", "meter_seconds")
EVERY = Outputs(checkpoint_interval=3)

# Programs that other test files have compiled, and one whose state holds everything.
LQR, BANDIT = METERED_LQR, SMALL_BANDIT
FULL = dataclasses.replace(
    SMALL_REACHER, budget=16 * 256, num_seeds=2, com=8.0, final_com=2.0,
    outer_momentum=0.3, outer_learning_rate=0.7, final_learning_rate=0.0,
    normalise_observations=True, normalise_rewards=True, meter_interval=0,
    target_kl=0.01,
)  # fmt: skip
MEMORY = dataclasses.replace(FULL, network="gru", segment_length=8, meter_interval=5)


class Stop(Exception):
    """What stands for a kill."""


def stop_at(update: int) -> Callable[[dict], None]:
    def report(row: dict) -> None:
        if row["updates"] == update:
            raise Stop

    return report


def stopped(config: RunConfig, folder: Path, update: int, devices: int = 1) -> Path:
    """A run that ends without a word once the row of an update is written."""
    with pytest.raises(Stop):
        run.train(config, folder, devices, stop_at(update), outputs=EVERY)
    return folder


def go_on(
    config: RunConfig,
    folder: Path,
    devices: int | None = None,
    *,
    accept_changes: bool = False,
) -> dict:
    plan = origin.resume(config, folder, accept_changes=accept_changes)
    return run.train(config, folder, devices, plan=plan)


def final(folder: Path) -> dict[str, np.ndarray]:
    """Everything in the final state."""
    checkpoint = checkpoints.read(checkpoints.found(folder)[0])
    assert checkpoint.kept
    config = checkpoint.config
    assert checkpoint.counters == Counters().after(config, config.updates)
    state = snapshot.restore(checkpoint, program.template(config, 1))
    arrays = snapshot.host_arrays(state)
    return {**arrays, "key": np.asarray(jax.random.key_data(state.key))}


def compare(
    one: Path, other: Path, equal: Callable[[Any, Any, str], None] | None = None
) -> None:
    """States, log rows, scores and run tables of two runs."""
    equal = equal or (lambda a, b, name: np.testing.assert_array_equal(a, b, name))
    first, second = storage.read(one), storage.read(other)
    np.testing.assert_array_equal(first.transitions, second.transitions)
    assert first.metrics.keys() == second.metrics.keys()
    assert first.series.keys() == second.series.keys()
    pairs = [(final(one), final(other)), (first.metrics, second.metrics)]
    pairs += [(first.series, second.series), (first.evaluation, second.evaluation)]
    for ours, theirs in pairs:
        for name in ours.keys() - set(CLOCKS):
            equal(ours[name], theirs[name], name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], Path]:
    """The run that was not stopped, for one configuration."""
    made: dict[RunConfig, Path] = {}

    def get(config: RunConfig) -> Path:
        if config not in made:
            made[config] = tmp_path_factory.mktemp("whole") / "run"
            run.train(config, made[config], 1)
        return made[config]

    return get


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A copy of an `LQR` run that was stopped at update 8, with checkpoints 3 and 6."""
    original = stopped(LQR, tmp_path_factory.mktemp("halfway") / "run", 8)

    def get(folder: Path) -> Path:
        return Path(shutil.copytree(original, folder))

    return get


@pytest.mark.parametrize(
    "config",
    [FULL, LQR, BANDIT, pytest.param(MEMORY, marks=pytest.mark.slow)],
    ids=["full", "lqr", "bandit", "memory"],
)
def test_stopped_and_resumed_equals_not_stopped(
    config: RunConfig, tmp_path: Path, whole: Callable
) -> None:
    """T5: bit for bit, whatever the state holds, and resumed twice."""
    folder = stopped(config, tmp_path / "run", 7)
    assert storage.read(folder).updates >= 7
    with pytest.raises(Stop):
        run.train(
            config, folder, None, stop_at(11), outputs=EVERY,
            plan=origin.resume(config, folder),
        )  # fmt: skip
    go_on(config, folder)
    compare(whole(config), folder)
    record = storage.read(folder)
    assert [note["updates"] for note in record.resumed] == [6, 9]
    assert record.is_of_one_piece


def test_on_other_devices_it_agrees_to_rounding(
    tmp_path: Path, whole: Callable
) -> None:
    """T5b: from 1 to 4 devices."""
    folder = stopped(LQR, tmp_path / "run", 14)
    go_on(LQR, folder, 4)

    def near(ours: Any, theirs: Any, name: str) -> None:
        if name.startswith("learner/parameters"):
            difference = np.linalg.norm(theirs - ours)
            assert difference <= 1e-4 * np.linalg.norm(ours), name

    compare(whole(LQR), folder, near)
    assert storage.read(folder).resumed[0]["devices"] == 4


def test_killed_while_it_runs_and_resumed(tmp_path: Path) -> None:
    """SIGKILL at whatever moment after the second checkpoint, in its own process."""
    config = dataclasses.replace(LQR, budget=600 * 128)
    path = tmp_path / "c.toml"
    path.write_text(config_module.dumps(config))
    folder = tmp_path / "run"
    command = [
        sys.executable, "-m", "fullscale.train", path, "--out", folder,
        "--checkpoint-interval", "20", "--devices", "1",
    ]  # fmt: skip
    process = subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while not (folder / "checkpoints" / "000040").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = storage.read(folder).updates
    assert 40 <= done < 600
    assert train.main(train.Arguments(path, folder, resume=True, json=True)) == 0
    run.train(config, tmp_path / "whole", 1)
    compare(tmp_path / "whole", folder)


def test_budgets_are_extended_only_when_told(
    tmp_path: Path, whole: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finished run goes on as the longer run would have, and keeps its score."""
    folder = Path(shutil.copytree(whole(LQR), tmp_path / "run"))
    score = storage.read(folder).evaluation["score"].tolist()
    longer = dataclasses.replace(LQR, budget=20 * 128)
    with pytest.raises(
        StorageError, match=r"budget = 2560 \(was 2048\).*accept-change"
    ):
        go_on(longer, folder)
    assert storage.read(folder).finished
    go_on(longer, folder, accept_changes=True)
    compare(whole(longer), folder)
    record = storage.read(folder)
    assert record.config == longer
    assert not record.is_of_one_piece
    assert record.resumed[0]["changes"] == {"budget": [2048, 2560]}
    assert record.resumed[0]["evaluation"]["score"] == score
    assert [path.name for path in checkpoints.found(folder)] == ["000020", "000016"]
    shorter = dataclasses.replace(LQR, budget=18 * 128)
    with pytest.raises(
        StorageError, match=r"is 18 updates, and .* already at update 20"
    ):
        go_on(shorter, folder, accept_changes=True)
    capsys.readouterr()


def test_other_knobs_change_from_the_checkpoint_on(
    tmp_path: Path, halfway: Callable, whole: Callable
) -> None:
    folder = halfway(tmp_path / "run")
    other = dataclasses.replace(LQR, clip_epsilon=0.01, learning_rate=1e-3)
    go_on(other, folder, accept_changes=True)
    ours, theirs = storage.read(folder), storage.read(whole(LQR))
    before, after = ours.metrics["outer_kl"][:6], ours.metrics["outer_kl"][6:]
    np.testing.assert_array_equal(before, theirs.metrics["outer_kl"][:6])
    assert (after != theirs.metrics["outer_kl"][6:]).all()
    rates = ours.series["learning_rate"]
    assert rates.tolist() == [LQR.learning_rate] * 6 + [1e-3] * 10
    assert ours.config == other


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_envs": 32}, r"num_envs = 32 \(was 16\); start a new run .* --from"),
        ({"seed": 1}, r"seed = 1 \(was 0\); start a new run .* --from"),
        ({"com": 4.0}, r"com = 4.0 \(was \"reset\"\) changes what .*anchor.* --from"),
        ({"outer_momentum": 0.5}, r"outer_momentum = 0.5 .*velocity.* --from"),
        ({"meter_interval": 0, "gae_lambda": 0.5}, r"^meter_interval = 0 .*frozen"),
    ],
)
def test_what_would_be_another_run_is_refused_even_when_told(
    tmp_path: Path, halfway: Callable, changes: dict, words: str
) -> None:
    folder = halfway(tmp_path / "run")
    before = (folder / storage.METRICS).read_bytes()
    with pytest.raises(StorageError, match=words):
        go_on(dataclasses.replace(LQR, **changes), folder, accept_changes=True)
    assert (folder / storage.METRICS).read_bytes() == before


def test_a_kill_between_the_note_and_the_configuration_is_no_harm(
    tmp_path: Path, halfway: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = halfway(tmp_path / "run")
    other = dataclasses.replace(LQR, clip_epsilon=0.05)

    def kill(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(begin_module, "write_config", kill)
        with pytest.raises(Stop):
            go_on(other, folder, accept_changes=True)
    assert storage.read(folder).config == LQR
    go_on(other, folder, accept_changes=True)
    assert storage.read(folder).config == other


def damage(folder: Path) -> None:
    for path in (folder / "state").rglob("*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)


def test_damaged_checkpoints_mean_the_one_before_or_an_end(
    tmp_path: Path,
    halfway: Callable,
    whole: Callable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = halfway(tmp_path / "run")
    damage(folder / "checkpoints" / "000006")
    go_on(LQR, folder)
    said = capsys.readouterr().err
    assert "checkpoint 000006: state/" in said
    assert "going on from the one before, 000003" in said
    compare(whole(LQR), folder)
    assert storage.read(folder).resumed[0]["updates"] == 3

    folder = halfway(tmp_path / "other")
    for number in ("000003", "000006"):
        damage(folder / "checkpoints" / number)
    with pytest.raises(StorageError, match="none of the checkpoints"):
        go_on(LQR, folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(StorageError, match="had checkpoints, and none is left"):
        go_on(LQR, folder)


def test_a_run_without_a_checkpoint_yet_starts_over(
    tmp_path: Path, whole: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        run.train(LQR, folder, 1, stop_at(4))
    go_on(LQR, folder, 1)
    assert "has no checkpoint yet; it starts over" in capsys.readouterr().err
    compare(whole(LQR), folder)


def test_checkpoints_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run.train(LQR, folder, 1, outputs=Outputs(checkpoints=False, checkpoint_interval=2))
    assert checkpoints.found(folder) == []
    assert isinstance(origin.resume(LQR, folder), origin.Finished)
    longer = dataclasses.replace(LQR, budget=20 * 128)
    with pytest.raises(StorageError, match="finished and has no checkpoint"):
        origin.resume(longer, folder, accept_changes=True)
    capsys.readouterr()


def test_checkpoints_by_time(tmp_path: Path) -> None:
    """So often that each chunk has one: 15 updates, and the one with meters."""
    folder = tmp_path / "run"
    run.train(LQR, folder, 1, outputs=Outputs(checkpoint_minutes=1e-9))
    rows = (folder / storage.METRICS).read_text().splitlines()
    saved = [json.loads(row)["checkpoint"] for row in rows if '"checkpoint"' in row]
    assert [row["updates"] for row in saved] == [15, 16]
    names = [path.name for path in checkpoints.found(folder)]
    assert names == ["000016", "000015"]


def call(path: Path, out: Path, **options: Any) -> int:
    return train.main(train.Arguments(path, out, **options))


def test_the_command(
    tmp_path: Path, halfway: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config_module.dumps(LQR))
    folder = halfway(tmp_path / "run")
    assert call(path, folder, devices=1) == 2
    assert "already holds a run; give another --out, or --resume" in (
        capsys.readouterr().err
    )
    assert call(path, folder, resume=True, json=True) == 0
    result = json.loads(capsys.readouterr().out)
    (folder / "run.nc").unlink()
    assert call(path, folder, resume=True, json=True) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == result
    assert "is finished; nothing to do" in captured.err
    assert (folder / "run.nc").exists()
    assert call(path, tmp_path / "new", resume=True, json=True, devices=1) == 0
    captured = capsys.readouterr()
    assert "holds no run yet; this starts one" in captured.err
    assert json.loads(captured.out)["score"] == result["score"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accept_changes": True}, "--accept-changes belongs to --resume"),
        ({"fresh_optimiser": True}, "--fresh-optimiser belongs to --from"),
        ({"outputs": Outputs(checkpoint_minutes=0.0)}, "--checkpoint-minutes 0 should"),
        ({"outputs": Outputs(checkpoint_minutes=float("nan"))}, "-minutes nan should"),
        ({"outputs": Outputs(checkpoint_interval=-1)}, "--checkpoint-interval -1"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, options: dict, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config_module.dumps(LQR))
    assert call(path, tmp_path / "run", **options) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_ends_the_run_and_it_can_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: Callable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While the second checkpoint is written, and while a row is."""
    path = tmp_path / "c.toml"
    path.write_text(config_module.dumps(LQR))
    folder = tmp_path / "run"
    save, append = snapshot.save, RunWriter.append

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def second(*args: Any, **how: Any) -> Path:
        with monkeypatch.context() as inside:
            if args[3].updates > 3:
                inside.setattr("os.fsync", full)
            return save(*args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "save", second)
        assert call(path, folder, devices=1, json=True, outputs=EVERY) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "No space left on device; what was written before is intact" in said
    found = checkpoints.newest_intact(folder, pytest.fail)
    assert found is not None
    assert found.counters.updates == 3

    def at_ten(self: RunWriter, row: Any) -> None:
        if row.get("updates") == 10:
            full()
        append(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "append", at_ten)
        options = {"resume": True, "json": True, "outputs": EVERY}
        assert call(path, folder, **options) == 2
    assert storage.read(folder).updates == 9
    assert call(path, folder, resume=True, json=True) == 0
    compare(whole(LQR), folder)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("done", "transitions"),
    [
        (2**24 - 4, 2**31 - 4 * 128),
        (2**25 - 4, 2**32 - 4 * 128),
        (2**31 - 10, 10**12 - 3 * 128),
    ],
)
def test_counters_past_2_31_and_at_1e12_are_exact(
    tmp_path: Path, done: int, transitions: int
) -> None:
    """T6: in state, log, checkpoints and run.nc; from a checkpoint made by hand."""
    import xarray as xr

    config = dataclasses.replace(LQR, budget=128 * (done + 8))
    assert config.updates <= MAX_COUNT
    folder = tmp_path / "run"
    counters = Counters(done, transitions, transitions + 1, 4 * done)
    log = RunWriter(folder, config, "0")
    log.append({**counters._asdict(), "outer_kl": [1.0]})
    log.close()
    compiled = program.compile_program(program.sizes_of(config), 1)
    state = compiled.start(keys.base_keys(0, 1))
    state = state._replace(update=jnp.full((1,), done, jnp.int32))
    snapshot.save(folder, config, state, counters, devices=1, code_version="0")
    go_on(config, folder)
    record = storage.read(folder)
    later = np.arange(9)
    used = transitions + 128 * later
    np.testing.assert_array_equal(record.transitions, used)
    np.testing.assert_array_equal(record.series["simulator_transitions"], used + 1)
    np.testing.assert_array_equal(record.series["updates"], done + later)
    steps = 4 * (done + later)
    np.testing.assert_array_equal(record.series["gradient_steps"], steps)
    checkpoint = checkpoints.at(folder, pytest.fail)
    assert checkpoint.counters == counters.after(config, 8)
    assert snapshot.read_arrays(checkpoint, "update")["update"] == [done + 8]
    assert f'"transitions": {transitions + 128 * 8},' in (
        (folder / storage.METRICS).read_text()
    )
    with xr.open_dataset(folder / "run.nc", engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["transitions"], used)
        np.testing.assert_array_equal(data["updates"], done + later)


def test_a_checkpoint_of_another_state_is_refused(
    tmp_path: Path, halfway: Callable
) -> None:
    """As one of another version of the code would be, whose state has more in it."""
    folder = halfway(tmp_path / "run")
    checkpoint = checkpoints.newest_intact(folder, pytest.fail)
    assert checkpoint is not None
    plan = origin.Continue(
        dataclasses.replace(
            checkpoint,
            leaves={**checkpoint.leaves, "more": checkpoints.Leaf((), "int32")},
        ),
        {},
    )
    with pytest.raises(StorageError, match=r"more is int32\[\] instead of left out"):
        run.train(LQR, folder, plan=plan)


def test_checkpoints_without_a_log_are_not_written_over(
    tmp_path: Path, halfway: Callable
) -> None:
    folder = halfway(tmp_path / "run")
    (folder / storage.METRICS).unlink()
    with pytest.raises(StorageError, match="holds checkpoints of another run"):
        run.train(LQR, folder, 1)


def test_devices_of_before_are_used_again(
    tmp_path: Path, halfway: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = origin.resume(LQR, halfway(tmp_path / "run"))
    assert isinstance(plan, origin.Continue)
    assert plan.checkpoint is not None
    assert run._devices(LQR, None, plan) == 1
    assert run._devices(LQR, 4, plan) == 4
    many = dataclasses.replace(plan.checkpoint, devices=64)
    assert run._devices(LQR, None, origin.Continue(many, {})) == 4
    assert "64 devices of before are not there" in capsys.readouterr().err
