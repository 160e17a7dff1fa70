"""Schedules end exactly where the budget does, in the table and in the run."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import schedule, sinks
from fullscale.alarms import MUST_BE_FINITE
from fullscale.config import CONSTANT, ConfigError, RunConfig
from fullscale.config.checks import SCHEDULED
from fullscale.counters import Counters
from fullscale.program import CHUNK, Program
from fullscale.run import _Loop, chunk_length
from fullscale.saver import Saver
from fullscale.state import Rates
from tests.support.trainer import SMALL_LQR

SHAPES = ("linear", "cosine", "exponential")
EVERY: dict[str, Any] = {"com": 8.0, "final_com": 64.0, "final_learning_rate": 0.0,
         "final_clip_epsilon": 0.05, "final_outer_learning_rate": 0.1}  # fmt: skip
SAMPLES = SMALL_LQR.samples_per_update


def scheduled(updates: int, remainder: int = 0, **changes: Any) -> RunConfig:
    """A run of so many updates, and a remainder of its budget that makes none."""
    budget = updates * SAMPLES + remainder
    changes = {"meter_interval": 0, **changes}
    return dataclasses.replace(SMALL_LQR, budget=budget, **changes)


knob = st.floats(1e-3, 10.0)
lengths = st.integers(2, 200)


@given(
    st.sampled_from(SHAPES), st.sampled_from(SCHEDULED), knob, knob, lengths,
    st.integers(0, SAMPLES - 1),
)  # fmt: skip
def test_it_ends_exactly_at_the_last_update_and_goes_one_way(
    shape: str, name: str, first: float, final: float, updates: int, remainder: int
) -> None:
    changes = {name: first, f"final_{name}": final}
    config = scheduled(updates, remainder, schedule=shape, **changes)
    assert config.updates == updates
    assert config.transitions == config.budget - remainder
    found = schedule.values(config, name, range(updates))
    assert (found[0], found[-1]) == (first, final)
    steps = np.diff(found) * np.sign(final - first)
    assert (steps >= -1e-12).all()
    assert found.min() >= min(first, final)
    assert found.max() <= max(first, final)
    beyond = schedule.values(config, name, [updates, 2 * updates, 10**9])
    np.testing.assert_array_equal(beyond, final)


@given(st.sampled_from(("linear", "cosine")), knob, lengths)
def test_a_way_to_zero_is_never_negative_and_does_not_wrap(
    shape: str, first: float, updates: int
) -> None:
    config = scheduled(
        updates, schedule=shape, learning_rate=first, final_learning_rate=0.0
    )
    found = schedule.values(config, "learning_rate", range(3 * updates))
    assert found.min() >= 0.0
    assert found[updates - 2] > 0.0
    np.testing.assert_array_equal(found[updates - 1 :], 0.0)


@given(knob, knob, lengths)
def test_values_are_optaxs(first: float, final: float, updates: int) -> None:
    at, last = np.arange(updates), updates - 1
    twins = {
        "linear": lambda k: first + (final - first) * k / last,
        "cosine": optax.cosine_decay_schedule(first, last, final / first),
        "exponential": optax.exponential_decay(first, last, final / first),
    }
    for shape, twin in twins.items():
        config = scheduled(
            updates, schedule=shape, learning_rate=first, final_learning_rate=final
        )
        found = schedule.values(config, "learning_rate", at)
        expected = jnp.stack([jnp.asarray(twin(float(k))) for k in at[:: max(1, last)]])
        np.testing.assert_allclose(found[:: max(1, last)], expected, rtol=1e-4)
        middle = last // 2
        np.testing.assert_allclose(
            found[middle], float(twin(float(middle))), rtol=1e-4, atol=1e-6
        )


def test_one_update_has_the_configured_value_and_constants_stay() -> None:
    config = scheduled(1, schedule="cosine", final_learning_rate=0.0)
    assert schedule.values(config, "learning_rate", [0])[0] == SMALL_LQR.learning_rate
    config = scheduled(10)
    found = schedule.values(config, "clip_epsilon", range(12))
    np.testing.assert_array_equal(found, SMALL_LQR.clip_epsilon)


def test_the_table_has_a_column_for_every_rate() -> None:
    config = scheduled(9, **EVERY)
    found = schedule.rates(config, range(9))
    for name in Rates._fields:
        column = np.asarray(getattr(found, name))
        assert column.shape == (9,)
        first, last = column[0], column[-1]
        if name == "ewma_decay":
            np.testing.assert_allclose([first, last], [8 / 9, 64 / 65], rtol=1e-6)
        elif name in SCHEDULED:
            expected = [getattr(config, name), EVERY[f"final_{name}"]]
            np.testing.assert_array_equal(
                [first, last], np.asarray(expected, np.float32)
            )
        else:
            np.testing.assert_array_equal(column, np.float32(getattr(config, name)))


def test_what_has_no_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="'discount' has no schedule; learning_rate"):
        schedule.values(SMALL_LQR, "discount", [0])
    with pytest.raises(ValueError, match="no number to schedule"):
        schedule.values(SMALL_LQR, "com", [0])
    with pytest.raises(ConfigError, match=r"final_clip_epsilon = 0.0 .*positive"):
        scheduled(4, schedule="exponential", final_clip_epsilon=0.0)
    with pytest.raises(ConfigError, match=r"final_com = 4.0 needs a number in com"):
        scheduled(4, final_com=4.0)
    with pytest.raises(ConfigError, match=r"final_learning_rate = -0.1 .*not negative"):
        scheduled(4, final_learning_rate=-0.1)


# What a run really uses.


class Recorder(sinks.Log, Saver):
    """Stands for the compiled update, the log and the saver of a run."""

    def __init__(self, interval: int = 0) -> None:
        self.used: list[Rates] = []
        self.rows: list[dict] = []
        self.rows_seen: list[dict] = []
        self.interval = interval

    def chunk(self, state: int, rates: Rates, count: jax.Array) -> tuple:
        self.used += [jax.tree.map(lambda x, i=i: x[i], rates) for i in range(count)]
        row = dict.fromkeys(MUST_BE_FINITE, np.ones((CHUNK, 1)))
        return state + int(count), row

    def append(self, row: Any) -> None:
        self.rows.append(row)

    def limit(self, done: int, count: int) -> int:
        interval = self.interval
        return min(count, interval - done % interval) if interval else count

    def due(self, done: int) -> bool:
        return bool(self.interval) and done % self.interval == 0

    def save(self, *_: object, **__: object) -> None: ...

    def finish(self, *_: object) -> None: ...


def run(config: RunConfig, done: int = 0, interval: int = 0) -> Recorder:
    """The host's loop from update `done` on."""
    one = Recorder(interval)
    nothing: Any = None
    program = Program(nothing, nothing, nothing, one.chunk)
    begun = Counters().after(config, done)
    loop = _Loop(config, program, one, one.rows_seen.append, one)
    assert loop.run(done, begun) == config.updates
    return one


