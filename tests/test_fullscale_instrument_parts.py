"""The meters' parts, each against a slow twin."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from fullscale import instruments, measure, mesh
from fullscale.environments import make_environment
from fullscale.network import make_agent
from fullscale.presets import preset
from fullscale.state import Batch, Learner
from fullscale.update import start_learner
from tests.benchmarks import meter_bias
from tests.support import one_theta
from tests.support.statistical import assert_mean
from theory import bandit


def on_one_device(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function where the mesh axes exist."""
    whole = PartitionSpec()
    mapped = jax.shard_map(
        function, mesh=mesh.make_mesh(1), in_specs=whole, out_specs=whole,
        check_vma=False,
    )  # fmt: skip
    return jax.jit(mapped, compiler_options=one_theta.FAST)(*arguments)


def test_two_batch_sizes_of_known_covariance() -> None:
    """T16: tr Σ of one transition and |G|², unbiased, from 8 blocks of 4."""
    generator = np.random.default_rng(0)
    mean, root = np.array([0.3, -0.2, 0.1]), generator.normal(size=(3, 3))
    draws = mean + generator.normal(size=(20_000, 8, 4, 3)) @ root
    blocks = draws.mean(2)
    small_square = (blocks**2).sum(-1).mean(-1)
    big_square = (blocks.mean(1) ** 2).sum(-1)
    estimate = jax.vmap(lambda small, big: instruments.two_batch(small, big, 4, 32))
    found = estimate(jnp.asarray(small_square), jnp.asarray(big_square))
    trace, square = (np.asarray(x, np.float64) for x in found)
    expected = np.trace(root.T @ root)
    assert_mean(trace / expected, 1.0, effect=0.05)
    assert_mean(square / (mean @ mean), 1.0, effect=0.2)
    with pytest.raises(AssertionError):  # negative control: blocks taken for samples
        assert_mean(trace / 4 / expected, 1.0, effect=0.05)
    nothing = instruments.two_batch(jnp.ones(()), jnp.ones(()), 4, 4)
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("repeats", [1, 3])
def test_noise_scale_counts_environments_not_transitions(repeats: int) -> None:
    """T16. Transitions repeated in time bring no information: tr Σ grows with them."""
    config = preset(
        "lqr", 10**9, num_envs=8, rollout_length=2 * repeats,
        minibatch_size=16 * repeats, normalise_advantages=False,
    )  # fmt: skip
    agent = make_agent(config, make_environment(config))
    blocks = config.num_blocks
    generator = np.random.default_rng(0)
    per_block = 16 // blocks
    x = generator.normal(size=(blocks, per_block, 4))
    u = generator.normal(size=(blocks, per_block, 2))
    advantage = generator.normal(size=(blocks, per_block))
    gain = generator.normal(size=(2, 4))

    def rows(values: np.ndarray) -> Any:
        again = np.repeat(values, repeats, axis=1)
        return jnp.asarray(again.reshape(-1, *values.shape[2:]), jnp.float32)

    batch = Batch(
        rows(x), rows(u), rows(advantage), rows(advantage), rows(u[..., 0]), None
    )
    policy = {"Dense_0": {"kernel": jnp.asarray(-gain.T, jnp.float32)}}
    learner = Learner({"policy": policy, "value": {}}, (), None, None)
    rates = one_theta.program(config, 1).rates()
    trace, square = on_one_device(
        lambda batch: instruments.noise_scale(
            config, agent, learner, batch, rates, jnp.arange(blocks)
        ),
        batch,
    )
    off = -(u + x @ gain.T) * advantage[..., None] / 0.3**2
    gradients = np.einsum("bri,brj->bij", off, x).reshape(blocks, -1) / per_block
    centred = gradients - gradients.mean(0)
    variance = (centred**2).sum() / (blocks - 1)
    np.testing.assert_allclose(trace, per_block * repeats * variance, rtol=1e-4)
    whole = (gradients.mean(0) ** 2).sum() - variance / blocks
    np.testing.assert_allclose(square, whole, rtol=1e-3)


