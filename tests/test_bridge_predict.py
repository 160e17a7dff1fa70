"""`bridge.predict`: the number, its range, and how both follow the calibration."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import domains, predict, recipe
from bridge.answer import Request, answer
from bridge.domains import DATA, Domain
from bridge.errors import UsageError
from bridge.evidence import from_calibration
from tests.support.runs import (
    OPTIMUM,
    assert_refused,
    calibration_file,
    call,
    lqr_calibration,
)
from theory.calibration import Calibration

KEYS = {
    "num_envs", "num_envs_low", "num_envs_high", "num_envs_interval", "budget",
    "domain", "score", "score_interval", "ddr", "ddr_noise", "updates",
    "gradient_steps", "minibatch_size", "num_minibatches", "learning_rate", "com",
    "alternatives", "caveats", "basis", "calibration",
}  # fmt: skip


def lqr(calibration: Calibration) -> Domain:
    return Domain(name="lqr", environment="lqr", basis=DATA, calibration=calibration)


def told(calibration: Calibration, budget: int, seeds: int = 5) -> dict[str, Any]:
    request = Request(budget=budget, num_seeds=seeds)
    return answer(request, lqr(calibration)).to_json()


def best(calibration: Calibration, budget: int) -> int:
    return answer(Request(budget=budget, num_seeds=5), lqr(calibration)).config.num_envs


def test_json_keys_of_the_contract(tmp_path: Path) -> None:
    path = calibration_file(tmp_path)
    for arguments in (["--budget", "1e12"], ["--budget", "4e6", "--calibration", path]):
        outcome = call(predict.main, *arguments, "--json")
        assert outcome.code == 0
        assert outcome.err == ""
        assert set(outcome.json) >= KEYS
        for alternative in outcome.json["alternatives"]:
            assert {"num_envs", "score", "score_interval", "regret"} <= set(alternative)


@settings(max_examples=25)
@given(
    budget=st.floats(5.0, 16.0).map(lambda x: int(10**x)),
    exponent=st.floats(0.0, 1.5),
    spread=st.floats(0.0, 1.0),
    slope=st.floats(0.5, 2.0),
)
def test_numbers_are_ordered_powers_of_two(
    budget: int, exponent: float, spread: float, slope: float
) -> None:
    calibration = lqr_calibration(
        budget_exponent=exponent, exponent_sd=spread, num_envs_exponent=slope
    )
    content = told(calibration, budget, 3)
    low, high = content["num_envs_interval"]
    numbers = [content["num_envs"], content["num_envs_low"], content["num_envs_high"]]
    assert all(number & (number - 1) == 0 for number in [*numbers, low, high])
    assert numbers[1] <= numbers[0] <= numbers[2]
    assert low <= high
    assert content["updates"] >= 16


@settings(max_examples=25)
@given(
    exponent=st.floats(0.2, 1.2),
    slope=st.floats(0.7, 2.0),
    budget=st.floats(5.5, 12.0).map(lambda x: int(10**x)),
)
def test_the_answer_moves_as_the_exponent_says(
    exponent: float, slope: float, budget: int
) -> None:
    """Best N = 64·(B/10⁶)^(b/((d + γ)·slope)), rounded to the nearest power of two."""
    calibration = lqr_calibration(budget_exponent=exponent, num_envs_exponent=slope)
    told = 64.0 * (budget / 1e6) ** (exponent / slope)
    candidates = [c.num_envs for c in recipe.candidates("lqr", budget, 5)]
    nearest = min(candidates, key=lambda n: abs(math.log(n / told)))
    found = best(calibration, budget)
    close = abs(math.log2(found / told)) - abs(math.log2(nearest / told))
    assert close <= 0.1  # whole updates use up to 1/17 less than the budget


@settings(max_examples=25)
@given(budgets=st.lists(st.floats(6.0, 15.0), min_size=2, max_size=4))
def test_exponent_zero_does_not_move(budgets: list[float]) -> None:
    calibration = lqr_calibration(budget_exponent=0.0, best_num_envs=128.0)
    assert {best(calibration, int(10**b)) for b in budgets} == {128}


def test_unsure_exponents_widen_the_interval_away_from_the_data() -> None:
    calibration = lqr_calibration(exponent_sd=0.5)
    widths = []
    for budget in (10**6, 10**9):
        content = told(calibration, budget)
        low, high = content["num_envs_interval"]
        widths.append(high / low)
    assert widths[0] < widths[1]


def test_bounds_that_bind_are_said() -> None:
    few = lqr_calibration(best_num_envs=1.0)
    many = lqr_calibration(best_num_envs=2.0**20)
    said = {
        name: " ".join(answer(Request(budget=10**6, num_seeds=5), lqr(c)).caveats)
        for name, c in {"few": few, "many": many}.items()
    }
    assert "might ask for fewer" in said["few"]
    assert "might ask for more" in said["many"]


def test_scores_are_the_law_and_its_noise() -> None:
    calibration = lqr_calibration(best_gap=0.1)
    content = told(calibration, 10**6)
    assert content["num_envs"] == 64
    assert content["score"] == pytest.approx(OPTIMUM - 0.1, abs=1e-3)
    assert content["ddr"] == pytest.approx(1e6, rel=1e-6)
    low, high = content["score_interval"]
    # At the best N half of the gap is noise, whose share in a seed's variance is 3/4;
    # sd of log gap: √(.05² + ¾·.1²/5); the 80 % interval is ±1.2816 of them.
    half = 1.2816 * math.sqrt(0.05**2 + 0.75 * 0.1**2 / 5) * 0.1
    assert high - low == pytest.approx(2 * half, rel=0.05)


def test_a_free_asymptote_is_predicted_on_the_score() -> None:
    known = lqr_calibration()
    model = dataclasses.replace(known.model, asymptote="free")
    calibration = dataclasses.replace(known, model=model)
    configs = recipe.candidates("lqr", 4 * 10**6, 5)
    evidence = from_calibration(calibration, configs)
    assert {p.scale for p in evidence.predictive} == {"score"}
    assert {p.optimum for p in evidence.null} == {None}
    content = told(calibration, 4 * 10**6)
    low, high = content["score_interval"]
    assert low < content["score"] < high
    assert any("asymptote is a fitted" in caveat for caveat in content["caveats"])


def test_more_seeds_narrow_the_interval() -> None:
    calibration = lqr_calibration()
    widths = []
    for seeds in (1, 4, 16):
        configs = recipe.candidates("lqr", 10**6, seeds)
        low, high = from_calibration(calibration, configs).predictive[0].interval(0.8)
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1.5 * widths[2]


def test_ddr_noise_is_named_as_such() -> None:
    calibration = dataclasses.replace(lqr_calibration(), ddr_column="ddr_noise")
    content = told(calibration, 10**6)
    assert content["ddr"] is None
    assert content["ddr_noise"] == pytest.approx(1e6, rel=1e-6)
    assert not any("raw DDR" in caveat for caveat in content["caveats"])


def test_extrapolation_and_open_parameters_are_said() -> None:
    calibration = dataclasses.replace(
        lqr_calibration(),
        statuses={"fit": "The fit converged.", "source": "the profile is open"},
    )
    said = answer(Request(budget=10**9, num_seeds=5), lqr(calibration)).caveats
    assert any("250 times above the trained range" in caveat for caveat in said)
    assert any(caveat == "source: the profile is open" for caveat in said)
    assert not any("converged" in caveat for caveat in said)


def test_a_law_that_lost_to_a_null_says_so() -> None:
    def said(held_out: dict[str, object]) -> str:
        calibration = dataclasses.replace(lqr_calibration(), held_out=held_out)
        return " ".join(told(calibration, 10**6)["caveats"])

    def scored(low: float) -> dict[str, object]:
        skill = {"value": 0.1, "low": low, "high": 0.3, "level": 0.9}
        return {"models": {"law": {}, "persistence": {"skill_of_law": skill}}}

    assert "no held-out runs" in said({})
    assert "not shown to beat the null 'persistence': skill 0.10" in said(scored(-0.1))
    assert "held-out" not in said(scored(0.05))


def test_a_varied_knob_without_a_number_is_refused() -> None:
    calibration = lqr_calibration()
    varied = {**calibration.varied, "com": (2.0, 8.0)}
    with pytest.raises(UsageError, match="com"):
        answer(
            Request(budget=10**6, num_seeds=5),
            lqr(dataclasses.replace(calibration, varied=varied)),
        )


def test_a_calibration_of_other_fixed_knobs_is_refused(tmp_path: Path) -> None:
    other = calibration_file(tmp_path, fixed={"rollout_length": 16})
    outcome = call(predict.main, "--budget", "1e6", "--calibration", other)
    assert_refused(outcome, "rollout_length = 16", "32")
    same = calibration_file(
        tmp_path,
        fixed={"rollout_length": 32, "com": "reset", "hidden_sizes": "64,64",
               "max_grad_norm": math.inf, "evaluation_episodes": 7, "note": "x"},
    )  # fmt: skip
    assert call(predict.main, "--budget", "1e6", "--calibration", same).code == 0


def test_hours_of_devices() -> None:
    asked = (
        "--budget",
        "1e12",
        "--devices",
        "8",
        "--throughput",
        "2.5e5",
        "--seeds",
        "2",
    )
    content = call(predict.main, *asked, "--json").json
    assert content["device_hours"] == pytest.approx(2e12 / 2.5e5 / 3600)
    assert content["wall_clock_hours"] == pytest.approx(2e12 / 2.5e5 / 3600 / 8)
    assert "device-hours" in call(predict.main, *asked).out
    odd = call(predict.main, "--budget", "1e12", "--devices", "3", "--json").json
    assert odd["device_hours"] is None
    assert any("3 devices do not divide" in caveat for caveat in odd["caveats"])


def test_domains_without_an_answer(tmp_path: Path) -> None:
    for name in ("nowhere", "pendulum"):
        assert_refused(
            call(predict.main, "--budget", "1e6", "--domain", name),
            repr(name), "kinetix-sfl",
        )  # fmt: skip
    path = calibration_file(tmp_path)
    assert_refused(
        call(predict.main, "--budget", "1e6", "--domain", "reacher",
             "--calibration", path),
        "'lqr'", "'reacher'",
    )  # fmt: skip


def test_shipped_calibrations_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domains, "SHIPPED", tmp_path)
    assert_refused(
        call(predict.main, "--budget", "1e6", "--domain", "lqr"), "no calibration yet"
    )
    calibration_file(tmp_path).rename(tmp_path / "lqr.json")
    content = call(predict.main, "--budget", "1e6", "--domain", "lqr", "--json").json
    assert content["basis"] == "data"
    assert content["num_envs"] == 64
    assert domains.available() == ("kinetix-sfl", "lqr")
    (tmp_path / "lqr.json").write_text("{")
    assert_refused(call(predict.main, "--budget", "1e6", "--domain", "lqr"), "lqr.json")


def test_a_damaged_calibration_is_refused(tmp_path: Path) -> None:
    path = calibration_file(tmp_path)
    path.write_text(path.read_text().replace("0.05", "0.06", 1))
    outcome = call(predict.main, "--budget", "1e6", "--calibration", path)
    assert_refused(outcome, "damaged")


@settings(max_examples=25)
@given(text=st.text(max_size=20) | st.binary(max_size=20).map(repr))
def test_any_text_is_no_calibration(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("c") / "c.json"
    path.write_text(text)
    assert_refused(call(predict.main, "--budget", "1e6", "--calibration", path))


def test_words_come_verdict_first(tmp_path: Path) -> None:
    said = call(
        predict.main, "--budget", "4e6", "--calibration", calibration_file(tmp_path)
    ).out
    assert said.startswith("Use 256 parallel environments for 4,000,000 transitions")
    for word in ("80 % interval", "regret", "Caveats", "Next:", "basis: data"):
        assert word in said
    assert max(map(len, said.split("\n\n")[0].splitlines())) <= 100