@pytest.mark.parametrize("updates", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("interval", [0, 7])
def test_a_run_uses_the_whole_schedule_and_nothing_else(
    updates: int, interval: int
) -> None:
    """Also in chunks that checkpoints cut, and when resumed half-way."""
    config = scheduled(updates, remainder=SAMPLES - 1, **EVERY)
    one = run(config, interval=interval)
    assert len(one.used) == len(one.rows) == updates
    for name in ("learning_rate", "clip_epsilon", "outer_learning_rate"):
        expected = schedule.values(config, name, range(updates))
        used = [float(getattr(rates, name)) for rates in one.used]
        np.testing.assert_array_equal(used, np.float32(expected))
        logged = [row[name] for row in one.rows]
        np.testing.assert_array_equal(logged, expected)
    assert one.rows[-1]["transitions"] == updates * SAMPLES <= config.budget
    half = run(config, done=updates // 2, interval=interval)
    assert [r["updates"] for r in half.rows] == list(
        range(updates // 2 + 1, updates + 1)
    )
    np.testing.assert_array_equal(
        [rates.learning_rate for rates in half.used],
        [rates.learning_rate for rates in one.used[updates // 2 :]],
    )


@given(st.integers(1, 100), st.integers(0, 20))
def test_metered_updates_go_alone_and_chunks_cover_the_run(
    updates: int, interval: int
) -> None:
    config = scheduled(updates, meter_interval=interval)
    done = 0
    while done < updates:
        count = chunk_length(config, done)
        assert 1 <= count <= CHUNK
        metered = [
            u
            for u in range(done + 1, done + count + 1)
            if interval and u % interval == 0
        ]
        assert not metered or (count == 1)
        done += count
    assert done == updates


def test_the_columns_of_a_run_are_those_that_change() -> None:
    one = run(scheduled(3))
    assert "learning_rate" in one.rows[0]
    assert "clip_epsilon" not in one.rows[0]
    assert scheduled(3).final_clip_epsilon == CONSTANT


def test_transitions_are_the_budget_rounded_down() -> None:
    config = scheduled(5, remainder=SAMPLES - 1)
    one = run(config)
    assert [row["transitions"] for row in one.rows] == [
        SAMPLES * k for k in range(1, 6)
    ]
    with pytest.raises(ConfigError, match="less than one update"):
        dataclasses.replace(SMALL_LQR, budget=SAMPLES - 1)
