"""`theory.calibration` and `theory.forecast`: the sidecar, and what it forecasts."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import positive_floats
from theory import calibration, sidecar
from theory.calibration import Calibration, CalibrationError
from theory.ddr_map import DdrMap, KnobValues
from theory.forecast import LAW_PARAMETERS, Model, Parameters, seed_share

SYNTHETIC = Calibration.synthetic(
    exponent_sd=0.1,
    num_draws=50,
    fixed={"minibatch_size": 512, "max_grad_norm": math.inf},
)
ROWS = {
    "joint": [[0.01, 2000.0, 12.0, 2.0], [0.0, 1500.0, 11.0, 1.8]],
    "free": [[0.0, 20.0, 8.0, 1.0, 0.5, 0.5], [0.001, 15.0, 9.0, 0.9, 0.4, 0.55]],
    "saturating": [[0.0, 4.0, 12.0, 0.08, 9.0], [0.001, 5.0, 11.0, 0.1, 3.0]],
}


def made(
    family: str, *, asymptote: str = "known", law_ddr: str = "limit"
) -> Calibration:
    """A calibration of any form with two draws, whose numbers are written out above."""
    ddr_map = DdrMap(
        terms=("num_envs", "outer_learning_rate"),
        transient_terms=("num_envs",),
        centres={"num_envs": 64.0, "outer_learning_rate": 1.0},
    )
    parameters = Parameters(
        ddr_map=np.array([[14.0, 1.2, -2.0, 12.0, 0.3], [14.1, 1.1, -1.9, 12.1, 0.2]]),
        pace=np.array([[-0.3], [-0.2]]),
        law=np.array(ROWS[family]),
        asymptote=np.array([-2.0, -2.0]),
        config_sd=np.array([0.05, 0.06]),
        seed_sd=np.array([0.3, 0.3]),
        ddr_sd=np.array([0.1, 0.1]),
    )
    return dataclasses.replace(
        SYNTHETIC,
        model=Model(
            ddr_map=ddr_map,
            family=family,
            law_ddr=law_ddr,
            asymptote=asymptote,
            pace_terms=("num_envs",),
        ),
        point=calibration.rows(parameters, slice(0, 1)),
        draws=parameters,
        fixed={"rollout_length": 32, "com": "reset"},
        varied={"num_envs": (16.0, 64.0), "outer_learning_rate": (0.5, 1.0)},
    )


SIZES = (16.0, 64.0, 256.0)
KNOBS: KnobValues = {"num_envs": np.array(SIZES), "outer_learning_rate": 0.5}


# The file.


@pytest.mark.parametrize("family", list(LAW_PARAMETERS))
def test_round_trip(tmp_path: Path, family: str) -> None:
    before = made(family)
    calibration.save(before, tmp_path / "c.json")
    for path in (tmp_path / "c.json", tmp_path / "c", str(tmp_path / "c.nc")):
        after = calibration.load(path)
        assert after.content_hash == before.content_hash
        assert after.varied == before.varied
        assert after.model == before.model
        one, two = (c.forecast(1e6, KNOBS, 3) for c in (before, after))
        np.testing.assert_array_equal(one.predictive.score, two.predictive.score)


def test_an_infinite_knob_survives(tmp_path: Path) -> None:
    calibration.save(SYNTHETIC, tmp_path / "c.json")
    after = calibration.load(tmp_path / "c.json")
    assert after.fixed == {"minibatch_size": 512, "max_grad_norm": math.inf}


def test_the_file_names_its_format_and_its_hash(tmp_path: Path) -> None:
    calibration.save(SYNTHETIC, tmp_path / "c.json")
    payload = json.loads((tmp_path / "c.json").read_text())
    assert payload["format"] == "ppo-outer-loop/calibration"
    assert payload["version"] == 1
    assert payload["hash"] == SYNTHETIC.content_hash
    assert payload["hash"] == sidecar.content_hash(payload)


def rewritten(path: Path, **changes: object) -> Path:
    """The synthetic sidecar with other content and the right hash for it."""
    calibration.save(SYNTHETIC, path)
    payload = {**json.loads(path.read_text()), **changes}
    payload["hash"] = sidecar.content_hash(payload)
    path.write_text(json.dumps(payload))
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "ppo-outer-loop/run-table"}, "is not a calibration"),
        ({"version": 2}, "format version 2; this code reads version 1"),
        ({"draws": {}}, "not complete"),
        ({"model": {}}, "not complete"),
        ({"varied": None}, "not complete"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        calibration.load(rewritten(tmp_path / "c.json", **changes))


def test_draws_must_exist_and_fit_the_model(tmp_path: Path) -> None:
    calibration.save(SYNTHETIC, tmp_path / "c.json")
    draws = json.loads((tmp_path / "c.json").read_text())["draws"]
    empty: dict[str, list] = {name: [] for name in draws}
    with pytest.raises(CalibrationError, match="no draws"):
        calibration.load(rewritten(tmp_path / "c.json", draws=empty))
    uneven = {**draws, "seed_sd": draws["seed_sd"][1:]}
    with pytest.raises(CalibrationError, match="different numbers"):
        calibration.load(rewritten(tmp_path / "c.json", draws=uneven))
    narrow = {**draws, "law": [row[1:] for row in draws["law"]]}
    with pytest.raises(CalibrationError, match="do not fit its model"):
        calibration.load(rewritten(tmp_path / "c.json", draws=narrow))


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot read the calibration"):
        calibration.load(tmp_path / "none")
    for text in ("", "text", "[1, 2]", '"a"', "\udcff", "[" * 10**5):
        (tmp_path / "c.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(CalibrationError, match=r"not JSON text|not a calibration"):
            calibration.load(tmp_path / "c.json")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_non_finite_numbers_are_refused(tmp_path: Path, number: str) -> None:
    calibration.save(SYNTHETIC, tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text().replace("0.05", number, 1)
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CalibrationError, match=f"holds the number {number}"):
        calibration.load(tmp_path / "c.json")
    bad = dataclasses.replace(SYNTHETIC, held_out={"crps": math.nan})
    with pytest.raises(CalibrationError, match="non-finite"):
        calibration.save(bad, tmp_path / "d.json")
    assert not (tmp_path / "d.json").exists()


def test_any_changed_digit_is_damage(tmp_path: Path) -> None:
    calibration.save(SYNTHETIC, tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    digits = [i for i, character in enumerate(text) if character in "123456789"]
    rng = np.random.default_rng(0)
    for index in rng.choice(digits, 100, replace=False):
        changed = text[:index] + str(int(text[index]) - 1) + text[index + 1 :]
        (tmp_path / "c.json").write_text(changed)
        try:
            found = calibration.load(tmp_path / "c.json")
        except CalibrationError:
            continue
        # The last digit of a float may not change the float.
        assert found.content_hash == SYNTHETIC.content_hash
        assert json.loads(changed) == json.loads(text)


def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    calibration.save(SYNTHETIC, path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CalibrationError, match="No space left"):
        calibration.save(made("joint"), path)
    assert [item.name for item in tmp_path.iterdir()] == ["c.json"]
    assert path.read_bytes() == before


def test_importing_needs_numpy_only() -> None:
    code = (
        "import sys, theory.calibration; "
        "print([m for m in ('scipy', 'xarray', 'h5py', 'jax', 'tyro', 'matplotlib')"
        " if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


# The forecast.


@pytest.mark.parametrize("law_ddr", ["limit", "run"])
@pytest.mark.parametrize("family", list(LAW_PARAMETERS))
def test_expected_values_equal_their_formulas(family: str, law_ddr: str) -> None:
    calibrated, budget = made(family, law_ddr=law_ddr), 1e6
    found = calibrated.forecast(budget, KNOBS, 3).expected
    for draw in range(2):
        a0, a1, a2, t0, t1 = calibrated.draws.ddr_map[draw]
        for cell, n in enumerate(SIZES):
            x = math.log(n / 64)
            limit = math.exp(a0 + a1 * x + a2 * math.log(0.5))
            ddr = limit / (1 + math.exp(t0 + t1 * x) / budget)
            paced = budget * math.exp(calibrated.draws.pace[draw, 0] * x)
            used = limit if law_ddr == "limit" else ddr
            gap = gap_of(family, ROWS[family][draw], paced, used)
            assert found.ddr[draw, cell] == pytest.approx(ddr, rel=1e-12)
            assert found.gap[draw, cell] == pytest.approx(gap, rel=1e-12)
            assert found.score[draw, cell] == pytest.approx(-2 - gap, rel=1e-12)


def gap_of(family: str, row: list[float], budget: float, ddr: float) -> float:
    floor, bias, noise, *rest = row
    if family == "joint":
        return floor + bias * (budget**2 / ddr) ** (-rest[0] / 2) + noise / ddr**0.5
    if family == "free":
        b, d, gamma = rest
        return floor + bias * budget**-b * ddr**d + noise * ddr**-gamma
    rate, source = rest
    left = (1 + rate * budget / ddr**0.5 / source) ** -source
    return floor + bias * left + noise / ddr**0.5


@given(positive_floats(1e4, 1e10), positive_floats(4, 1e5), st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_a_cell_alone_is_the_cell_among_others(
    budget: float, num_envs: float, seeds: int
) -> None:
    calibrated = SYNTHETIC
    alone = calibrated.forecast(budget, {"num_envs": num_envs}, seeds)
    among: KnobValues = {"num_envs": np.array([3.0, num_envs, 7.0])}
    together = calibrated.forecast(budget, among, seeds)
    for part in ("expected", "predictive"):
        for name in ("ddr", "gap", "score"):
            one = getattr(getattr(alone, part), name)[:, 0]
            two = getattr(getattr(together, part), name)[:, 1]
            np.testing.assert_allclose(one, two, rtol=1e-12)


def test_predictive_spread_is_what_was_declared() -> None:
    calibrated = Calibration.synthetic(config_sd=0.05, seed_sd=0.4, num_draws=4000)
    knobs = {"num_envs": np.array([4.0, 64.0])}
    for seeds in (1, 16):
        found = calibrated.forecast(1e6, knobs, seeds)
        np.testing.assert_allclose(
            found.predictive.gap.mean(axis=0), found.expected.gap[0], rtol=2e-3
        )
        # At b = d = ½ and γ = ½ the best N splits the gap evenly: share 1 − ½² = ¾.
        gap = found.expected.gap[0]
        noise = np.array([0.05 * 4, 0.05])
        share = noise * (2 * gap - noise) / gap**2
        assert share[1] == pytest.approx(0.75)
        sd = np.sqrt(0.05**2 + np.log1p(0.4**2 * share / seeds))
        np.testing.assert_allclose(
            np.log(found.predictive.gap).std(axis=0), sd, rtol=2e-3
        )
        np.testing.assert_allclose(
            np.log(found.predictive.ddr).std(axis=0), 0.05, rtol=2e-3
        )


def test_noise_of_two_cells_is_independent() -> None:
    calibrated = Calibration.synthetic(num_draws=4000)
    found = calibrated.forecast(1e6, {"num_envs": np.array([32.0, 64.0])}, 4)
    noise = np.log(found.predictive.gap / found.expected.gap)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.08
    assert not np.array_equal(noise[:, 0], noise[:, 1])


def test_a_free_asymptote_adds_noise_to_the_score() -> None:
    calibrated = made("joint", asymptote="free")
    found = calibrated.forecast(1e6, KNOBS, 9)
    sd = np.sqrt(calibrated.draws.config_sd**2 + calibrated.draws.seed_sd**2 / 9)
    noise = (found.predictive.score - found.expected.score) / sd[:, None]
    assert set(np.round(np.abs(noise).ravel(), 6)) == {0.67449}


@given(st.floats(0.01, 5), st.floats(0, 5), st.floats(0, 5))
def test_seed_share_is_the_variance_of_a_quadratic_form(
    noise: float, bias: float, floor: float
) -> None:
    # gap = floor + x²: E x² = bias + noise, Var x² = 2·noise² + 4·bias·noise.
    gap = np.array([[floor + bias + noise]])
    found = seed_share(gap, np.array([[floor]]), np.array([[noise]]))
    variance = 2 * noise**2 + 4 * bias * noise
    assert found[0, 0] * gap[0, 0] ** 2 * 2 == pytest.approx(variance, rel=1e-9)


def test_estimate_is_the_expected_value_of_the_point() -> None:
    calibrated = made("saturating")
    found = calibrated.estimate(1e6, KNOBS)
    draws = calibrated.forecast(1e6, KNOBS, 1).expected
    np.testing.assert_array_equal(found.score[0], draws.score[0])


@pytest.mark.parametrize(
    ("budget", "knobs", "words"),
    [
        (0.0, KNOBS, "budget = 0.0 should be positive"),
        (math.nan, KNOBS, "budget = nan"),
        (1e6, {"num_envs": 64}, "needs a value of 'outer_learning_rate'"),
        (1e6, {**KNOBS, "num_envs": 0}, "num_envs = 0 should be positive"),
        (1e6, {**KNOBS, "num_envs": math.inf}, "num_envs = inf should be positive"),
        (1e6, {**KNOBS, "colour": 1.0}, "knows no knob 'colour'"),
        (1e6, {**KNOBS, "rollout_length": 64}, "knows rollout_length = 32 only"),
    ],
)
def test_impossible_forecasts_are_refused(
    budget: float, knobs: dict, words: str
) -> None:
    with pytest.raises(CalibrationError, match=words):
        made("joint").forecast(budget, knobs, 3)


def test_seeds_are_at_least_one_and_fixed_knobs_may_be_given() -> None:
    with pytest.raises(ValueError, match="num_seeds = 0 should be at least 1"):
        made("joint").forecast(1e6, KNOBS, 0)
    given_too = made("joint").forecast(1e6, {**KNOBS, "rollout_length": 32}, 1)
    assert given_too.expected.ddr.shape == (2, 3)


# Exponents and synthetic calibrations.


def best_num_envs(calibrated: Calibration, budget: float) -> float:
    grid = np.exp(np.linspace(-10, 30, 8001))
    knobs = {"num_envs": grid}
    if "outer_learning_rate" in calibrated.varied:
        knobs["outer_learning_rate"] = np.ones_like(grid)
    return float(grid[np.argmin(calibrated.estimate(budget, knobs).gap[0])])


@settings(max_examples=15, deadline=None)
@given(
    st.just(0.0) | st.floats(0.1, 2),
    st.floats(0.2, 1),
    st.floats(0.2, 1),
    st.floats(0.4, 2),
)
def test_a_synthetic_optimum_moves_as_it_was_told(
    b: float, d: float, gamma: float, slope: float
) -> None:
    calibrated = Calibration.synthetic(
        budget_exponent=b,
        ddr_exponent=d,
        noise_exponent=gamma,
        num_envs_exponent=slope,
        best_num_envs=32,
        at_budget=1e5,
        best_gap=0.3,
        num_draws=3,
    )
    expected = b / ((d + gamma) * slope)
    np.testing.assert_allclose(calibrated.optimum_exponent(), expected, atol=1e-4)
    assert best_num_envs(calibrated, 1e5) == pytest.approx(32, rel=6e-3)
    assert best_num_envs(calibrated, 1e6) == pytest.approx(32 * 10**expected, rel=6e-3)
    found = calibrated.estimate(1e5, {"num_envs": 32})
    assert found.gap[0, 0] == pytest.approx(0.3)


def test_an_exponent_of_zero_does_not_move_the_optimum() -> None:
    calibrated = Calibration.synthetic(budget_exponent=0)
    np.testing.assert_allclose(calibrated.optimum_exponent(), 0, atol=1e-6)
    assert best_num_envs(calibrated, 1e12) == pytest.approx(64, rel=6e-3)


def test_draws_of_a_synthetic_calibration_spread_as_told() -> None:
    found = Calibration.synthetic(exponent_sd=0.1, num_draws=500).ddr_exponent()
    assert np.mean(found) == pytest.approx(1, rel=1e-6)
    assert np.std(found) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("family", list(LAW_PARAMETERS))
def test_the_best_value_equals_a_search(family: str) -> None:
    calibrated = made(family)
    where: KnobValues = {"outer_learning_rate": 1.0}
    for budget in (1e6, 1e7):
        found = calibrated.best_value("num_envs", budget, at=where)
        expected = best_num_envs(calibrated, budget)
        assert found[0] == pytest.approx(expected, rel=6e-3)
    with pytest.raises(CalibrationError, match="no fitted knob 'com'"):
        calibrated.best_value("com", 1e6)


def test_without_a_pace_the_best_ddr_sets_the_best_knob() -> None:
    calibrated = made("joint")
    still = dataclasses.replace(
        calibrated,
        draws=dataclasses.replace(calibrated.draws, pace=np.zeros((2, 1))),
    )
    slopes = calibrated.draws.ddr_map[:, 1]
    expected = calibrated.ddr_exponent() / slopes
    np.testing.assert_allclose(still.optimum_exponent(), expected, atol=1e-4)
    # bias ∝ (B·N^c/√D)^(−s), D ∝ N^a: N* ∝ B^(s/(s(a/2 − c) + a/2)).
    source, pace = calibrated.draws.law[:, 3], calibrated.draws.pace[:, 0]
    paced = source / (source * (slopes / 2 - pace) + slopes / 2)
    np.testing.assert_allclose(calibrated.optimum_exponent(), paced, atol=1e-4)


def test_a_saturating_law_takes_its_exponent_at_a_budget() -> None:
    calibrated = made("saturating")
    low, high = calibrated.ddr_exponent(1e6), calibrated.ddr_exponent(1e12)
    source = calibrated.draws.law[:, 4]
    assert np.all(np.abs(high - 2 * source / (1 + source)) < np.abs(low - high))


def test_where_nothing_is_best_there_is_no_value() -> None:
    calibrated = made("joint")
    law = calibrated.draws.law.copy()
    law[:, 2] = 0.0  # no noise: the smaller N the better, without end
    quiet = dataclasses.replace(
        calibrated, draws=dataclasses.replace(calibrated.draws, law=law)
    )
    assert np.all(np.isnan(quiet.best_value("num_envs", 1e6)))
