"""The shell of the commands: one sentence and exit 2 for any mistake, never a trace."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge import cli, configure, judge, predict, quantities
from bridge.errors import UsageError
from tests.support.runs import Outcome, assert_refused, call

ROOT = Path(__file__).parents[1]
Command = Callable[[Sequence[str]], int]
COMMANDS = pytest.mark.parametrize(
    "main", [predict.main, judge.main, configure.main], ids=lambda m: m.__module__
)


def shell(*arguments: str, cwd: Path = ROOT, **how: object) -> Outcome:
    """The command as a user calls it."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **how,  # type: ignore[call-overload]
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


BAD_BUDGETS = (
    "0", "-3", "nan", "inf", "-inf", "1e400", "-1e400", "abc", "1.5", "1e-3", "", " ",
    "1e19", "0x10", "1e999999999999999999999", "sNaN", "1,000", "--5",
)  # fmt: skip


@pytest.mark.parametrize("budget", BAD_BUDGETS)
def test_bad_budgets(budget: str, tmp_path: Path) -> None:
    out = tmp_path / "P"
    outcome = call(predict.main, f"--budget={budget}", "--out", out)
    assert_refused(outcome, "--budget", repr(budget), "1e12")
    assert not out.exists()


def test_minus_three_as_a_word() -> None:
    assert_refused(call(predict.main, "--budget", "-3"), "'-3'")


def test_missing_and_unknown_arguments() -> None:
    assert_refused(call(predict.main), "--budget")
    assert_refused(call(predict.main, "--budget"), "--budget needs a value")
    assert_refused(call(predict.main, "--budgt", "1e12"), "--budget", "--budgt")
    assert_refused(call(predict.main, "--budget", "1e12", "more"), "more")
    assert_refused(call(judge.main), "PREDICTION")
    assert_refused(call(configure.main), "PREDICTION")


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--devices", ("0", "-1", "nan", "1.5", "many")),
        ("--throughput", ("0", "-1", "nan", "inf", "1e400", "1e-400", "fast")),
        ("--seeds", ("0", "-1", "nan", "inf", "2.5")),
    ],
)
def test_bad_numbers_name_flag_and_value(flag: str, values: Sequence[str]) -> None:
    for value in values:
        outcome = call(predict.main, "--budget", "1e12", f"{flag}={value}")
        assert_refused(outcome, flag, repr(value), "for example")


@given(st.integers(1, 10**18))
def test_counts_are_exact(number: int) -> None:
    assert quantities.count("--x", str(number), "1") == number
    assert quantities.count("--x", f"{number}e0", "1") == number


@given(text=st.text(max_size=12))
@example("1_0")
@example("٣")
def test_any_text_is_a_count_or_refused(text: str) -> None:
    try:
        number = quantities.count("--x", text, "1")
    except UsageError:
        return
    assert 1 <= number <= quantities.MAX_COUNT
    assert number == float(text)


words = st.sampled_from(
    ["--budget", "--domain", "--calibration", "--devices", "--throughput", "--seeds",
     "--json", "1e12", "-3", "nan", "lqr", "kinetix-sfl", "/", "", "--", "-", "-h8",
     "--no-json", "--budget=1e6", "--budget=0", "@file", "None"]
)  # fmt: skip


@settings(max_examples=60)
@given(arguments=st.lists(words | st.text(max_size=5), max_size=6))
def test_any_arguments_end_in_an_answer_or_a_sentence(arguments: list[str]) -> None:
    if any(a == "-h" or ("--help".startswith(a) and a > "--") for a in arguments):
        return
    outcome = call(predict.main, *arguments)
    if outcome.code == 0:
        assert outcome.out
        assert outcome.err == ""
    else:
        assert_refused(outcome)


@settings(max_examples=30)
@given(
    arguments=st.lists(
        words.filter(lambda w: w != "-h8") | st.text(max_size=5), max_size=4
    )
)
def test_the_other_commands_refuse_nonsense(arguments: list[str]) -> None:
    for main in (judge.main, configure.main):
        assert_refused(call(main, *arguments))


def test_an_ascii_terminal_gets_the_same() -> None:
    command = [sys.executable, "-m", "bridge.predict"]
    errors = []
    for encoding in ("ascii", "utf-8"):
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [*command, "--budget", "1e12"], cwd=ROOT, env=env, capture_output=True
        )
        assert done.returncode == 0
        assert done.stdout.startswith(b"Use 524,288 parallel")
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True)
        assert done.returncode == 2
        errors.append(done.stderr)
    assert errors[0] == errors[1]
    assert errors[0].startswith(b"error: missing argument --budget B")


def test_a_reader_that_left() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "bridge.predict", "--budget", "1e12"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@COMMANDS
def test_help_is_made_from_types(main: Command) -> None:
    outcome = call(main, "--help")
    assert outcome.code == 0
    module = sys.modules[main.__module__]
    for field in dataclasses.fields(module.Arguments):
        assert field.name.replace("_", "-") in outcome.out.lower()
    assert "--no-json" not in outcome.out


def test_our_own_mistakes_keep_their_trace() -> None:
    def broken(_: predict.Arguments) -> int:
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        cli.run(predict.Arguments, broken, "x", ["--budget", "1"])


def test_a_systems_mistake_is_a_sentence() -> None:
    def full(_: predict.Arguments) -> int:
        raise OSError(28, "No space left on device", "some\nfile")

    outcome = call(
        lambda argv: cli.run(predict.Arguments, full, "x", argv), "--budget=1"
    )
    assert_refused(outcome, "No space left on device", "some")


def test_the_command_itself(tmp_path: Path) -> None:
    done = shell("bridge.predict", "--budget", "1e12", "--json", cwd=tmp_path)
    assert done.code == 0
    assert done.err == ""
    assert done.json["budget"] == 10**12
    bad = shell("bridge.predict", "--budget", "0", cwd=tmp_path)
    assert_refused(bad, "'0'")
    assert list(tmp_path.iterdir()) == []


def test_the_other_commands_themselves(tmp_path: Path) -> None:
    out = str(tmp_path / "P")
    assert shell("bridge.predict", "--budget", "1e12", "--out", out).code == 0
    made = f"{out}/prediction.json"
    assert shell("bridge.configure", made, "--out", f"{out}/c.toml").code == 0
    assert_refused(shell("bridge.judge", made, str(tmp_path)), "not a run folder")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bridge.predict", "--budget", "1e12"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
