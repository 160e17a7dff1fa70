"""`opaque`: what the checker of `shard_map` refuses runs, and gives the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale.mesh import make_mesh
from fullscale.opaque import opaque

SPREAD = jax.sharding.PartitionSpec("device")


def careless(state: dict, size: jax.Array) -> tuple[dict, jax.Array]:
    """A condition with a constant branch, a loop from a constant, a constant result."""
    big = jax.lax.cond(state["x"].sum() > 3.0, lambda: state["x"].sum(), lambda: 0.0)
    start = jnp.zeros(())
    total, _ = jax.lax.scan(lambda c, v: (c + v * size, v), start, state["x"])
    count = state["count"] + 1
    key = jax.random.fold_in(state["key"], count)
    return {"x": state["x"] * total, "count": count, "key": key, "one": 1.0}, big


def inputs(number: int) -> tuple[dict, jax.Array]:
    x = jnp.arange(3.0 * number).reshape(number, 3)
    keys = jax.random.split(jax.random.key(0), number)
    state = {"x": x, "count": jnp.arange(number), "key": keys, "one": jnp.ones(number)}
    return state, jnp.linspace(0.0, 1.0, number)


def plain(tree: Any) -> list[np.ndarray]:
    state, big = tree
    state = {**state, "key": jax.random.key_data(state["key"])}
    return [np.asarray(jnp.asarray(x)) for x in jax.tree.leaves((state, big))]


def assert_same(got: Any, expected: Any) -> None:
    for one, other in zip(plain(got), plain(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_it_is_the_same_function() -> None:
    state, size = inputs(1)
    one = jax.tree.map(lambda x: x[0], state), size[0]
    expected = careless(*one)
    assert_same(opaque(careless)(*one), expected)
    assert_same(jax.jit(opaque(careless))(*one), expected)
    shapes = jax.eval_shape(opaque(careless), *one)
    assert shapes == jax.eval_shape(careless, *one)


def test_it_is_vmapped_like_the_function() -> None:
    given = inputs(4)
    expected = jax.vmap(careless)(*given)
    assert_same(jax.vmap(opaque(careless))(*given), expected)
    assert_same(opaque(jax.vmap(careless))(*given), expected)
    state, _ = given
    fixed = jax.vmap(careless, (0, None))(state, jnp.float32(2.0))
    assert_same(jax.vmap(opaque(careless), (0, None))(state, jnp.float32(2.0)), fixed)
    pairs = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), given)
    twice = jax.jit(jax.vmap(jax.vmap(opaque(careless))))(*pairs)
    assert_same(jax.tree.map(lambda x: x.reshape(4, *x.shape[2:]), twice), expected)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_it_runs_inside_shard_map_also_in_a_loop(devices: int) -> None:
    def three(step: Any, state: dict, size: jax.Array) -> tuple[dict, jax.Array]:
        def turn(carry: dict, _: None) -> tuple[dict, jax.Array]:
            return jax.vmap(step)(carry, size)

        state, big = jax.lax.scan(turn, state, length=3)
        return state, big[-1]

    given = inputs(8)
    mapped = jax.shard_map(
        lambda *x: three(opaque(careless), *x),
        mesh=make_mesh(devices),
        in_specs=SPREAD,
        out_specs=SPREAD,
    )
    assert_same(jax.jit(mapped)(*given), three(careless, *given))


def test_without_it_the_checker_refuses() -> None:
    """Negative control: otherwise nothing here is needed."""
    mapped = jax.shard_map(
        jax.vmap(careless), mesh=make_mesh(2), in_specs=SPREAD, out_specs=SPREAD
    )
    with pytest.raises(TypeError, match="varying"):
        jax.jit(mapped)(*inputs(8))
