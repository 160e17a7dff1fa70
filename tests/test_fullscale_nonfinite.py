"""T10: numbers that are not finite are counted, named, and stopped or masked."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import begin, program, run, storage
from fullscale.alarms import Diverged, check_finite
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment, Step
from fullscale.measure import nonfinite
from fullscale.mesh import make_mesh
from fullscale.state import TrainState, Trajectory
from tests.support.trainer import SMALL_LQR, Setup, quick, setup_in, vector

STOP = SMALL_LQR
MASK = dataclasses.replace(SMALL_LQR, nonfinite="mask")
NAMES = {
    "observation": "nonfinite_observations",
    "reward": "nonfinite_rewards",
    "gradient": "nonfinite_gradients",
}
WHEN, BLOCK, ENV = 13, 2, 1  # step 13 is in update 2; environment 2·2 + 1 = 5
UPDATE, INDEX = 2, 5


def poisoned() -> Environment:
    """`lqr` whose state counts down to one bad step of a given kind.

    The states of `armed` alone do; the environments that follow a reset are clean. A
    gradient breaks by a reward that is finite, but whose square is not.
    """
    clean = make_environment(SMALL_LQR)

    def reset(key: Any, number: int) -> tuple[Any, Any]:
        state, observation = clean.reset(key, number)
        never = jnp.zeros(number, jnp.int32)
        return (state, never, never), observation

    def step(key: Any, state: Any, action: Any) -> Step:
        inner, left, kind = state
        out = clean.step(key, inner, action)
        observation, reward, gradient = (
            (left == 1) & (kind == number) for number in range(3)
        )
        value = jnp.where(reward, jnp.nan, out.reward)
        return out._replace(
            state=(out.state, jnp.maximum(left - 1, 0), kind),
            observation=jnp.where(observation[:, None], jnp.inf, out.observation),
            reward=jnp.where(gradient, -1e30, value),
            terminated=out.terminated & (left == 0),
        )

    return dataclasses.replace(clean, reset=reset, step=step)


def armed(state: TrainState, kind: str) -> TrainState:
    """The first states, of which one environment counts down."""
    inner, left, _ = state.worlds.state
    left = left.at[:, BLOCK, ENV].set(WHEN)
    number = list(NAMES).index(kind)
    kinds = jnp.full_like(left, number)
    return state._replace(worlds=state.worlds._replace(state=(inner, left, kinds)))


@functools.lru_cache
def masked() -> Setup:
    return quick(setup_in(poisoned(), MASK))


@pytest.mark.parametrize("kind", NAMES)
def test_masked_they_are_counted_and_the_run_goes_on(kind: str) -> None:
    one = masked()
    state, metrics = one.run(armed(one.fresh(), kind), one.rates(), 4)
    counts = {name: metrics[name][:, 0].tolist() for name in NAMES.values()}
    bad = counts.pop(NAMES[kind])
    assert all(other == [0, 0, 0, 0] for other in counts.values())
    assert [n > 0 for n in bad] == [False, True, False, False]
    assert np.isfinite(vector(state.learner)).all()
    assert np.isfinite(vector(state.worlds.observation)).all()
    first, skipped = (
        metrics[name][:, 0].tolist()
        for name in ("nonfinite_environment", "skipped_gradient_steps")
    )
    if kind == "gradient":
        assert skipped == bad
        assert 0 < bad[1] <= MASK.gradient_steps_per_update
    else:
        assert bad[1] == 1
        assert first == [-1, INDEX, -1, -1]
        assert skipped == [0, 0, 0, 0]


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes runs start from armed states, in one program for all kinds."""
    plain = stopped_program()

    def arm(kind: str) -> None:
        start = plain.start
        broken = plain._replace(start=lambda keys: armed(start(keys), kind))
        for module in (run, begin):
            monkeypatch.setattr(module, "compile_program", lambda *_: broken)

    return arm


