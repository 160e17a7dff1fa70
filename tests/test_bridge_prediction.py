"""The prediction on record: whole, verified, never edited; files both or neither."""

import contextlib
import dataclasses
import datetime
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import prediction, record
from bridge.answer import Request, answer
from bridge.domains import DATA, Domain, find
from bridge.prediction import Prediction, PredictionError
from bridge.predictive import NORMAL, Predictive, envelope
from fullscale import config as config_module
from tests.support.runs import lqr_calibration

PRIOR = record.predict(answer(Request(budget=10**12, num_seeds=3), find(None, None)))
SCORED = record.predict(
    answer(
        Request(budget=16 * 10**6, num_seeds=5),
        Domain(
            name="lqr",
            environment="lqr",
            basis=DATA,
            calibration=lqr_calibration(),
        ),
    )
)
BOTH = pytest.mark.parametrize("made", [PRIOR, SCORED], ids=["prior", "scored"])
TEXT = prediction.dumps(SCORED).encode()


def written(made: Prediction, folder: Path) -> Path:
    path = folder / "prediction.json"
    path.write_text(prediction.dumps(made))
    return path


@BOTH
def test_reading_gives_back_what_was_written(made: Prediction, tmp_path: Path) -> None:
    read = prediction.load(written(made, tmp_path))
    assert read.payload() == made.payload()
    assert read.sha256 == made.sha256
    assert read.config == dataclasses.replace(made.config, prediction="")
    assert read.cells == made.cells
    assert read.rule == made.rule
    assert prediction.dumps(read) == prediction.dumps(made)


@BOTH
def test_a_reader_without_this_code_can_check_the_hash(made: Prediction) -> None:
    import hashlib

    content = json.loads(prediction.dumps(made))
    stated = content.pop("sha256")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == stated
    assert content["format"] == "ppo-outer-loop/prediction"
    assert content["version"] == 1
    assert content["config_hash"] == made.config.content_hash()


def test_what_a_scored_prediction_says() -> None:
    content = json.loads(prediction.dumps(SCORED))
    assert content["basis"] == "data"
    assert content["inputs"]["calibration_hash"] == lqr_calibration().content_hash
    assert content["calibration"]["name"] == "lqr-synthetic"
    assert set(content["config"]) == set(config_module.field_names()) - {"prediction"}
    assert content["config"]["max_grad_norm"] == "inf"
    sizes = [cell["num_envs"] for cell in content["cells"]]
    assert sizes == sorted(sizes)
    assert content["config"]["num_envs"] in sizes
    for cell in content["cells"]:
        quantiles = list(cell["predictive"]["quantiles"].values())
        assert quantiles == sorted(quantiles)
        assert cell["predictive"]["scale"] == "-ln(optimum - score)"
        assert quantiles[0] < cell["mean"] < quantiles[-1]
        assert cell["sd"] > 0
    assert "4000000 transitions" in content["null"]
    rule = content["rule"]
    assert rule["min_seeds"] == 5
    assert f"{rule['false_falsification_rate']:.2g}" in rule["words"]
    assert f"{rule['false_survival_rate']:.2g}" in rule["words"]
    assert datetime.datetime.fromisoformat(content["date"]).utcoffset() is not None


def test_what_a_prior_prediction_says() -> None:
    content = json.loads(prediction.dumps(PRIOR))
    assert content["basis"] == "prior"
    assert all(cell["predictive"] is None for cell in content["cells"])
    low, high = content["best_num_envs"]
    assert 1024 < low < 65_536 < 2**20 < high
    assert content["rule"]["false_survival_rate"] == 0.0
    assert "cannot survive" in content["rule"]["words"]


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SCORED.date = "1970-01-01"  # type: ignore[misc]


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(Prediction) if f.name != "config"]
)
def test_every_field_is_hashed(field: str, tmp_path: Path) -> None:
    content = json.loads(prediction.dumps(SCORED))
    content[field] = "edited"
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PredictionError, match="damaged or was edited"):
        prediction.load(path)


