"""Studies: their files, effects and verdicts; a killed study ends as another does."""

import dataclasses
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bridge import study as command
from bridge.errors import UsageError
from bridge.studies import effects, measures, reading
from bridge.studies.study import Effect
from fullscale.presets import preset
from fullscale.storage import RunRecord
from tests.support.runs import assert_refused, call

ROOT = Path(__file__).parents[1]
SMALL = """
question = "Is the second like the first?"
claim = "None."
scientific = ["outer_learning_rate"]
[scale.laptop.bandit]
budget = 8192
num_envs = 128
minibatch_size = 64
num_seeds = 2
meter_interval = 0
evaluation_episodes = 8
[arm.first]
[arm.again]
parent = "first"
[arm.half]
outer_learning_rate = "/2"
[[effect]]
name = "half the step"
measure = "gap"
comparison = "ratio"
arms = ["half", "first"]
predicted = 1.0
low = 0.1
high = 10.0
source = "a test"
"""


def ratio(**changes: object) -> Effect:
    whole = Effect(
        name="e", task="lqr", measure="score", comparison="ratio", arms=("a", "b"),
        predicted=1.0, low=0.8, high=1.25, source="s",
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]


preset = functools.lru_cache(preset)


def record(scores: object, **knobs: object) -> RunRecord:
    score = np.asarray(scores, dtype=float)
    return RunRecord(
        config=preset("lqr", 4096, num_seeds=len(score), **knobs),
        started="",
        code_version="",
        transitions=np.array([2048, 4096]),
        metrics={"outer_kl": np.tile(1.0 / score**2, (2, 1))},
        evaluation={"score": score},
    )


@pytest.mark.parametrize("scale", reading.SCALES)
@pytest.mark.parametrize("name", reading.names())
def test_every_shipped_study_reads_and_says_its_numbers(name: str, scale: str) -> None:
    study = reading.load(reading.find(name), scale)
    assert study.cells
    assert study.effects
    if scale == "laptop":
        tasks = {cell.task for cell in study.cells}
        assert tasks >= {"lqr", "reacher"}
        assert tasks == {effect.task for effect in study.effects}
    for cell in study.cells:
        assert cell.config.environment == cell.task
        assert cell.config.num_seeds >= 5
    scales = [reading.load(reading.find(name), s).record()["sha256"] for s in
              reading.SCALES]  # fmt: skip
    assert len(set(scales)) == 3


def test_what_studies_refuse(tmp_path: Path) -> None:
    changes = {
        "unknown key 'arms2'": ('arms = ["half"', 'arms2 = ["half"'),
        "no arm 'hal'": ('["half", "first"]', '["hal", "first"]'),
        "unknown measure 'gapp'": ('"gap"', '"gapp"'),
        "should lie between": ("predicted = 1.0", "predicted = 11.0"),
        "of 2 arms, not of 1": ('["half", "first"]', '["half"]'),
        "an arm above it": ('parent = "first"', 'parent = "half"'),
        "should scale a number": ('"/2"', '"/zero"'),
        "unknown configuration key": ("num_envs = 128", "num_env = 128"),
        "lacks the key 'claim'": ('claim = "None."', ""),
        "not valid TOML": ("budget = 8192", "budget = "),
        "needs x": ('"ratio"', '"slope"'),
    }
    for sentence, (old, new) in changes.items():
        path = tmp_path / "s.toml"
        path.write_text(SMALL.replace(old, new, 1))
        assert path.read_text() != SMALL
        with pytest.raises(UsageError, match=sentence):
            reading.load(path, "laptop")
    assert_refused(call(command.main, "checkpoint-swich"), "checkpoint-switch")
    assert_refused(call(command.main, "ddr", "--scale", "desk"), "desk")
    assert_refused(call(command.main, tmp_path / "no.toml"), "no.toml")
    with pytest.raises(UsageError, match="needs a known optimum"):
        measures.check("gap", "reacher")


def test_the_plan_runs_nothing(tmp_path: Path) -> None:
    said = call(command.main, "ddr", "--plan", "--json", "--out", tmp_path / "O")
    assert said.code == 0
    assert json.loads(said.out)["sha256"]
    assert not (tmp_path / "O").exists()


@given(
    st.lists(st.floats(0.1, 10), min_size=5, max_size=9),
    st.floats(0.1, 10),
    st.floats(0.5, 2),
)
def test_a_ratio_does_not_depend_on_the_unit(
    scores: list[float], unit: float, factor: float
) -> None:
    one, two = record(scores), record(np.array(scores) * factor)
    scaled = record(np.array(scores) * unit), record(np.array(scores) * factor * unit)
    seen = effects.per_seed(ratio(), (two, one))
    assert np.allclose(seen, np.log(factor), atol=1e-9)
    assert np.allclose(seen, effects.per_seed(ratio(), scaled[::-1]), atol=1e-9)


