"""What runs say about a prediction: their scores, pooled by number of environments.

A run counts if it carries the prediction's hash since its start, started after the
prediction's date, and has every fixed knob at the predicted value. One that does not is
refused, by name: a verdict on other runs would be about nothing.
"""

import dataclasses
import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import UsageError
from bridge.prediction import FREE_KEYS, Prediction
from fullscale import storage
from fullscale.config import RunConfig
from fullscale.storage import RunRecord


@dataclass(frozen=True, kw_only=True)
class Observation:
    """All runs with one number of environments.

    Attributes:
        num_envs: N.
        scores: per seed, in score units; −inf where a seed has no finite score.
        ddr: DDR of the whole run per seed, transitions per nat.
        unfinished: folders of runs that have no final score yet.
    """

    num_envs: int
    scores: tuple[float, ...]
    ddr: tuple[float, ...]
    unfinished: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean score over the seeds."""
        return sum(self.scores) / len(self.scores) if self.scores else math.nan

    @property
    def standard_error(self) -> float | None:
        """Of that mean, over the seeds; None where it cannot be estimated."""
        count = len(self.scores)
        if count < 2 or not math.isfinite(self.mean):
            return None
        variance = sum((score - self.mean) ** 2 for score in self.scores) / (count - 1)
        return math.sqrt(variance / count)


def observe(prediction: Prediction, folders: Sequence[Path]) -> tuple[Observation, ...]:
    """Read runs and pool them, by increasing N.

    Raises:
        StorageError: a folder is not a run, or is damaged.
        UsageError: a run does not test this prediction, or a seed occurs twice.
    """
    runs: dict[int, list[tuple[Path, RunRecord]]] = {}
    seen: dict[tuple[int, int], Path] = {}
    for folder in folders:
        run = storage.read(folder)
        _check(prediction, run, folder)
        for seed in _seeds(run.config):
            key = (run.config.num_envs, seed)
            if key in seen:
                raise UsageError(
                    f"seed {seed} of num_envs = {key[0]} is in both "
                    f"{str(seen[key])!r} and {str(folder)!r}; give each seed once"
                )
            seen[key] = folder
        runs.setdefault(run.config.num_envs, []).append((folder, run))
    return tuple(_pool(num_envs, runs[num_envs]) for num_envs in sorted(runs))


def _check(prediction: Prediction, run: RunRecord, folder: Path) -> None:
    """Refuse a run that does not test this prediction."""
    name = repr(str(folder))
    stated = {run.config.prediction, _stated_at_start(folder)}
    if stated != {prediction.sha256}:
        other = next(iter(stated - {prediction.sha256}))
        what = f"the prediction {other[:12]}" if other else "no prediction"
        raise UsageError(
            f"the run {name} tests {what}, not this one, {prediction.sha256[:12]}; "
            "train the config.toml that was written with it"
        )
    if _time(run.started, name) < _time(prediction.date, "the prediction"):
        raise UsageError(
            f"the run {name} started at {run.started}, before the prediction's date "
            f"{prediction.date}; it cannot test it"
        )
    for key, value in dataclasses.asdict(prediction.config).items():
        ours = getattr(run.config, key)
        if key not in FREE_KEYS and ours != value:
            raise UsageError(
                f"the run {name} has {key} = {ours!r}; the prediction fixes {value!r}"
            )


def _stated_at_start(folder: Path) -> str:
    """The hash in the log's first line: config.toml could be edited later."""
    with (folder / storage.METRICS).open("rb") as file:
        return str(json.loads(file.readline()).get("prediction", ""))


def _time(text: str, name: str) -> datetime.datetime:
    try:
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    except ValueError:
        raise UsageError(f"{name} has the unreadable time {text!r}") from None


def _seeds(config: RunConfig) -> range:
    return range(config.seed, config.seed + config.num_seeds)


def _pool(num_envs: int, runs: Sequence[tuple[Path, RunRecord]]) -> Observation:
    finished = [run for _, run in runs if _is_finished(run)]
    scores = [float(s) for run in finished for s in run.evaluation["score"]]
    return Observation(
        num_envs=num_envs,
        scores=tuple(s if math.isfinite(s) else -math.inf for s in scores),
        ddr=tuple(d for run in finished for d in _ddr(run)),
        unfinished=tuple(str(f) for f, run in runs if not _is_finished(run)),
    )


def _is_finished(run: RunRecord) -> bool:
    """Whether the run used its transitions and was evaluated."""
    if not run.finished or "score" not in run.evaluation or not run.updates:
        return False
    return int(run.transitions[-1]) == run.config.transitions


def _ddr(run: RunRecord) -> list[float]:
    return run.ddr().tolist() if "outer_kl" in run.metrics else []
