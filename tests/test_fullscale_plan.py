"""The plan of a run: shares, memory, operations; impossible devices are refused."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import costs, memory, mesh, plan, shares
from fullscale.config import MAX_COUNT, ConfigError, RunConfig, dumps
from fullscale.presets import preset
from tests.support.runs import Outcome, assert_refused, call
from tests.support.trainer import SMALL_LQR, SMALL_REACHER, setup

MILLION = preset(
    "reacher", 10**12, num_envs=2**20, rollout_length=64, minibatch_size=2**20,
    com=1024.0,
)  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    """Any split of environments, rollouts, minibatches and seeds."""
    envs = draw(st.sampled_from([1, 3, 16, 24, 64, 128, 4096]))
    length = draw(st.sampled_from([1, 5, 8, 32]))
    samples = envs * length
    divisors = [m for m in range(1, samples + 1) if samples % m == 0]
    size = draw(st.sampled_from(divisors))
    return preset(
        "lqr", 10**9, num_envs=envs, rollout_length=length, minibatch_size=size,
        num_seeds=draw(st.integers(1, 6)),
    )  # fmt: skip


@given(config=configs(), devices=st.integers(1, 80))
def test_shares_add_up_to_the_whole(config: RunConfig, devices: int) -> None:
    if not shares.fits(config, devices):
        with pytest.raises(ConfigError, match=f"devices = {devices} "):
            shares.share(config, devices)
        return
    part = shares.share(config, devices)
    assert part.seeds * devices == config.num_seeds * part.devices_per_seed
    assert part.num_envs * part.devices_per_seed == config.num_envs
    assert part.blocks * part.devices_per_seed == config.num_blocks
    assert part.rows * part.devices_per_seed == config.samples_per_update
    assert part.minibatch_rows * part.devices_per_seed == config.minibatch_size
    assert part.rows % part.minibatch_rows == 0


@given(config=configs(), devices=st.integers(-3, 500))
def test_the_nearest_numbers_of_devices_fit_and_none_is_nearer(
    config: RunConfig, devices: int
) -> None:
    most = config.num_seeds * config.num_blocks
    fitting = [d for d in range(1, most + 1) if shares.fits(config, d)]
    below = [d for d in fitting if d < devices][-1:]
    above = [d for d in fitting if d > devices][:1]
    assert shares.nearest(config, devices) == below + above
    assert fitting[0] == 1
    assert not any(shares.fits(config, d) for d in range(most + 1, 4 * most))


def test_rows_beyond_31_bits_are_refused_and_the_nearest_named() -> None:
    """T6b: 2^32 rows; a half is one row too many for 32-bit indices."""
    config = dataclasses.replace(MILLION, rollout_length=4096)
    assert config.samples_per_update == 2**32
    for devices in (1, 2):
        with pytest.raises(ConfigError, match=r"cannot be indexed.*: 4$"):
            shares.share(config, devices)
    assert shares.share(config, 4).rows == 2**30
    more = dataclasses.replace(MILLION, rollout_length=2**16)
    with pytest.raises(ConfigError, match=f"more than {MAX_COUNT}"):
        mesh.choose_devices(more, None)  # 64 devices would do; tests have 4
    odd = dataclasses.replace(
        config, num_envs=2**30 + 1, rollout_length=3, minibatch_size=2**30 + 1
    )
    with pytest.raises(ConfigError, match="use a shorter rollout"):
        shares.share(odd, 1)


def test_the_largest_row_that_is_allowed_is_exact_in_the_shuffles_arithmetic() -> None:
    blocks, per_block = 64, 2**25
    offsets = jnp.arange(blocks, dtype=jnp.int32) * per_block
    assert int(offsets[-1] + jnp.int32(per_block - 1)) == MAX_COUNT
    too_many = jnp.arange(blocks, dtype=jnp.int32) * jnp.int32(2 * per_block)
    assert int(too_many[-1]) != 63 * 2 * per_block  # wraps, so it must be refused


def bytes_on_one_device(tree: Any) -> int:
    """Of real arrays, on the first device."""
    first = jax.devices()[0]
    leaves = [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(tree)
    ]
    parts = [s for x in leaves for s in x.addressable_shards if s.device == first]
    return sum(shard.data.nbytes for shard in parts)


@pytest.mark.parametrize(
    ("config", "devices"),
    [
        (SMALL_LQR, 1),
        (SMALL_REACHER, 4),
        (dataclasses.replace(SMALL_LQR, num_seeds=2, com=4.0, outer_momentum=0.5), 4),
    ],
    ids=["lqr", "reacher on 4", "two seeds on 4"],
)
def test_the_state_is_as_large_as_real_arrays(config: RunConfig, devices: int) -> None:
    state = setup(config, devices).fresh(number=config.num_seeds)
    found = memory.measure(config, devices)
    learner = state.learner
    assert found.parameters == bytes_on_one_device(learner.parameters)
    assert found.optimiser == bytes_on_one_device(learner.optimiser)
    assert found.anchor == bytes_on_one_device((learner.anchor, learner.velocity))
    assert found.environments == bytes_on_one_device(state.worlds)
    kept = sum(found) - found.rollout - found.batch - found.shuffled
    assert kept == bytes_on_one_device(state)


def test_a_transition_has_the_bytes_of_its_parts() -> None:
    """`lqr`: 4 numbers of state, 2 of action, 4 more, and 5 marks of one byte."""
    found = memory.measure(SMALL_LQR, 1)
    transitions = SMALL_LQR.samples_per_update
    assert found.rollout == transitions * (4 * (4 + 2 + 4) + 5)
    assert found.batch == transitions * 4 * (4 + 2 + 3)
    assert found.shuffled == found.batch + transitions * 4


def test_memory_is_shared_by_devices_and_grows_with_environments() -> None:
    one, four = (memory.measure(SMALL_REACHER, devices) for devices in (1, 4))
    double = dataclasses.replace(SMALL_REACHER, num_envs=32, budget=4_096)
    for name in ("environments", "rollout", "batch", "shuffled"):
        assert getattr(one, name) == 4 * getattr(four, name)
        assert getattr(memory.measure(double, 1), name) == 2 * getattr(one, name)
    assert one.parameters == four.parameters


def test_half_precision_halves_the_stored_observations() -> None:
    half = dataclasses.replace(SMALL_REACHER, storage_precision="bfloat16")
    saved = memory.measure(SMALL_REACHER, 1).batch - memory.measure(half, 1).batch
    assert saved == SMALL_REACHER.samples_per_update * 8 * 2


def test_the_compiler_is_asked() -> None:
    found = memory.compiled(SMALL_LQR, 1)
    kept = memory.measure(SMALL_LQR, 1)
    state = sum(kept) - kept.rollout - kept.batch - kept.shuffled
    assert state <= found.alias <= found.argument <= state + 4_096
    assert found.total == (
        found.argument + found.output + found.temporary - found.alias
    )
    assert found.temporary > kept.batch
    with pytest.raises(ConfigError, match="JAX_PLATFORMS=cpu"):
        memory.compiled(dataclasses.replace(SMALL_LQR, num_seeds=8), 8)


def test_a_million_environments_are_planned_without_being_there() -> None:
    before = sum(x.nbytes for x in jax.live_arrays())
    made = plan.plan(MILLION, 8, 1e6)
    assert sum(x.nbytes for x in jax.live_arrays()) - before < 2**20
    assert made["transitions"] == 14_901 * 2**26 == 999_989_182_464
    assert made["share"]["num_envs"] == 2**17
    assert made["memory_bytes"]["rollout"] > 2**23 * 4 * (8 + 2 + 4)
    assert made["device_hours"] == pytest.approx(made["transitions"] / 3.6e9)
    assert made["hours"] == made["device_hours"] / 8


def cost(config: RunConfig) -> costs.Cost:
    made = setup(config)
    return costs.per_transition(config, made.environment, made.agent)


def test_operations_are_those_of_the_matrix_products() -> None:
    config = preset("reacher", 10**6, meter_interval=0)
    policy = 2 * (8 * 64 + 64 * 64 + 64 * 2)
    critic = 2 * (8 * 64 + 64 * 64 + 64 * 1)
    found = cost(config)
    assert found.acting == pytest.approx(policy + critic, rel=0.03)
    assert found.learning == pytest.approx(4 * 3 * (policy + critic), rel=0.03)
    assert found.measuring == pytest.approx(2 * policy, rel=0.03)
    assert found.total == pytest.approx(0.25e6, rel=0.1)  # the design's figure


def test_what_is_switched_on_costs() -> None:
    plain = cost(SMALL_REACHER)
    averaged = cost(dataclasses.replace(SMALL_REACHER, com=8.0))
    assert averaged.learning > plain.learning
    often = cost(dataclasses.replace(SMALL_REACHER, meter_interval=1))
    seldom = cost(dataclasses.replace(SMALL_REACHER, meter_interval=16))
    assert plain.measuring < seldom.measuring < often.measuring
    assert cost(dataclasses.replace(SMALL_REACHER, network="gru")).acting > plain.acting


def command(folder: Path, config: RunConfig, *options: object) -> Outcome:
    (folder / "c.toml").write_text(dumps(config))
    return call(plan.main, folder / "c.toml", *options)


def test_the_command_prints_one_object_or_words(tmp_path: Path) -> None:
    outcome = command(tmp_path, SMALL_LQR, "--devices", 4, "--json", "--throughput", 64)
    assert outcome.code == 0
    assert outcome.err == ""
    made = outcome.json
    assert made["gradient_steps"] == SMALL_LQR.gradient_steps
    assert made["share"]["minibatch_rows"] == 16
    assert made["memory_bytes"]["total"] == sum(memory.measure(SMALL_LQR, 4))
    assert made["compiled_bytes"] is None
    assert made["device_hours"] == SMALL_LQR.transitions / 64 / 3600
    json.dumps(made, allow_nan=False)
    words = command(tmp_path, SMALL_LQR, "--throughput", 64).out
    assert "lqr, 1 seed on 1 device:" in words
    assert "16 × 8 = 128 transitions per update, in 8 blocks" in words
    assert "128 gradient steps one after another"[4:] in words


def test_compiling_is_shown(tmp_path: Path) -> None:
    outcome = command(tmp_path, SMALL_LQR, "--compile", "--json")
    found = outcome.json["compiled_bytes"]
    assert found["total"] == memory.compiled(SMALL_LQR, 1).total
    words = plan.in_words(outcome.json)
    assert f"compiled   {plan.size_in_words(found['total'])} per device" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--devices", 3), ("devices = 3", "2 and 4")),
        (("--devices", 0), ("devices = 0", "the nearest that do: 1")),
        (("--devices", 1000), ("devices = 1000", "the nearest that do: 8")),
        (("--throughput", "nan"), ("--throughput nan", "positive number")),
        (("--throughput", 0), ("--throughput 0",)),
        (("--device", "x"), ("--device",)),
    ],
)
def test_the_impossible_is_refused(
    tmp_path: Path, options: tuple, words: tuple[str, ...]
) -> None:
    assert_refused(command(tmp_path, SMALL_LQR, *options), *words)


def test_a_configuration_that_cannot_run_is_refused(tmp_path: Path) -> None:
    assert_refused(call(plan.main, tmp_path / "none.toml"), "none.toml", "No such file")
    (tmp_path / "c.toml").write_text(
        'environment = "lqr"\nbudget = 1e6\nnum_envs = 48\nminibatch_size = 1000'
    )
    assert_refused(call(plan.main, tmp_path / "c.toml"), "minibatch_size", "nearest")


@given(st.integers(0, 10**18))
def test_sizes_in_words_are_right_to_three_digits(number: int) -> None:
    value, unit = plan.size_in_words(number).split()
    power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    assert math.isclose(float(value) * 1024**power, number, rel_tol=6e-3)
    assert float(value) < 1024
    np.testing.assert_array_less(0.9, float(value) if power else 1.0)
