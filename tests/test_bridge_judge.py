"""`bridge.judge`: the rule in the prediction, its error rates, and what is refused."""

import dataclasses
import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import judge, prediction, record
from bridge.answer import Request, answer
from bridge.domains import DATA, Domain, find
from bridge.observation import observe
from bridge.prediction import Prediction
from bridge.predictive import Predictive
from bridge.rule import (
    FALSIFIED,
    INCONCLUSIVE,
    SURVIVED,
)
from fullscale.config import RunConfig
from tests.support.runs import Outcome, assert_refused, call, lqr_calibration, write_run

BUDGET, SEEDS = 16 * 10**6, 5  # four times the largest trained budget
CALIBRATION = lqr_calibration(num_draws=400)
LQR = Domain(name="lqr", environment="lqr", basis=DATA, calibration=CALIBRATION)
MADE = record.predict(answer(Request(budget=BUDGET, num_seeds=SEEDS), LQR))
PRIOR = record.predict(
    answer(Request(budget=10**12, num_seeds=SEEDS), find(None, None))
)
BEST = MADE.config.num_envs


def cell_of(made: Prediction) -> tuple[Predictive, Predictive]:
    cell = made.cell(made.config.num_envs)
    assert cell.predictive is not None
    assert cell.null is not None
    return cell.predictive, cell.null


def placed(made: Prediction, folder: Path) -> Path:
    path = folder / "prediction.json"
    path.write_text(prediction.dumps(made))
    return path


def run(
    folder: Path, name: str, score: float, config: RunConfig | None = None, **how: bool
) -> Path:
    """A run of the prediction whose seeds scatter a little around a mean score."""
    config = config or MADE.run_config()
    around = 1e-5 * (np.arange(config.num_seeds) - (config.num_seeds - 1) / 2)
    return write_run(folder / name, config, (score + around).tolist(), **how)


def judged(folder: Path, *runs: Path, made: Prediction = MADE) -> Outcome:
    return call(judge.main, placed(made, folder), *runs, "--json")


# Runs ------------------------------------------------------------------------------


