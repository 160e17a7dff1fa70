"""Bad input of a fit: one sentence, from the library and from the command."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.simulated import OPTIMUM, SMALL, simulate
from theory import table
from theory.fit import Options, fit
from theory.fit import __main__ as main_module
from theory.fit.command import Arguments
from theory.table import RunTable, TableError

KNOWN = Options(asymptote=OPTIMUM, draws=20)
Spoil = Callable[[RunTable], RunTable]


@pytest.fixture(scope="module")
def made() -> RunTable:
    return simulate(5, design=SMALL)


def changed(name: str, value: float) -> Spoil:
    """Spoils one entry of a column."""

    def spoil(whole: RunTable) -> RunTable:
        values = whole[name].copy()
        values[3] = value
        return RunTable({**whole.data, name: values})

    return spoil


def doubled(whole: RunTable) -> RunTable:
    return whole.select(np.append(np.arange(len(whole)), 2))


def one_configuration(whole: RunTable) -> RunTable:
    return whole.select(whole.configurations() == 0)


def two_budgets(whole: RunTable) -> RunTable:
    return whole.select(whole["budget"] != whole.budgets()[0])


SPOILT = {
    "ddr is not a number": (changed("ddr", np.nan), "ddr = nan in row 3 should be"),
    "ddr is infinite": (changed("ddr", np.inf), "ddr = inf in row 3 should be"),
    "ddr is negative": (changed("ddr", -1.0), "ddr = -1.0 in row 3 should be"),
    "score is not a number": (changed("score", np.nan), "score is not finite in row 3"),
    "score is infinite": (changed("score", -np.inf), "score is not finite in row 3"),
    "no transitions": (changed("transitions", 0), "transitions = 0 in row 3 should be"),
    "a knob is negative": (
        changed("outer_learning_rate", -0.5),
        "outer_learning_rate = -0.5 in row 3 should be positive",
    ),
    "negative gap": (changed("score", 5.0), "is not below the asymptote -1.94"),
    "a row twice": (doubled, "rows 2 and .* are the same run"),
    "one configuration": (one_configuration, "a single configuration; a map from"),
    "two budgets": (two_budgets, "has 2 budgets; a fit needs 3"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_table_is_refused(made: RunTable, name: str) -> None:
    spoil, words = SPOILT[name]
    with pytest.raises(TableError, match=words) as caught:
        fit(spoil(made), KNOWN)
    assert "\n" not in str(caught.value)


def test_a_gap_of_zero_is_refused(made: RunTable) -> None:
    first = (made.configurations() == 0) & (made["budget"] == made.budgets()[0])
    flat = RunTable({**made.data, "score": np.where(first, OPTIMUM, made["score"])})
    with pytest.raises(TableError, match="is not below the asymptote"):
        fit(flat, KNOWN)


@pytest.mark.parametrize("name", [n for n in SPOILT if n != "a row twice"])
def test_the_command_refuses_it_too(
    made: RunTable, name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "runs.nc"
    table.write(path, SPOILT[name][0](made))
    arguments = Arguments(table=path, asymptote=str(OPTIMUM), draws=20)
    assert main_module.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("theory.fit: ")
    assert captured.err.count("\n") == 1
    assert not path.with_suffix(".json").exists()


def test_a_table_with_a_row_twice_cannot_even_be_written(
    made: RunTable, tmp_path: Path
) -> None:
    with pytest.raises(TableError, match="are the same run"):
        table.write(tmp_path / "runs.nc", doubled(made))


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("family", "cubic", "family is 'cubic'; it should be one of 'joint', 'free'"),
        ("ddr_column", "kl", "ddr_column is 'kl'; it should be one of 'ddr'"),
        ("law_ddr", "half", "law_ddr is 'half'"),
        ("pace", "slow", "pace is 'slow'"),
        ("regressor", "both", "regressor is 'both'"),
        ("draws", 1, "draws is 1; at least 10 are needed"),
        ("asymptote", float("nan"), "asymptote is nan; it should be a number"),
    ],
)
def test_impossible_options_are_refused(option: str, value: object, words: str) -> None:
    with pytest.raises(TableError, match=words):
        dataclasses.replace(KNOWN, **{option: value})  # type: ignore[arg-type]


def test_an_unknown_family_ends_the_command_with_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "theory.fit", str(tmp_path / "a.nc"), "--law"]
    done = subprocess.run([*command, "cubic"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "cubic" in done.stderr
    assert "Traceback" not in done.stderr
