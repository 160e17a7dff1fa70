"""T12: every key of a configuration changes something, or is refused.

A key acts in one of three places: it is a rate that the compiled update takes, it is
compiled into the program, or it is read on the host. `WHERE` has a row for every key,
so that a new key without one fails.
"""

import dataclasses
import functools
import json
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import begin, keys, schedule, score
from fullscale.config import ConfigError, RunConfig
from fullscale.files import METRICS
from fullscale.program import Program, sizes_of
from fullscale.runlog import RunWriter
from fullscale.state import Rates
from tests.support.trainer import SMALL_LQR, SMALL_REACHER, quick, setup, vector

BASE = dataclasses.replace(SMALL_REACHER, hidden_sizes=(4,))
GRU = {"network": "gru"}
PENALTY = {"surrogate": "kl"}
EWMA = {"com": 4.0}


class Row(NamedTuple):
    """A value to change a key to, and what else must be set for it to matter."""

    value: Any
    others: dict[str, Any] = {}  # noqa: RUF012


RATES = {
    "learning_rate": Row(1e-2),
    "clip_epsilon": Row(0.01),
    "kl_coefficient": Row(3.0, PENALTY),
    "target_kl": Row(1e-4),
    "com": Row(2.0, EWMA),
    "max_importance_ratio": Row(1.0, EWMA),
    "outer_learning_rate": Row(0.5),
    "outer_momentum": Row(0.9, {"outer_momentum": 0.5}),
    "schedule": Row("cosine", {"final_learning_rate": 1e-4}),
    "final_learning_rate": Row(1e-4),
    "final_clip_epsilon": Row(0.01),
    "final_outer_learning_rate": Row(0.1),
    "final_com": Row(8.0, EWMA),
    "discount": Row(0.5),
    "gae_lambda": Row(0.5),
    "value_coefficient": Row(2.0),
    "entropy_coefficient": Row(0.1),
    "value_clip": Row(0.1),
}
COMPILED = {
    "environment": Row("pendulum"),
    "num_envs": Row(32),
    "rollout_length": Row(8),
    "minibatch_size": Row(32),
    "update_epochs": Row(3),
    "optimiser": Row("sgd"),
    "momentum": Row(0.9, {"optimiser": "sgd"}),
    "adam_beta1": Row(0.5),
    "adam_beta2": Row(0.5),
    "adam_epsilon": Row(1e-3),
    "max_grad_norm": Row(1.0),
    "surrogate": Row("kl"),
    "normalise_advantages": Row(value=False),
    "advantage_scope": Row("batch"),
    "normalise_observations": Row(value=True),
    "normalise_rewards": Row(value=True),
    "network": Row("linear"),
    "hidden_sizes": Row((5,)),
    "segment_length": Row(4, GRU),
    "initial_std": Row(0.5),
    "learn_std": Row(value=False),
    "compute_precision": Row("bfloat16"),
    "storage_precision": Row("bfloat16"),
    "staggered_starts": Row("off"),
    "meter_interval": Row(1),
    "nonfinite": Row("mask"),
    "num_seeds": Row(2),
}


def first_keys(config: RunConfig) -> list:
    """The base keys that a run starts from."""
    asked: list = []
    nothing = Program(None, None, asked.append, None)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(begin, "compile_program", lambda *_: nothing)
        begin._fresh_state(config, 1)
    return np.asarray(jax.random.key_data(asked[0])).tolist()


def scored_episodes(config: RunConfig) -> int:
    """How many episodes are behind a score."""
    counted: list[int] = []

    def returns(*arguments: Any) -> np.ndarray:
        counted.append(arguments[-1])
        return np.zeros((1, arguments[-1]))

    one = setup(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "all_returns", returns)
        score.evaluate(config, one.environment, one.agent, None)
    return counted[0]


def head_of_the_log(config: RunConfig) -> str:
    """Which prediction the log says it tests."""
    with tempfile.TemporaryDirectory() as folder:
        RunWriter(Path(folder), config, "version").close()
        first, _ = (Path(folder) / METRICS).read_text().split("\n")
        return json.loads(first)["prediction"]


HOST = {
    "budget": lambda c: c.updates,  # what the loop of a run counts to
    "seed": first_keys,
    "evaluation_episodes": scored_episodes,
    "prediction": head_of_the_log,
}
HOST_VALUES: dict[str, Any] = {
    "budget": 4_096, "seed": 3, "evaluation_episodes": 9, "prediction": "a" * 64,
}  # fmt: skip