def test_survived(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    outcome = judged(tmp_path, run(tmp_path, "R", said.quantile(0.5)))
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.json["verdict"] == SURVIVED
    (cell,) = outcome.json["cells"]
    assert cell["num_envs"] == BEST
    assert cell["seeds"] == SEEDS
    assert cell["score"] == pytest.approx(said.quantile(0.5))
    assert cell["ddr"] == pytest.approx(MADE.config.samples_per_update / 1e-3)
    assert outcome.json["false_falsification_rate"] == 0.01


def test_words_say_observed_and_predicted(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    path = placed(MADE, tmp_path)
    out = call(judge.main, path, run(tmp_path, "R", said.quantile(0.5))).out
    assert out.startswith("survived: ")
    for words in ("observed -2.0", "predicted -2.0", "99%", "Rule", "persistence"):
        assert words in out


@pytest.mark.parametrize("sign", [-1, 1])
def test_falsified_on_either_side(sign: int, tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    far = said.score(said.centre + sign * 5 * said.spread)
    assert judged(tmp_path, run(tmp_path, "R", far)).json["verdict"] == FALSIFIED


def test_a_score_above_the_optimum_falsifies(tmp_path: Path) -> None:
    outcome = judged(tmp_path, run(tmp_path, "R", -1.0))
    assert outcome.json["verdict"] == FALSIFIED
    assert outcome.json["cells"][0]["deviation"] is None


def test_a_diverged_seed_falsifies(tmp_path: Path) -> None:
    config = MADE.run_config()
    folder = write_run(tmp_path / "R", config, [-2.01] * 4 + [math.nan])
    outcome = judged(tmp_path, folder)
    assert outcome.json["verdict"] == FALSIFIED
    assert outcome.json["cells"][0]["score"] is None
    assert call(judge.main, placed(MADE, tmp_path), folder).code == 0


def test_an_unfinished_run_decides_nothing(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -3.0, finished=False)
    outcome = judged(tmp_path, folder)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "not finished" in outcome.json["reason"]
    assert outcome.json["cells"][0]["unfinished"] == [str(folder)]
    assert "no finished run" in call(judge.main, placed(MADE, tmp_path), folder).out


def test_a_run_that_stopped_early_is_unfinished(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -3.0)
    log = folder / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    row = json.loads(lines[1])
    row["transitions"] -= MADE.config.samples_per_update
    lines[1] = json.dumps(row) + "\n"
    log.write_text("".join(lines))
    assert judged(tmp_path, folder).json["verdict"] == INCONCLUSIVE


def test_too_few_seeds_decide_nothing_and_can_be_added(tmp_path: Path) -> None:
    said, _ = cell_of(MADE)
    middle = said.quantile(0.5)
    first = run(tmp_path, "A", middle, MADE.run_config(num_seeds=3))
    outcome = judged(tmp_path, first)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "3 seeds" in outcome.json["reason"]
    rest = run(tmp_path, "B", middle, MADE.run_config(num_seeds=2, seed=3))
    assert judged(tmp_path, first, rest).json["verdict"] == SURVIVED


def test_a_seed_counts_once(tmp_path: Path) -> None:
    first = run(tmp_path, "A", -2.01, MADE.run_config(num_seeds=3))
    again = run(tmp_path, "B", -2.01, MADE.run_config(num_seeds=3, seed=2))
    assert_refused(judged(tmp_path, first, again), "seed 2", "both")
    assert_refused(judged(tmp_path, first, first), "seed 0")


def test_several_numbers_of_environments(tmp_path: Path) -> None:
    other = BEST // 4
    said = MADE.cell(other).predictive
    assert said is not None
    far = said.score(said.centre - 5 * said.spread)
    here = run(tmp_path, "A", cell_of(MADE)[0].quantile(0.5))
    there = run(tmp_path, "B", far, MADE.run_config(num_envs=other))
    outcome = judged(tmp_path, here, there)
    assert outcome.json["verdict"] == FALSIFIED
    assert [cell["num_envs"] for cell in outcome.json["cells"]] == [other, BEST]


# Refusals --------------------------------------------------------------------------


def test_another_predictions_run_is_refused(tmp_path: Path) -> None:
    other = dataclasses.replace(MADE, domain="other")
    for config, words in (
        (other.run_config(), other.sha256[:12]),
        (MADE.config, "no prediction"),
    ):
        folder = run(tmp_path, words, -2.01, config)
        assert_refused(judged(tmp_path, folder), words, MADE.sha256[:12])


def test_a_hash_added_after_the_run_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -2.01, MADE.config)
    config = folder / "config.toml"
    text = config.read_text()
    assert 'prediction = ""' in text
    config.write_text(text.replace('prediction = ""', f'prediction = "{MADE.sha256}"'))
    assert_refused(judged(tmp_path, folder), "no prediction")


def test_a_run_from_before_the_prediction_is_refused(tmp_path: Path) -> None:
    late = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    made = dataclasses.replace(MADE, date=late.isoformat())
    folder = run(tmp_path, "R", -2.01, made.run_config())
    assert_refused(judged(tmp_path, folder, made=made), "before", late.isoformat())


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", 1e-3), ("budget", 10**6), ("clip_epsilon", 0.1),
     ("outer_learning_rate", 0.5), ("update_epochs", 1), ("rollout_length", 64),
     ("evaluation_episodes", 10)],
)  # fmt: skip
def test_a_changed_fixed_knob_is_named(key: str, value: float, tmp_path: Path) -> None:
    changes: dict[str, Any] = {key: value}
    config = dataclasses.replace(MADE.run_config(), **changes)
    folder = run(tmp_path, "R", -2.01, config)
    assert_refused(judged(tmp_path, folder), f"{key} = {value!r}", "fixes")


def test_an_uncovered_number_of_environments_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(MADE.run_config(), num_envs=48)
    folder = run(tmp_path, "R", -2.01, config)
    assert_refused(judged(tmp_path, folder), "num_envs = 48", "covers")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", -2.01)
    assert_refused(judged(tmp_path, tmp_path / "none"), "none")
    assert_refused(call(judge.main, tmp_path / "no.json", folder), "no.json")
    path = placed(MADE, tmp_path)
    assert_refused(call(judge.main, path), "RUN")
    path.write_text(path.read_text().replace("persistence", "persistance", 1))
    assert_refused(call(judge.main, path, folder), "damaged or was edited")
    log = folder / "metrics.jsonl"
    log.write_text("{" + log.read_text())
    assert_refused(judged(tmp_path, folder), "damaged at line 1")


# A prior ---------------------------------------------------------------------------


def test_one_run_cannot_decide_about_a_prior(tmp_path: Path) -> None:
    folder = run(tmp_path, "R", 0.9, PRIOR.run_config())
    outcome = judged(tmp_path, folder, made=PRIOR)
    assert outcome.json["verdict"] == INCONCLUSIVE
    assert "no score" in call(judge.main, placed(PRIOR, tmp_path), folder).out


def test_observations_come_by_increasing_number(tmp_path: Path) -> None:
    folders = [
        run(tmp_path, str(n), -2.01, MADE.run_config(num_envs=n)) for n in (256, 64)
    ]
    assert [seen.num_envs for seen in observe(MADE, folders)] == [64, 256]
    assert observe(MADE, folders)[0].standard_error == pytest.approx(
        float(np.std(1e-5 * np.arange(5), ddof=1) / math.sqrt(5))
    )
