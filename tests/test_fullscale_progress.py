"""Progress: speed of late, time left, DDR so far; silent where it should be."""

import io
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import progress as module
from fullscale.progress import Pace, describe, duration, progress
from tests.support.trainer import SMALL_LQR

SAMPLES = SMALL_LQR.samples_per_update


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def row(update: int, kl: float = 1e-3, **more: Any) -> dict[str, Any]:
    return {
        "updates": update,
        "transitions": update * SAMPLES,
        "outer_kl": [kl],
        "exact_return": [-2.5],
        **more,
    }


def test_speed_is_that_of_late_and_not_of_the_compiling() -> None:
    clock = Clock()
    pace = Pace(SMALL_LQR, clock)
    assert math.isnan(pace.transitions_per_second)
    assert math.isnan(pace.seconds_left)
    clock.now += 50.0  # compiling
    pace.add(row(1))
    assert pace.transitions_per_second == pytest.approx(SAMPLES / 50.0)
    for update in range(2, 12):
        clock.now += 10.0
        pace.add(row(update))
    assert pace.transitions_per_second == pytest.approx(SAMPLES / 10.0)
    left = SMALL_LQR.transitions - 11 * SAMPLES
    assert pace.seconds_left == pytest.approx(left / (SAMPLES / 10.0))


def test_a_resumed_run_counts_from_where_it_went_on() -> None:
    clock = Clock()
    pace = Pace(SMALL_LQR, clock)
    for update in (9, 10):
        clock.now += 2.0
        pace.add(row(update))
    assert pace.transitions_per_second == pytest.approx(SAMPLES / 2.0)


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=20))
def test_ddr_is_a_ratio_of_sums(kl: list[float]) -> None:
    pace = Pace(SMALL_LQR, Clock())
    for update, value in enumerate(kl, start=1):
        pace.add(row(update, value))
    assert pace.ddr == pytest.approx(len(kl) * SAMPLES / math.fsum(kl))


def test_ddr_of_a_policy_that_does_not_move_is_infinite() -> None:
    pace = Pace(SMALL_LQR, Clock())
    pace.add(row(1, 0.0))
    assert pace.ddr == math.inf
    assert "DDR inf" in describe(row(1, 0.0), pace)


def test_the_meters_cost_is_shown_where_there_is_one() -> None:
    clock = Clock()
    pace = Pace(SMALL_LQR, clock)
    clock.now += 10.0
    pace.add(row(1, meter_seconds=math.nan))
    assert "meters" not in describe(row(1), pace)
    pace.add(row(2, meter_seconds=2.0))
    assert "meters 20.0% of the time" in describe(row(2), pace)


def test_a_line_says_speed_time_return_and_ddr() -> None:
    clock = Clock()
    pace = Pace(SMALL_LQR, clock)
    clock.now += 1.0
    pace.add(row(1))
    line = describe(row(1), pace)
    assert line == "128 transitions/s · 15 s left · J -2.5 · DDR 1.28e+05"
    episodes = {**row(1), "exact_return": [math.nan], "episode_return": [3.0]}
    assert "return 3" in describe(episodes, pace)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5_900.0, "98 min"),
        (6_000, "1 h 40 min"), (172_000.0, "47 h 47 min"), (259_200.0, "3 d 0 h"),
    ],
)  # fmt: skip
def test_spans_of_time_in_words(seconds: float | int, text: str) -> None:
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_quiet_says_nothing_and_a_file_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress(SMALL_LQR, quiet=True) as report:
        report(row(1))
    assert stream.getvalue() == ""
    with progress(SMALL_LQR) as report:
        for update in range(1, SMALL_LQR.updates + 1):
            report(row(update))
    lines = stream.getvalue().splitlines()  # the first, and the last
    assert len(lines) == 2
    assert re.match(r"update 1/16 · [\d,]+ transitions/s · .* left · J -2\.5", lines[0])
    assert lines[1].startswith("update 16/16 · ")
    assert "left" not in lines[1]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(module, "BAR_SECONDS", 0.0)
    with progress(SMALL_LQR) as report:
        report(row(1))
        report(row(16))
    assert "2,048/2,048 transitions" in stream.getvalue()
