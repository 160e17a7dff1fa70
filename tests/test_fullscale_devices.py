"""Devices: their number changes nothing, and they hold the same."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullscale import keys, mesh, replicas, run
from fullscale.alarms import Diverged, check_replicas
from fullscale.counters import Counters
from fullscale.presets import preset
from fullscale.state import TrainState
from tests.support.trainer import SMALL_LQR, setup

ROOT = Path(__file__).parent.parent

# One to eight devices, in both precisions; everything that is reduced is switched on.
SCRIPT = """
import dataclasses, json, sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
import numpy as np
from tests.support.trainer import SMALL_LQR, setup, vector

config = dataclasses.replace(
    SMALL_LQR, com=4.0, outer_momentum=0.5, max_grad_norm=0.5,
    target_kl=10.0, outer_learning_rate=0.8,
)
assert config.num_blocks == 8
for double in (False, True):
    with jax.enable_x64(double):
        thetas = []
        for devices in (1, 2, 4, 8):
            one = setup.__wrapped__(config, devices, 1)
            state, _ = one.run(one.fresh(), one.rates(), 1)
            thetas.append(vector((state.learner.parameters, state.learner.anchor)))
        apart = [float(np.linalg.norm(t - thetas[0])) for t in thetas]
        print(json.dumps({"apart": apart, "norm": float(np.linalg.norm(thetas[0]))}))
"""


@pytest.mark.slow
def test_one_two_four_and_eight_devices_agree_in_both_precisions() -> None:
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    single, double = (json.loads(line) for line in out.splitlines())
    for found, tolerance in ((single, 1e-5), (double, 1e-10)):
        assert len(found["apart"]) == 4
        assert max(found["apart"]) <= tolerance * found["norm"]
    assert max(single["apart"]) > 0.0  # else devices were not really several


# Replicas.


def held(state: TrainState) -> np.ndarray:
    """Checksums [seed, device] of a state on four devices."""
    compute = replicas.compile_checksums(mesh.make_mesh(4))
    assert compute is not None
    return np.asarray(compute(state))


def corrupted(state: TrainState, device: int) -> TrainState:
    """The same, but for the last bit of one number on one device."""
    kernel = state.learner.parameters["policy"]["Dense_0"]["kernel"]
    copies = [np.array(shard.data) for shard in kernel.addressable_shards]
    copies[device].view(np.uint32)[..., -1, -1] ^= 1
    parts = [
        jax.device_put(copy, shard.device)
        for copy, shard in zip(copies, kernel.addressable_shards, strict=True)
    ]
    bad = jax.make_array_from_single_device_arrays(kernel.shape, kernel.sharding, parts)
    parameters = {**state.learner.parameters, "policy": {"Dense_0": {"kernel": bad}}}
    return state._replace(learner=state.learner._replace(parameters=parameters))


def test_devices_hold_the_same_and_one_wrong_bit_is_noticed() -> None:
    state = setup(SMALL_LQR, 4).fresh()
    sums = held(state)
    assert sums.shape == (1, 4)
    check_replicas(sums, Counters())
    done = Counters().after(SMALL_LQR, 3)
    for device in (0, 3):
        bad = held(corrupted(state, device))
        assert len(set(bad[0].tolist())) == 2
        with pytest.raises(
            Diverged,
            match=r"seed number 0 hold different learners after update 3 \(384 trans",
        ) as caught:
            check_replicas(bad, done)
        for number in bad[0]:
            assert f"{number:08x}" in str(caught.value)


def test_the_seed_whose_devices_differ_is_named() -> None:
    sums = np.array([[5, 5], [7, 8]], np.uint32)
    with pytest.raises(Diverged, match=r"seed number 1 .* 00000007, 00000008 should"):
        check_replicas(sums, Counters())
    check_replicas(sums[:1], Counters())


def test_a_run_stops_when_its_devices_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rows of the chunk are written, and before any checkpoint."""
    program = run.compile_program(run.sizes_of(SMALL_LQR), 4)
    assert program.checksums is not None
    state = program.start(keys.base_keys(0, 1))
    assert len(set(np.asarray(program.checksums(state))[0].tolist())) == 1
    zeros = {name: np.ones((16, 1)) for name in ("policy_loss", "value_loss")}
    zeros |= {name: np.ones((16, 1)) for name in ("grad_norm", "outer_kl")}

    def chunk(state: TrainState, *_: object) -> tuple[TrainState, dict]:
        return corrupted(state, 2), zeros

    broken = program._replace(chunk=chunk)
    monkeypatch.setattr(run, "compile_program", lambda *_: broken)
    with pytest.raises(Diverged, match=r"different learners after update 16 .*2048"):
        run.train(dataclasses.replace(SMALL_LQR, budget=128 * 20), tmp_path / "run", 4)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["updates"] == 16
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_one_device_has_nothing_to_compare() -> None:
    assert replicas.compile_checksums(mesh.make_mesh(1)) is None
    assert replicas.compile_checksums(mesh.make_mesh(4, num_seeds=4)) is None


word = st.integers(0, 2**32 - 1)
checksum = jax.jit(replicas.checksum)


@given(st.lists(word, min_size=6, max_size=6), st.integers(0, 5), word)
@settings(max_examples=50)
def test_every_changed_word_and_place_changes_the_checksum(
    words: list[int], place: int, other: int
) -> None:
    tree = {"a": jnp.uint32(words[:4]), "b": jnp.uint32(words[4:])}
    expected = sum((2 * i + 1) * w for i, w in enumerate(words)) % 2**32
    assert int(checksum(tree)) == expected
    changed = [*words]
    changed[place] = other
    again = checksum({"a": jnp.uint32(changed[:4]), "b": jnp.uint32(changed[4:])})
    assert (int(again) != expected) == (words != changed)


def test_the_checksum_is_of_bits_of_any_kind() -> None:
    """−0 and 0 differ, NaN equals itself; keys, flags, halves and integers count."""

    def of(*leaves: Any) -> int:
        return int(replicas.checksum(leaves))

    assert of(jnp.float32(0.0)) != of(jnp.float32(-0.0))
    assert of(jnp.float32(np.nan)) == of(jnp.float32(np.nan))
    assert of(jax.random.key(1)) != of(jax.random.key(2))
    assert of(jnp.ones((), bool)) != of(jnp.zeros((), bool))
    assert of(jnp.bfloat16(1.0)) != of(jnp.bfloat16(2.0))
    assert of(jnp.int32([1, 2])) != of(jnp.int32([2, 1]))


# What comes back from the devices.


def test_what_an_update_returns_does_not_grow() -> None:
    """Neither with N nor T: [capacity, seed] numbers, whatever was collected."""
    config = preset(
        "lqr", 2**20, num_envs=256, rollout_length=32, minibatch_size=64, num_seeds=2
    )
    assert config.meter_interval
    one = setup(config, 1, 3)
    state = jax.eval_shape(one.start, keys.base_keys(0, 2))
    _, metrics = jax.eval_shape(one.chunk, state, one.rates(), jnp.int32(3))
    assert {value.shape for value in metrics.values()} == {(3, 2)}