def test_halves_are_even_and_odd_environments() -> None:
    config = preset("lqr", 10**9, num_envs=32, rollout_length=2, minibatch_size=32)
    blocks, envs = config.num_blocks, 32 // config.num_blocks
    number = np.arange(32).reshape(blocks, 1, envs) + np.zeros((1, 2, 1), int)
    x = jnp.asarray(number.reshape(-1))
    halves = np.asarray(
        instruments.split(config, Batch(x, x, x, x, x, None), blocks)[0]
    )
    assert halves.shape == (2, 32)
    assert set(halves[0]).isdisjoint(halves[1])
    np.testing.assert_array_equal(halves[0] % 2, 0)
    for half in halves:
        np.testing.assert_array_equal(np.bincount(half).max(), 2)


def test_what_cannot_be_halved_is_not_measured() -> None:
    config = preset("bandit", 10**6, num_envs=7, minibatch_size=7)
    assert not config.can_be_halved
    agent = make_agent(config, make_environment(config))
    learner = start_learner(config, agent.init(jax.random.key(0)))
    x = jnp.ones(7)
    batch = Batch(x[:, None], jnp.zeros(7, jnp.int32), x, x, x, None)
    rates = one_theta.program(config, 1).rates()
    parts = (config, agent, learner, batch, rates)
    found = instruments.split_half(*parts, jax.random.key(1), jnp.arange(1))
    assert np.isnan(found).all()


@given(st.integers(1, 20 * measure.KL_STATES))
def test_outer_kl_is_over_enough_states(number: int) -> None:
    kept = measure.thin(np.arange(number), number)
    assert len(kept) >= min(number, measure.KL_STATES)
    assert len(kept) <= max(number, 2 * measure.KL_STATES)
    assert kept[0] == 0


def test_frozen_policies_are_those_of_each_decade() -> None:
    """Kept after 1, 10, 100 updates; their KL to now, in that order, is theory's."""
    config = preset("bandit", 10**9, num_envs=8, minibatch_size=8)
    agent = make_agent(config, make_environment(config))
    direction = np.random.default_rng(0).normal(size=10)

    def policy(update: Any) -> Any:
        return {"Dense_0": {"kernel": jnp.asarray(direction[None], "f4") * update}}

    def run(x: Any) -> Any:
        def one(frozen: Any, update: Any) -> tuple[Any, None]:
            return instruments.freeze(frozen, policy(update / 100.0), update), None

        frozen = jnp.zeros((instruments.DECADES, 10))
        frozen, _ = jax.lax.scan(one, frozen, jnp.arange(1, 251))
        batch = Batch(x, x, x, x, x, None)
        return frozen, instruments.travelled(
            config, agent, frozen, policy(2.5), batch, jnp.int32(250)
        )

    frozen, found = on_one_device(run, jnp.ones((8, 1)))
    then = direction * np.array([[0.01], [0.1], [1.0]])
    np.testing.assert_allclose(frozen[:3], then, rtol=1e-5)
    np.testing.assert_array_equal(frozen[3:], 0.0)
    exact = bandit.kl(then, 2.5 * direction)
    np.testing.assert_allclose(found[:3], exact, rtol=1e-5)
    assert (np.abs(bandit.kl(2.5 * direction, then) / exact - 1.0) > 0.01).all()
    assert np.isnan(found[3:]).all()


def test_the_page_shows_what_was_measured() -> None:
    """The table of docs/meters.md is that of the benchmark's output beside it."""
    docs = Path(__file__).parent.parent / "docs"
    rows = json.loads((docs / "meter_bias.json").read_text(encoding="utf-8"))["rows"]
    assert min(row["updates"] for row in rows) >= 256
    page = (docs / "meters.md").read_text(encoding="utf-8")
    assert meter_bias.markdown(rows) in page