@settings(max_examples=60)
@given(
    position=st.integers(0, len(TEXT) - 1),
    byte=st.integers(0, 255),
)
def test_a_changed_byte_is_seen_or_means_nothing(
    position: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("p") / "p.json"
    path.write_bytes(TEXT[:position] + bytes([byte]) + TEXT[position + 1 :])
    with contextlib.suppress(PredictionError):
        assert prediction.load(path).payload() == SCORED.payload()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[1]", "not a prediction"),
        ('{"format": "other"}', "not a prediction"),
        ('{"format": "ppo-outer-loop/prediction", "version": 2}', "version 2"),
        (TEXT.decode()[:-200], "not JSON"),
    ],
)
def test_what_is_not_a_prediction(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(PredictionError, match=words):
        prediction.load(path)


def test_a_whole_hash_over_half_a_prediction(tmp_path: Path) -> None:
    content = SCORED.payload()
    del content["rule"]
    content["sha256"] = prediction.content_hash(content)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PredictionError, match="not a whole prediction: 'rule'"):
        prediction.load(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match="No such file"):
        prediction.load(tmp_path / "p.json")


def test_only_free_knobs_can_be_changed() -> None:
    config = SCORED.run_config(num_envs=64, seed=7, num_seeds=2)
    assert (config.num_envs, config.seed, config.num_seeds) == (64, 7, 2)
    assert config.prediction == SCORED.sha256
    with pytest.raises(PredictionError, match="not covered"):
        SCORED.run_config(num_envs=48)


@given(
    optimum=st.none() | st.floats(-10, 10),
    centre=st.floats(-5, 5),
    spread=st.floats(0.01, 3),
    level=st.floats(0.001, 0.999),
)
def test_quantile_and_position_are_inverse(
    optimum: float | None, centre: float, spread: float, level: float
) -> None:
    made = Predictive(optimum=optimum, centre=centre, spread=spread)
    score = made.quantile(level)
    expected = centre + spread * NORMAL.inv_cdf(level)
    assert made.position(score) == pytest.approx(expected, abs=1e-6)
    assert made.deviation(score) == pytest.approx(NORMAL.inv_cdf(level), abs=1e-4)
    low, high = made.interval(0.8)
    assert low <= made.quantile(0.5) <= high
    assert Predictive.from_json(json.loads(json.dumps(made.to_json()))) == made


@given(
    shape=st.floats(0.2, 5.0), sign=st.sampled_from([-1.0, 1.0]), tails=st.booleans()
)
def test_no_interval_of_the_draws_sticks_out(
    shape: float, sign: float, *, tails: bool
) -> None:
    rng = np.random.default_rng(0)
    draws = sign * (rng.standard_t(2, 400) if tails else rng.gamma(shape, size=400))
    made = envelope(draws)
    for level in (0.8, 0.99):
        low, high = made.interval(level)
        assert low <= np.quantile(draws, (1 - level) / 2) + 1e-9
        assert high >= np.quantile(draws, (1 + level) / 2) - 1e-9
    assert made.quantile(0.5) == pytest.approx(np.median(draws))


def test_an_envelope_of_normal_draws_is_as_wide_as_they_are() -> None:
    draws = np.array([NORMAL.inv_cdf((i + 0.5) / 2000) for i in range(2000)])
    assert envelope(3.0 + 0.2 * draws).spread == pytest.approx(0.2, rel=0.01)
    with pytest.raises(ValueError, match="not finite"):
        envelope(np.array([1.0, np.inf]))
    assert envelope(np.ones(5)).spread > 0


def test_the_density_integrates_to_one() -> None:
    made = Predictive(optimum=1.0, centre=0.3, spread=0.7)
    positions = [0.3 + 0.01 * i for i in range(-700, 700)]
    total = sum(math.exp(made.log_density(made.score(u))) * 0.01 for u in positions)
    assert total == pytest.approx(1.0, rel=1e-6)
