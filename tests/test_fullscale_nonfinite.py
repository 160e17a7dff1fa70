"""T10: numbers that are not finite are counted, named, and stopped or masked."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import program, run, storage
from fullscale.alarms import Diverged, check_finite
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment, Step
from fullscale.measure import nonfinite
from fullscale.mesh import make_mesh
from fullscale.state import Trajectory
from tests.support.trainer import SMALL_LQR, setup_in, vector

STOP = SMALL_LQR
MASK = dataclasses.replace(SMALL_LQR, nonfinite="mask")
FAR = 2.5  # a first coordinate that is reached now and then


def poisoned(kind: str) -> Environment:
    """`lqr` whose reward, observation or gradient breaks where a state is far out."""
    clean = make_environment(SMALL_LQR)

    def step(key: Any, state: Any, action: Any) -> Step:
        out = clean.step(key, state, action)
        bad = jnp.abs(state[:, 0]) > FAR
        if kind == "reward":
            return out._replace(reward=jnp.where(bad, jnp.nan, out.reward))
        if kind == "gradient":
            return out._replace(reward=jnp.where(bad, -1e30, out.reward))
        seen = jnp.where(bad[:, None], jnp.inf, out.observation)
        return out._replace(observation=seen)

    return dataclasses.replace(clean, step=step)


NAMES = {
    "reward": "nonfinite_rewards",
    "observation": "nonfinite_observations",
    "gradient": "nonfinite_gradients",
}


@pytest.mark.parametrize("kind", NAMES)
def test_masked_they_are_counted_and_the_run_goes_on(kind: str) -> None:
    one = setup_in(poisoned(kind), MASK)
    state, metrics = one.run(one.fresh(), one.rates(), 4)
    counts = {name: metrics[name].sum() for name in NAMES.values()}
    assert counts.pop(NAMES[kind]) > 0
    assert not any(counts.values())
    assert np.isfinite(vector(state.learner)).all()
    assert np.isfinite(vector(state.worlds.observation)).all()
    if kind == "gradient":
        np.testing.assert_array_equal(
            metrics["skipped_gradient_steps"], metrics["nonfinite_gradients"]
        )
    else:
        assert (metrics["nonfinite_environment"].max()) >= 0


@pytest.mark.parametrize("kind", NAMES)
def test_by_default_a_run_stops_and_says_where(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was logged until then, the row that broke included, is in the folder."""
    monkeypatch.setattr(program, "make_environment", lambda _: poisoned(kind))
    program.compile_program.cache_clear()
    folder = tmp_path / "run"
    with pytest.raises(
        Diverged, match=rf"{NAMES[kind]} = \d+ at update \d+ \("
    ) as says:
        run.train(STOP, folder)
    program.compile_program.cache_clear()
    text = str(says.value)
    assert ("first in environment" in text) == (kind != "gradient")
    update = int(text.split("at update ")[1].split()[0])
    record = storage.read(folder)
    assert record.updates == update
    assert record.metrics[NAMES[kind]][-1, 0] > 0
    assert not record.metrics[NAMES[kind]][:-1].any()


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