def pair(key: str, row: Row) -> tuple[RunConfig, RunConfig]:
    before = dataclasses.replace(BASE, **row.others)
    return before, dataclasses.replace(before, **{key: row.value})


@functools.lru_cache
def start(config: RunConfig) -> str:
    """How a run starts, as text."""
    base = keys.base_keys(0, config.num_seeds)
    return str(setup(config).start.trace(base).jaxpr)


@functools.lru_cache
def chunk(config: RunConfig) -> str:
    """What updates are, as text."""
    one = setup(config)
    state = jax.eval_shape(one.start, keys.base_keys(0, config.num_seeds))
    return str(one.chunk.trace(state, one.rates(), jnp.int32(1)).jaxpr)


def same_program(first: RunConfig, second: RunConfig) -> bool:
    """Whether the same is compiled; updates are traced only if that decides."""
    return start(first) == start(second) and chunk(first) == chunk(second)


def test_every_key_has_a_row() -> None:
    names = {field.name for field in dataclasses.fields(RunConfig)}
    rows = [*RATES, *COMPILED, *HOST]
    assert len(rows) == len(set(rows))
    assert set(rows) == names


@pytest.mark.parametrize("key", RATES)
def test_a_rate_moves_the_table_of_rates(key: str) -> None:
    before, after = pair(key, RATES[key])
    first, second = (schedule.rates(c, range(5)) for c in (before, after))
    differ = [
        name
        for name in Rates._fields
        if not np.array_equal(getattr(first, name), getattr(second, name))
    ]
    assert len(differ) == 1
    # and such runs share a program, unless the change switches something on
    switched = {"target_kl", "value_clip", "entropy_coefficient"}
    assert (sizes_of(before) == sizes_of(after)) == (key not in switched)


EVERYTHING: dict[str, Any] = {
    "com": 4.0, "target_kl": 1e9, "value_clip": 1e9, "outer_momentum": 0.5,
    "max_importance_ratio": 1e9,
}  # fmt: skip


@pytest.mark.parametrize(
    "surrogate", ["clip", pytest.param("kl", marks=pytest.mark.slow)]
)
def test_every_rate_moves_the_update(surrogate: str) -> None:
    """Two updates of a run that has everything switched on, each rate changed alone.

    The entropy of a policy of fixed variance is a constant, so its bonus is idle here.
    """
    changes = {**EVERYTHING, "surrogate": surrogate}
    one = quick(setup(dataclasses.replace(SMALL_LQR, **changes)))
    fresh = one.fresh()
    reference, _ = one.run(fresh, one.rates(), 2)
    idle = {"clip_epsilon" if surrogate == "kl" else "kl_coefficient"}
    idle |= {"entropy_coefficient"}
    for name in Rates._fields:
        changed = float(getattr(one.rates(), name)[0]) * 0.5
        changed = {
            "target_kl": 1e-6, "value_clip": 1e-6, "max_importance_ratio": 0.9,
            "entropy_coefficient": 0.1,
        }.get(name, changed)  # fmt: skip
        after, _ = one.run(fresh, one.rates(**{name: changed}), 2)
        moved = not np.array_equal(vector(after.learner), vector(reference.learner))
        assert moved == (name not in idle), name


@pytest.mark.parametrize("key", COMPILED)
def test_what_is_compiled_in_changes_the_program(key: str) -> None:
    before, after = pair(key, COMPILED[key])
    assert not same_program(before, after)
    assert sizes_of(before) != sizes_of(after)


def test_the_same_configuration_is_the_same_program() -> None:
    """The negative control: texts that differ do so for a reason."""
    other = dataclasses.replace(BASE, budget=4_096, seed=5)
    assert chunk(BASE) is not chunk(other)
    assert same_program(BASE, other)


@pytest.mark.parametrize("key", HOST)
def test_what_the_host_reads_is_read(key: str) -> None:
    other = dataclasses.replace(BASE, **{key: HOST_VALUES[key]})
    assert HOST[key](BASE) != HOST[key](other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"momentum": 0.5}, "momentum = 0.5 should be 0 with optimiser"),
        ({"segment_length": 4}, "segment_length = 4 should be 0 with network"),
        ({"network": "linear", "compute_precision": "bfloat16"}, "only hidden layers"),
        ({"final_com": 4.0}, "needs a number in com"),
        ({"learning_rate": math.nan}, "learning_rate = nan"),
    ],
)
def test_what_would_change_nothing_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(BASE, **changes)
