"""Leave a budget or a level of a knob out, in the library and from the command."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support.simulated import OPTIMUM, SMALL, noisy_table, simulate
from theory import nulls, table
from theory.fit import Fit, Options, assembly, command, fit, held_out, leave_out
from theory.fit import __main__ as main_module
from theory.fit.command import Arguments
from theory.fit.named import OPTIMUM_EXPONENT
from theory.null_data import Forecaster, null_data
from theory.table import RunTable, TableError

KNOWN = Options(asymptote=OPTIMUM, draws=40)
DESIGN = dataclasses.replace(SMALL, budgets=(2**18, 2**20, 2**22, 2**24))


@pytest.fixture(scope="module", autouse=True)
def few_rivals() -> Iterator[None]:
    """The rivals that cost little; which there are is not the question here."""

    def cheap(fitted: Fit) -> Mapping[str, Forecaster]:
        data = null_data(fitted)
        curves = (nulls.constant_ddr, nulls.persistence, nulls.moving_optimum)
        return {curve.__name__: curve(data) for curve in curves}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nulls, "fit_all", cheap)
        yield


@pytest.fixture(scope="module")
def made() -> RunTable:
    return simulate(5, design=DESIGN)


@pytest.fixture(scope="module")
def by_budget(made: RunTable) -> list[leave_out.LeftOut]:
    return list(leave_out.leave_one_out(made, KNOWN))


def test_each_budget_is_forecast_from_the_others(
    made: RunTable, by_budget: list[leave_out.LeftOut]
) -> None:
    assert [row.value for row in by_budget] == list(made.budgets())
    out = made["budget"] == 2**24
    alone = fit(made.select(~out), KNOWN)
    seen = held_out.evaluate(
        alone, assembly.calibration(alone, made.select(~out)), made.select(out)
    )
    last = by_budget[-1]
    assert seen["models"]["law"]["crps"] == last.crps  # type: ignore[index]
    assert last.cells == 6
    assert last.law["noise"] == alone.point.law[0, 2]
    assert set(last.coverage) == {"0.5", "0.8", "0.9"}
    assert set(last.skill) >= {"constant_ddr", "persistence", "moving_optimum"}


def test_a_law_that_is_true_holds_still_and_beats_the_nulls(
    by_budget: list[leave_out.LeftOut],
) -> None:
    for row in by_budget:
        assert row.law[OPTIMUM_EXPONENT] == pytest.approx(4 / 3, abs=0.1)
        assert row.skill["persistence"]["value"] > 0.3


def test_each_level_of_a_knob_is_forecast(made: RunTable) -> None:
    rows = leave_out.leave_one_out(made, KNOWN, "num_envs")
    assert [row.value for row in rows] == [16, 64, 256]
    assert all(row.cells == 8 and row.by == "num_envs" for row in rows)
    assert all(row.crps is not None and row.crps < 0.3 for row in rows)


def test_a_fit_without_an_answer_is_a_row_that_says_so(made: RunTable) -> None:
    levels = np.searchsorted([16, 64, 256], made["num_envs"])
    tied = RunTable({**made.data, "minibatch_size": 2 ** (levels**2)})
    rows = leave_out.leave_one_out(tied, KNOWN, "num_envs")
    assert len(rows) == 3
    assert all(row.crps is None and "vary only together" in row.status for row in rows)
    assert all(dataclasses.asdict(row)["law"] == {} for row in rows)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("budget", "has 3 budgets; to leave one out takes 4"),
        ("clip_epsilon", "what varies is budget, num_envs, outer_learning_rate"),
        ("colour", "'colour' cannot be left out"),
    ],
)
def test_what_cannot_be_left_out_is_refused(by: str, words: str) -> None:
    with pytest.raises(TableError, match=words):
        leave_out.leave_one_out(noisy_table(), KNOWN, by)


def test_two_levels_are_too_few(made: RunTable) -> None:
    with pytest.raises(TableError, match="has 2 levels; to leave one out takes 3"):
        leave_out.leave_one_out(made, KNOWN, "outer_learning_rate")


def test_the_command_reports_it(
    made: RunTable, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "runs.nc"
    table.write(path, made)
    arguments = Arguments(
        table=path, asymptote=str(OPTIMUM), draws=20,
        leave_out=("num_envs",), json=True,
    )  # fmt: skip
    assert main_module.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert {by: len(rows) for by, rows in report["leave_one_out"].items()} == {
        "num_envs": 3,
    }
    assert "Without num_envs = 16: 8 cells, CRPS" in command.text(report)
    refused = dataclasses.replace(arguments, leave_out=("colour",))
    assert main_module.main(refused) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_by_default_nothing_is_left_out(
    made: RunTable, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "runs.nc"
    table.write(path, made)
    arguments = Arguments(table=path, asymptote=str(OPTIMUM), draws=20, json=True)
    assert main_module.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["leave_one_out"] == {}