def test_effects_against_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.lognormal(m, 0.1, 8) for m in (0.0, 0.1, 0.5))
    runs = {("lqr", k): record(v) for k, v in zip("abc", (a, b, c), strict=True)}
    found = effects.judge(ratio(), runs, 2)
    t = stats.ttest_1samp(np.log(a / b), 0.0).confidence_interval(0.95)
    assert found.low == pytest.approx(math.exp(t.low))
    assert found.high == pytest.approx(math.exp(t.high))
    slope = ratio(
        comparison="slope", arms=("a", "b", "c"), x="ddr", predicted=0.5, low=0.4,
        high=0.6,
    )  # fmt: skip
    # DDR = 2048·score² here, so that log score has slope ½ on it, in every seed.
    assert effects.judge(slope, runs, 1).verdict == "survived"
    away = dataclasses.replace(slope, predicted=0.8, low=0.7, high=0.9)
    assert effects.judge(away, runs, 1).verdict == "falsified"
    by_hand = [
        stats.linregress(np.log(2048 * x**2), np.log(x)).slope
        for x in np.array([a, b, c]).T
    ]
    seen = effects.per_seed(slope, [runs["lqr", k] for k in "abc"])
    assert np.allclose(seen, by_hand)


def test_verdicts() -> None:
    level = ratio(comparison="value", arms=("a",), predicted=0.0, low=-1.0, high=1.0)

    def verdict(scores: object) -> str:
        return effects.judge(level, {("lqr", "a"): record(scores)}, 1).verdict

    assert verdict([0.1, 0.2, 0.3, 0.2, 0.1]) == "survived"
    assert verdict([5.1, 5.2, 5.3, 5.2, 5.1]) == "falsified"
    assert verdict([1.1, 0.9, 1.0, 1.2, 0.8]) == "inconclusive"
    assert verdict([0.1]) == "inconclusive"
    gone = effects.judge(level, {}, 1)
    assert (gone.verdict, gone.reason) == ("inconclusive", "a diverged")
    below = {("lqr", "a"): record([-1.0, 1]), ("lqr", "b"): record([1.0, 1])}
    assert effects.judge(ratio(), below, 1).verdict == "inconclusive"
    good, bad = (effects.Finding(effect=level, verdict=v) for v in
                 ("survived", "falsified"))  # fmt: skip
    assert effects.overall([good, gone]) == "inconclusive"
    assert effects.overall([good, good]) == "survived"
    assert effects.overall([good, gone, bad]) == "falsified"


def test_error_rates() -> None:
    """Of 2,000 studies of one effect at the end of its range, 5 % may survive.

    Seen counts are binomial; 4.9 standard deviations are allowed (rate 1e-6).
    """
    rng = np.random.default_rng(1)
    level = ratio(comparison="value", arms=("a",), predicted=0.0, low=-9.0, high=1.0)
    verdicts = [
        effects.judge(level, {("lqr", "a"): record(rng.normal(1.0, 1.0, 6))}, 1).verdict
        for _ in range(2000)
    ]
    reach = 4.9 * math.sqrt(2000 * 0.05 * 0.95)
    assert abs(verdicts.count("survived") - 100) < reach
    assert verdicts.count("falsified") < 10 + 4.9 * math.sqrt(10)


def test_a_killed_study_ends_as_another_does(tmp_path: Path) -> None:
    """kill −9 in the middle: the same three files, and no finished cell run again."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)

    def start(out: str) -> subprocess.Popen:
        words = ["-m", "bridge.study", str(path), "--out", str(tmp_path / out)]
        return subprocess.Popen(
            [sys.executable, *words, "--devices", "1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    first = tmp_path / "killed" / "small-laptop" / "runs" / "bandit" / "first"
    killed = start("killed")
    while not (first.parent / "again").exists():
        assert killed.poll() is None
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    log = (first / "metrics.jsonl").read_bytes()
    assert start("killed").wait() == 0
    assert (first / "metrics.jsonl").read_bytes() == log
    assert start("whole").wait() == 0
    for end in ("md", "json", "svg"):
        name = f"small-laptop/small-laptop.{end}"
        one, two = (tmp_path / f / name for f in ("killed", "whole"))
        assert one.read_bytes() == two.read_bytes()
    assert json.loads(one.with_suffix(".json").read_text())["verdict"]
    path.write_text(SMALL.replace("predicted = 1.0", "predicted = 2.0"))
    assert start("killed").wait() == 2  # a prediction is never edited
