"""bfloat16 where it is asked for, against numpy in double precision."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fullscale.config import ConfigError
from fullscale.environments import make_environment
from fullscale.network import make_agent
from fullscale.precision import bfloat16_product, full, pack, to_bfloat16
from fullscale.presets import preset
from tests.support.trainer import SMALL_REACHER

rounded, packed = jax.jit(to_bfloat16), jax.jit(pack)
finite = hnp.arrays(
    np.float32,
    (7,),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
)


@given(finite)
def test_rounding_is_to_the_nearest_and_idempotent(x: np.ndarray) -> None:
    """Against ml_dtypes; within 2⁻⁸ of the number."""
    got = np.asarray(rounded(jnp.asarray(x)))
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16))
    np.testing.assert_allclose(got.astype(np.float64), x, rtol=2.0**-8, atol=1e-37)
    np.testing.assert_array_equal(rounded(got.astype(np.float32)), got)
    stored = packed(jnp.asarray(x))
    assert stored.dtype == jnp.uint16
    np.testing.assert_array_equal(full(stored), got.astype(np.float32))
    np.testing.assert_array_equal(full(jnp.asarray(x)), x)


def test_what_is_not_finite_stays_so_when_stored() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(full(packed(jnp.asarray(x))), x)


def test_rounding_is_not_left_out_on_the_way_back() -> None:
    """A compiler may drop a conversion there and back, but not this."""
    x = jnp.asarray([1.0 + 2.0**-12, 0.3])
    back = jax.jit(lambda x: to_bfloat16(x).astype(x.dtype) - x)(x)
    assert (np.asarray(back) != 0).all()


def test_a_product_and_its_gradients_are_those_of_rounded_operands() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    x, kernel, incoming = (
        jax.random.normal(k, shape)
        for k, shape in zip(keys, [(2, 5, 33), (33, 17), (2, 5, 17)], strict=True)
    )
    out, pull = jax.vjp(bfloat16_product, x, kernel)
    gradients = pull(incoming)
    exact = [
        np.asarray(to_bfloat16(y)).astype(np.float64) for y in (x, kernel, incoming)
    ]
    expected = (
        exact[0] @ exact[1],
        exact[2] @ exact[1].T,
        np.einsum("abi,abo->io", exact[0], exact[2]),
    )
    for got, want in zip((out, *gradients), expected, strict=True):
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    plain = np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)
    assert np.abs(np.asarray(out) - plain).max() > 1e-3  # it is another product


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_parameters_and_outputs_keep_full_precision(network: str) -> None:
    config = dataclasses.replace(
        SMALL_REACHER,
        network=network,
        hidden_sizes=(8, 8),
        compute_precision="bfloat16",
        storage_precision="bfloat16",
    )
    environment = make_environment(config)
    agent = make_agent(config, environment)
    same = make_agent(
        dataclasses.replace(config, compute_precision="full"), environment
    )
    parameters = agent.init(jax.random.key(0))
    assert {p.dtype for p in jax.tree.leaves(parameters)} == {jnp.dtype("float32")}
    seen = agent.see(jax.random.normal(jax.random.key(1), (5, 8)))
    assert seen.dtype == jnp.uint16
    carry, start = agent.carry((5,)), jnp.ones(5, bool)
    policy, _ = jax.jit(agent.act)(parameters["policy"], carry.policy, seen, start)
    value, _ = jax.jit(agent.judge)(parameters["value"], carry.value, seen, start)
    plain, _ = jax.jit(same.act)(parameters["policy"], carry.policy, seen, start)
    assert policy.mean.dtype == value.dtype == jnp.float32
    difference = np.abs(np.asarray(policy.mean - plain.mean)).max()
    assert 0 < difference < 0.02 * np.abs(np.asarray(plain.mean)).max()
    exact = full(seen)
    near = exact * (1.0 + 2.0**-10)  # rounds to the same: the first product does so too
    again, _ = jax.jit(agent.act)(parameters["policy"], carry.policy, near, start)
    np.testing.assert_array_equal(again.mean, policy.mean)


def test_half_precision_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="should be 'full' with network = 'linear'"):
        preset("lqr", 10**6, compute_precision="bfloat16")
