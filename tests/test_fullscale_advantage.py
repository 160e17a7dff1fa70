"""Over what advantages are standardised, on one device and on four."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from fullscale import advantage, mesh
from fullscale.config import ConfigError, RunConfig
from fullscale.loss import DEVICE
from fullscale.presets import preset

CONFIG = preset("reacher", 512, num_envs=16, rollout_length=4, minibatch_size=32)


def standard(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / (x.std() + 1e-8)


def scoped(config: RunConfig, rows: np.ndarray, devices: int) -> np.ndarray:
    """[minibatch, block, row] standardised on so many devices, block by block."""
    blocks = rows.shape[1] // devices

    def own(x: jax.Array) -> jax.Array:
        whole = advantage.of_batch(config, x.reshape(-1)).reshape(x.shape[0], -1)
        return advantage.of_minibatches(config, whole, blocks).reshape(x.shape)

    spec = PartitionSpec(None, DEVICE)
    mapped = jax.shard_map(
        own, mesh=mesh.make_mesh(devices), in_specs=spec, out_specs=spec
    )
    return np.asarray(jax.jit(mapped)(jnp.float32(rows)))


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("scope", ["minibatch", "batch", "block", "none"])
def test_advantages_are_standardised_over_their_scope(scope: str, devices: int) -> None:
    config = dataclasses.replace(
        CONFIG,
        normalise_advantages=scope != "none",
        advantage_scope="minibatch" if scope == "none" else scope,
    )
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 4, 5)) * rng.uniform(0.5, 3, size=(3, 4, 1))
    rows += rng.normal(size=(3, 4, 1))
    expected = {
        "minibatch": np.stack([standard(minibatch) for minibatch in rows]),
        "batch": standard(rows),
        "block": np.stack([[standard(block) for block in m] for m in rows]),
        "none": rows,
    }[scope]
    found = scoped(config, rows, devices)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_equal_advantages_become_zero_and_not_nan() -> None:
    found = scoped(CONFIG, np.full((2, 4, 3), 7.0), 1)
    np.testing.assert_array_equal(found, 0.0)


def test_another_scope_is_refused() -> None:
    with pytest.raises(ConfigError, match="advantage_scope = 'device' should be one"):
        dataclasses.replace(CONFIG, advantage_scope="device")
