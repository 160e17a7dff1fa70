"""TensorBoard and wandb: exact x axes, thinned curves, resumes, refusals."""

import struct
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import sinks, train
from fullscale.config import ConfigError, dumps
from fullscale.metrics import METRICS
from fullscale.sinks import Log, TensorBoard
from fullscale.storage import RunWriter, StorageError
from tests.support.trainer import SMALL_LQR

LARGE = 2**31 - 1, 2**31, 2**32 + 1, 10**12


def events(folder: Path) -> list[Any]:
    """All events of a run folder in the order in which TensorBoard reads them."""
    files = sorted((folder / sinks.TENSORBOARD).iterdir())
    return [event for file in files for event in records(file.read_bytes())]


def records(data: bytes) -> Iterator[Any]:
    """Events of a file; a twin of the writer, from the format's description."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    while data:
        length, check = struct.unpack("<QI", data[:12])
        body, rest = data[12 : 12 + length], data[12 + length :]
        assert check == masked_crc32c(data[:8])
        assert struct.unpack("<I", rest[:4])[0] == masked_crc32c(body)
        yield Event.FromString(body)
        data = rest[4:]


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag → (step, value)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def point(self, transitions: int, values: Mapping[str, float]) -> None:
        self.points.append((transitions, dict(values)))

    def close(self) -> None:
        self.closed = True


def row(update: int, entropy: float = 1.0, *, samples: int = 128) -> dict[str, Any]:
    values = [entropy, entropy + 1.0]
    return {"updates": update, "transitions": update * samples, "entropy": values}


def writer(folder: Path) -> RunWriter:
    return RunWriter(folder, SMALL_LQR, "test")


def test_steps_past_31_bits_are_exact(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for transitions in LARGE:
        board.point(transitions, {"entropy": 0.5})
    board.close()
    assert curves(tmp_path) == {"entropy": [(x, 0.5) for x in LARGE]}
    assert events(tmp_path)[0].file_version == "brain.Event:2"


def test_a_curve_says_once_what_it_is(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for transitions in (1, 2):
        board.point(transitions, {"outer_kl": 1.0, "made_up": 2.0})
    board.close()
    said = [
        v.metadata.summary_description
        for e in events(tmp_path)
        for v in e.summary.value
    ]
    assert said == [f"{METRICS['outer_kl'].meaning} [nats]", "", "", ""]


def test_a_resumed_run_voids_what_was_drawn_beyond_its_checkpoint(
    tmp_path: Path,
) -> None:
    from tensorboardX.proto.event_pb2 import SessionLog

    for done, points in ((0, (128, 256, 384)), (256, (384, 512))):
        board = TensorBoard(tmp_path, done)  # both within one second
        for transitions in points:
            board.point(transitions, {"entropy": float(done)})
        board.close()
    found = events(tmp_path)
    assert len(list((tmp_path / sinks.TENSORBOARD).iterdir())) == 2
    starts = [e.step for e in found if e.session_log.status == SessionLog.START]
    assert starts == [257]
    assert [s for s, _ in curves(tmp_path)["entropy"]] == [128, 256, 384, 384, 512]


@given(updates=st.integers(1, 60), stride=st.integers(1, 20))
def test_points_average_all_updates_since_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, updates: int, stride: int
) -> None:
    folder = tmp_path_factory.mktemp("log") / "run"
    sink = Recorder()
    log = Log(writer(folder), [sink], stride)
    values = np.random.default_rng(updates).normal(size=updates)
    for update, value in enumerate(values, start=1):
        log.append(row(update, value))
    log.append({"evaluation": {"score": [1.0, 3.0]}})
    log.close()
    *drawn, (last, evaluation) = sink.points
    firsts = range(0, updates, stride)
    ends = [min(first + stride, updates) for first in firsts]
    assert [x for x, _ in drawn] == [128 * end for end in ends]
    for (_, point), end, first in zip(
        drawn, ends, range(0, updates, stride), strict=True
    ):
        np.testing.assert_allclose(point["entropy"], values[first:end].mean() + 0.5)
        assert point["updates"] == end
    assert (last, evaluation) == (128 * updates, {"score": 2.0})
    assert sink.closed
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1 + updates + 1  # the log itself has every update


def test_a_stopped_run_draws_what_waits_and_closes_everything(tmp_path: Path) -> None:
    sinks_ = [Recorder(), Recorder()]
    log = Log(writer(tmp_path / "run"), sinks_, 10)
    log.append(row(1))
    log.append({"checkpoint": {"updates": 1}})  # not a point
    log.close()
    assert [sink.points for sink in sinks_] == [[(128, {**row(1), "entropy": 1.5})]] * 2
    assert all(sink.closed for sink in sinks_)


def test_an_evaluation_alone_is_drawn_where_the_run_went_on(tmp_path: Path) -> None:
    sink = Recorder()
    log = Log(writer(tmp_path / "run"), [sink], 1, transitions=10**12)
    log.append({"evaluation": {"score": [1.0]}})
    log.close()
    assert sink.points == [(10**12, {"score": 1.0})]


def test_long_runs_are_thinned(tmp_path: Path) -> None:
    import dataclasses

    config = dataclasses.replace(SMALL_LQR, budget=128 * 2_500)
    log = sinks.attach(writer(tmp_path / "run"), tmp_path / "run", config)
    for update in range(1, config.updates + 1):
        log.append(row(update))
    log.close()
    points = curves(tmp_path / "run")["entropy"]
    assert len(points) == 834  # of three updates each
    assert points[-1] == (config.transitions, 1.5)


class FakeRun:
    """What `wandb.init` returns."""

    def __init__(self) -> None:
        self.logged: list[dict] = []
        self.axes: list[tuple[str, str]] = []
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.append((name, step_metric))

    def log(self, values: dict) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


class FakeWandb(types.ModuleType):
    """Stands for the module."""

    class Error(Exception):
        pass

    def __init__(self, problem: str = "") -> None:
        super().__init__("wandb")
        self.problem = problem
        self.calls: list[dict] = []
        self.runs: list[FakeRun] = []

    def init(self, **options: object) -> FakeRun:
        if self.problem:
            raise self.Error(self.problem)
        self.calls.append(options)
        self.runs.append(FakeRun())
        return self.runs[-1]


def test_wandb_gets_the_same_points_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    folder = tmp_path / "run"
    log = sinks.attach(writer(folder), folder, SMALL_LQR, wandb="outer")
    log.append(row(1))
    log.close()
    reopened = RunWriter.reopen(folder, 1)
    sinks.attach(reopened, folder, SMALL_LQR, transitions=128, wandb="outer").close()
    first, second = fake.calls
    assert first["project"] == "outer"
    assert first["config"]["num_envs"] == SMALL_LQR.num_envs
    assert first["config"]["max_grad_norm"] == "inf"
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert fake.runs[0].axes == [("*", "transitions")]
    assert fake.runs[0].logged == [{**row(1), "entropy": 1.5}]
    assert all(run.finished for run in fake.runs)


def test_another_run_of_the_same_configuration_is_another_run_of_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for name in ("a", "b"):
        folder = tmp_path / name
        sinks.attach(writer(folder), folder, SMALL_LQR, wandb="outer").close()
    assert fake.calls[0]["id"] != fake.calls[1]["id"]


def test_wandb_is_imported_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it fails
    sinks.attach(writer(tmp_path / "run"), tmp_path / "run", SMALL_LQR).close()
    with pytest.raises(ConfigError, match=r"extra 'wandb'.*\[wandb\]"):
        sinks.require_wandb()


def test_what_wandb_refuses_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb("api_key not configured"))
    log = writer(tmp_path / "run")
    with pytest.raises(StorageError, match=r"--wandb 'outer': api_key not configured"):
        sinks.attach(log, tmp_path / "run", SMALL_LQR, wandb="outer")
    RunWriter.reopen(tmp_path / "run", 0).close()  # nobody holds the log


def test_the_command_refuses_wandb_before_it_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (tmp_path / "c.toml").write_text(dumps(SMALL_LQR))
    arguments = train.Arguments(
        tmp_path / "c.toml", tmp_path / "run", outputs=train.Outputs(wandb="outer")
    )
    assert train.main(arguments) == 2
    assert "extra 'wandb'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
