"""`theory.design_study`: its truths, one table, a log that survives kills, a report."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from theory.design_study import __main__ as command
from theory.design_study import one_table, records, report
from theory.design_study.scenarios import (
    CONSTANT,
    CURVE,
    FLAT,
    HELD_OUT,
    JOINT,
    JOINT_LAW,
    QUADRATIC,
    SCATTER,
    SCENARIOS,
    TRAINING,
)
from theory.fit.status import NotConverged, Status
from theory.simulate_table import power_law

RATES = np.geomspace(0.02, 1, 25)
DOCS = Path(__file__).parent.parent / "docs"


# Truths.


def test_true_gaps_are_those_of_the_law() -> None:
    ddr = 1.3e6 * RATES**-2
    np.testing.assert_allclose(
        JOINT.gap(2**26, RATES), JOINT_LAW.gap(2**26, ddr), rtol=1e-9
    )
    np.testing.assert_allclose(FLAT.gap(2**20, RATES), CURVE.gap(1, ddr), rtol=1e-9)


def test_true_gaps_of_the_quadratic_are_sums_over_modes() -> None:
    """One rate by hand, with the exact recursion of x² instead of its closed form."""
    quadratic, samples, budget = power_law(), 64 * 32, 2**22
    a = 1e-4 * 0.5 * samples * quadratic.curvature
    moment = quadratic.start
    kick = (1e-4 * 0.5 * samples) ** 2 * quadratic.noise / samples
    for _ in range(budget // samples):
        moment = (1 - a) ** 2 * moment + kick
    expected = 0.5 * np.sum(quadratic.curvature * moment)
    found = QUADRATIC.gap(budget, np.array([0.5, 1.0]))[0]
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_quadratic_has_the_exponent_and_plateau_that_it_names() -> None:
    """p_DDR = 1 is the limit of large budgets; C·D^(−½) that of a forgotten start."""
    rates = np.geomspace(1e-3, 1, 2000)
    low, high = (rates[np.argmin(QUADRATIC.gap(b, rates))] for b in (2**24, 2**28))
    growth = 2 * np.log(low / high) / np.log(2**4)  # D ∝ σ⁻²
    assert growth == pytest.approx(QUADRATIC.exponent, abs=0.05)
    step = 1e-4 * 1 / 32
    ddr = 2 / (step**2 * np.sum(power_law().noise))
    gap = QUADRATIC.gap(2**44, np.array([1 / 32, 1]))[0]
    assert gap * np.sqrt(ddr) == pytest.approx(QUADRATIC.noise, rel=0.01)


@given(st.integers(18, 28), st.integers(1, 4))
@settings(max_examples=25)
def test_a_constant_optimum_does_not_move(power: int, doublings: int) -> None:
    """Budgets shift the curve over rates by a factor, or not at all."""
    low, high = 2**power, 2 ** (power + doublings)
    for scenario, exponent in ((CONSTANT, 0.4), (FLAT, 0.0)):
        ratio = scenario.gap(low, RATES) / scenario.gap(high, RATES)
        np.testing.assert_allclose(ratio, 2.0 ** (exponent * doublings), rtol=1e-9)
    best = RATES[np.argmin(CONSTANT.gap(low, RATES))]
    assert TRAINING.outer_learning_rate[1] < best < TRAINING.outer_learning_rate[4]


def test_seeds_with_more_ddr_have_a_smaller_gap() -> None:
    """The measured DDR is endogenous: within a cell it goes along with luck."""
    slopes = []
    for seed in range(40):
        made = FLAT.runs(TRAINING, SCATTER, np.random.default_rng(seed))
        shape = (6, 4, 3)
        ddr, gap = (np.log(v.reshape(shape)) for v in (made["ddr"], -made["score"]))
        ddr, gap = (v - v.mean(axis=-1, keepdims=True) for v in (ddr, gap))
        slopes.append(np.sum(ddr * gap) / np.sqrt(np.sum(ddr**2) * np.sum(gap**2)))
    assert_mean(np.array(slopes), -0.7, effect=0.2)
    with pytest.raises(AssertionError):
        assert_mean(np.array(slopes), 0.0, effect=0.2)


# One table.


@pytest.fixture(scope="module")
def made() -> list[dict]:
    return [one_table.study(JOINT, 0, number, 20) for number in (0, 1)]


def test_a_table_is_a_function_of_scenario_seed_and_number(made: list[dict]) -> None:
    assert one_table.study(JOINT, 0, 1, 20) == made[1]
    assert made[0]["crps"] != made[1]["crps"]
    assert one_table.study(JOINT, 1, 1, 20)["crps"] != made[1]["crps"]


def test_a_table_says_what_was_asked(made: list[dict]) -> None:
    for record in made:
        json.dumps(record, allow_nan=False)
        assert set(record["parameters"]) == {"optimum_exponent", "noise"}
        assert record["parameters"]["noise"]["truth"] == 12
        assert record["law_on_record"]
        assert record["regret"]["law"] == record["regret"]["guarded"]
        for name, lost in record["regret"].items():
            assert lost == [None, None] if name == "constant" else min(lost) >= 0
        assert max(record["regret"]["law"]) < 0.1
        assert record["skill"]["law"]["constant_ddr"]["low"] > 0.5
        assert set(record["predictive"]) == set(record["crps"]) == set(record["regret"])


def test_on_a_constant_optimum_no_skill_is_claimed() -> None:
    """Property 40, on one table; docs/design_study.md has it on 200.

    The joint law itself, which cannot be right there, shows that it is tested at all.
    """
    record: dict[str, Any] = one_table.study(CONSTANT, 0, 0, 20)
    assert record["parameters"] == {}
    found = record["skill"]["guarded"]["constant_ddr"]
    assert found["low"] <= 0 <= found["high"]
    assert record["skill"]["law"]["constant_ddr"]["high"] < 0


def test_the_regret_of_who_knows_the_truth_is_none() -> None:
    def knowing(sign: float) -> one_table.Forecast:
        def forecast(budget: Any, knobs: Any, seeds: int) -> np.ndarray:
            return -(JOINT.gap(budget, knobs["outer_learning_rate"]) ** sign)[None]

        return forecast

    assert one_table._regrets(knowing(1.0), JOINT) == [0.0, 0.0]
    assert all(lost > 1 for lost in one_table._regrets(knowing(-1.0), JOINT) if lost)
    assert one_table._regrets(knowing(0.0), JOINT) == [None, None]


def test_a_table_without_a_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise NotConverged(Status.TOO_FEW)

    monkeypatch.setattr(one_table, "fit", never)
    assert one_table.study(JOINT, 0, 0, 20) == {"error": "TOO_FEW"}


# The log.

SETTING = records.Setting(seed=5, draws=20)


@given(cut=st.integers(0, 60))
@settings(max_examples=60)
def test_a_torn_line_is_counted_and_made_again(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    assert records.read(path, SETTING) == ({}, 0)
    for number in range(3):
        records.append(path, SETTING, "joint", number, {"x": 0.1 * number})
    content = path.read_bytes()
    last = len(content.splitlines()[-1]) + 1
    kept = min(cut, last)
    path.write_bytes(content[: len(content) - last + kept])
    found, torn = records.read(path, SETTING)
    whole = kept >= last - 1
    assert len(found) == (3 if whole else 2)
    assert torn == (0 if whole or kept == 0 else 1)
    records.append(path, SETTING, "joint", 2, {"x": 0.2})
    again, still = records.read(path, SETTING)
    assert [again["joint", n]["x"] for n in range(3)] == [0, 0.1, 0.2]
    assert still == torn


@pytest.mark.parametrize("other", [{"seed": 6}, {"draws": 21}])
def test_a_log_of_another_study_is_refused(tmp_path: Path, other: dict) -> None:
    path = tmp_path / "log.jsonl"
    records.append(path, SETTING, "joint", 0, {})
    changed = dataclasses.replace(SETTING, **other)
    name = next(iter(other))
    with pytest.raises(ValueError, match=f"{name} = {getattr(SETTING, name)}, not"):
        records.read(path, changed)


# The command.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> command.Arguments:
    folder = tmp_path_factory.mktemp("study")
    arguments = command.Arguments(
        out=folder / "log.jsonl", tables=1, draws=10, report=folder / "study"
    )
    assert command.main(arguments) == 0
    return arguments


def test_a_study_goes_on_where_it_was_killed(
    finished: command.Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finished.out.read_text()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == len(SCENARIOS)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines[:-1]) + lines[-1][:50])
    called = []

    def counted(scenario: object, *rest: int) -> dict:
        called.append(rest)
        return one_table.study(scenario, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "study", counted)
    again = dataclasses.replace(finished, out=path, report=None)
    assert command.main(again) == 0
    assert called == [(0, 0, 10)]
    assert path.read_text().splitlines()[-1] == lines[-1].rstrip("\n")
    assert command.main(again) == 0
    assert len(called) == 1


def test_the_report_holds_what_the_log_says(finished: command.Arguments) -> None:
    assert finished.report is not None
    summary = json.loads(finished.report.with_suffix(".json").read_text())
    log = [json.loads(line) for line in finished.out.read_text().splitlines()]
    assert set(summary["scenarios"]) == set(SCENARIOS)
    for name, found in summary["scenarios"].items():
        here = [line for line in log if line["scenario"] == name]
        assert found["tables"] == len(here) == 1
        middle = np.mean([line["regret"]["law"][1] for line in here])
        assert found["regret"]["law"]["16"]["median"] == pytest.approx(middle, rel=1e-3)
        shares = [line["expected"]["16"]["studentised"] for line in here]
        share = found["coverage"]["expected gap at 16×"]["studentised"][0]
        assert share == pytest.approx(np.mean(shares), rel=1e-3)
        held = [line["skill"]["law"]["constant_ddr"]["low"] > 0 for line in here]
        above = found["skill"]["law"]["constant_ddr"]["above_0"]
        assert above == pytest.approx(np.mean(held))
    text = finished.report.with_suffix(".md").read_text()
    assert text == report.markdown(summary)
    assert "--tables 1 --draws 10 --seed 0" in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tables": 0}, "tables is 0; it must be at least 1"),
        ({"draws": 3}, "draws"),
        ({"seed": 4}, "has seed = 0, not 4"),
    ],
)
def test_mistakes_are_one_sentence(
    finished: command.Arguments,
    capsys: pytest.CaptureFixture[str],
    changes: dict,
    sentence: str,
) -> None:
    assert command.main(dataclasses.replace(finished, **changes)) == 2
    found = capsys.readouterr().err
    assert sentence in found
    assert found.count("\n") == 1


def test_intervals_are_counted_with_their_open_ends() -> None:
    ends = {"truth": 1.0, "a": [None, 2.0], "b": [None, None], "c": [1.5, 2.0]}
    assert [report._holds(ends, kind) for kind in "abc"] == [True, True, False]


def test_an_empty_study_has_no_report() -> None:
    with pytest.raises(ValueError, match="holds no fitted table"):
        report.aggregate([{"scenario": "joint", "error": "TOO_FEW"}])


def test_held_out_budgets_are_beyond_training() -> None:
    assert [b / TRAINING.budgets[-1] for b in HELD_OUT.budgets] == [4, 16]


def test_the_shipped_report_is_that_of_its_figures() -> None:
    """Property 40: on 200 tables no skill is claimed where the optimum is constant."""
    summary = json.loads((DOCS / "design_study.json").read_text(encoding="utf-8"))
    text = (DOCS / "design_study.md").read_text(encoding="utf-8")
    assert text == report.markdown(summary)
    found = summary["scenarios"]
    assert all(found[s]["tables"] == 200 for s in ("joint", "quadratic", "constant"))
    assert found["constant"]["skill"]["guarded"]["constant_ddr"]["holds_0"] >= 0.9
    assert found["constant"]["skill"]["law"]["constant_ddr"]["above_0"] == 0
    for name in ("joint", "quadratic"):
        median = {k: v["16"]["median"] for k, v in found[name]["regret"].items()}
        assert median["law"] <= min(0.05, median["moving_optimum"])
