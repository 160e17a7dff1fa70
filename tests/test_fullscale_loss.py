import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from fullscale import loss as loss_module
from fullscale import mesh
from fullscale.advantage import standardise
from fullscale.loss import surrogate

number = st.floats(-3, 3, width=32, allow_subnormal=False)
epsilon = st.floats(0, 1, width=32, allow_subnormal=False)
surrogate_of = jax.jit(surrogate)
slope = jax.jit(jax.grad(lambda *arguments: surrogate(*arguments).sum()))


@given(number, number, epsilon)
def test_surrogate_equals_the_formula(log_r: float, a: float, eps: float) -> None:
    ratio = np.exp(np.float64(log_r))
    expected = min(ratio * a, float(np.clip(ratio, 1 - eps, 1 + eps)) * a)
    got = surrogate_of(jnp.asarray([log_r]), jnp.asarray([a]), jnp.float32(eps))
    np.testing.assert_allclose(got, [expected], rtol=1e-4, atol=1e-5)


@given(number, epsilon)
def test_the_gradient_at_ratio_one_is_whole(a: float, eps: float) -> None:
    """d/dr of min(rA, clip(r)A) at r = 1 is A for every ε, also for ε = 0."""
    got = slope(jnp.zeros(1), jnp.asarray([a]), jnp.float32(eps))
    np.testing.assert_array_equal(got, np.array([a], np.float32))


@given(number, number, epsilon)
def test_surrogate_is_at_most_the_unclipped_objective(
    log_r: float, a: float, eps: float
) -> None:
    got = surrogate_of(jnp.asarray([log_r]), jnp.asarray([a]), jnp.float32(eps))
    assert (
        got[0]
        <= np.float32(np.exp(np.float32(log_r)))
        * np.float32(a)
        * (1 + 1e-5 * np.sign(a))
        + 1e-6
    )


def spread(function: object, devices: int) -> object:
    """A function of rows, applied to rows spread over devices."""
    spec = PartitionSpec(loss_module.DEVICE)
    return jax.jit(
        jax.shard_map(
            function, mesh=mesh.make_mesh(devices), in_specs=spec, out_specs=spec
        )
    )


def test_advantage_moments_are_global() -> None:
    """Four devices with different means standardise as one would."""
    rows = jnp.arange(32.0) ** 2
    one, four = (spread(lambda x: standardise(x[None])[0], d)(rows) for d in (1, 4))  # type: ignore[operator]
    np.testing.assert_allclose(one, four, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.mean(four), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.std(four), 1.0, rtol=1e-5)
