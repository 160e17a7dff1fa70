"""Run folders, calibrations and commands for the tests of `bridge`, without JAX."""

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fullscale.config import RunConfig
from fullscale.storage import RunWriter
from theory import calibration
from theory.calibration import Calibration

OPTIMUM = -2.0


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


def call(main: Callable[[Sequence[str]], int], *arguments: object) -> Outcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def assert_refused(outcome: Outcome, *words: str) -> None:
    """Exit 2, nothing on stdout, and one sentence that holds the words."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    for word in words:
        assert word in outcome.err, outcome.err


def lqr_calibration(**truth: object) -> Calibration:
    """A synthetic calibration that speaks of `lqr`; see `Calibration.synthetic`."""
    values = {"asymptote": OPTIMUM, "num_draws": 100, **truth}
    made = Calibration.synthetic(**values)  # type: ignore[arg-type]
    return dataclasses.replace(made, name="lqr-synthetic", domain="lqr")


def calibration_file(folder: Path, **truth: object) -> Path:
    """The same as a file."""
    path = folder / "calibration.json"
    calibration.save(lqr_calibration(**truth), path)
    return path


def write_run(
    folder: Path, config: RunConfig, scores: Sequence[float], *, finished: bool = True
) -> Path:
    """A run folder with one logged update (the last) and these final scores."""
    writer = RunWriter(folder, config, "test")
    row = {"updates": config.updates, "transitions": config.transitions}
    writer.append({**row, "outer_kl": [1e-3] * config.num_seeds})
    if finished:
        writer.append({"evaluation": {"score": list(scores)}})
    writer.close()
    return folder