@functools.lru_cache
def stopped_program() -> program.Program:
    one = quick(setup_in(poisoned(), STOP, 1, program.CHUNK))
    return program.Program(one.environment, one.agent, one.start, one.chunk)


@pytest.mark.parametrize("kind", NAMES)
def test_by_default_a_run_stops_and_says_where(
    kind: str, tmp_path: Path, stopping: Callable[[str], None]
) -> None:
    """What was logged until then, the row that broke included, is in the folder."""
    stopping(kind)
    folder = tmp_path / "run"
    where = "" if kind == "gradient" else f", first in environment {INDEX}"
    with pytest.raises(
        Diverged,
        match=rf"{NAMES[kind]} = \d+ at update {UPDATE} \(256 transitions\) for seed "
        rf"number 0{where}; nonfinite",
    ):
        run.train(STOP, folder, 1)
    record = storage.read(folder)
    assert record.updates == UPDATE
    assert [n > 0 for n in record.metrics[NAMES[kind]][:, 0]] == [False, True]
    assert not list(folder.glob("checkpoints/*"))


def row(**changes: float) -> dict[str, Any]:
    names = ("policy_loss", "value_loss", "grad_norm", "outer_kl", *NAMES.values())
    values = {name: np.zeros(2) for name in names}
    values["nonfinite_environment"] = np.array([-1.0, 5.0])
    for name, value in changes.items():
        values[name][1] = value
    return {"updates": 7, "transitions": 896, **values}


def test_the_first_metric_is_named_before_what_follows_from_it() -> None:
    check_finite(STOP, row())
    with pytest.raises(
        Diverged, match=r"nonfinite_rewards = 3 at update 7 .*seed number 1, first in e"
        r"nvironment 5"
    ):  # fmt: skip
        check_finite(STOP, row(nonfinite_rewards=3, value_loss=np.nan))
    with pytest.raises(Diverged, match="value_loss is not finite at update 7"):
        check_finite(STOP, row(value_loss=np.inf))
    check_finite(MASK, row(nonfinite_rewards=3, value_loss=np.nan))
    with pytest.raises(Diverged, match="outer_kl is not finite"):
        check_finite(MASK, row(outer_kl=np.nan))


def counted(bad_reward: np.ndarray, bad_observation: np.ndarray, devices: int) -> dict:
    """`nonfinite` of marks [time, block, env], with blocks spread over devices."""
    empty = dict.fromkeys(Trajectory._fields)
    spec = jax.sharding.PartitionSpec
    blocks = jnp.arange(bad_reward.shape[1])

    def count(reward: Any, observation: Any, blocks: Any) -> dict:
        marks = {
            "reward": jnp.zeros(reward.shape), "bad_reward": reward,
            "bad_observation": observation,
        }  # fmt: skip
        return nonfinite(Trajectory(**{**empty, **marks}), blocks)

    mapped = jax.shard_map(
        count, mesh=make_mesh(devices), out_specs=spec(),
        in_specs=(spec(None, "device"), spec(None, "device"), spec("device")),
    )  # fmt: skip
    found = jax.jit(mapped)(
        jnp.asarray(bad_reward), jnp.asarray(bad_observation), blocks
    )
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("devices", [1, 4])
def test_the_first_environment_is_the_lowest_at_the_earliest_time(devices: int) -> None:
    """Against a loop, over marks that become rarer."""
    rng = np.random.default_rng(0)
    for rate in (0.3, 0.05, 0.01, 0.0):
        reward, observation = rng.random((2, 6, 4, 3)) < rate
        first = -1
        for time, block, env in np.ndindex(reward.shape):
            if reward[time, block, env] or observation[time, block, env]:
                first = block * 3 + env
                break
        found = counted(reward, observation, devices)
        assert found == {
            "nonfinite_rewards": reward.sum(),
            "nonfinite_observations": observation.sum(),
            "nonfinite_environment": first,
        }
