import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from fullscale import distributions, mesh, schedule
from fullscale import loss as loss_module
from fullscale.advantage import standardise
from fullscale.distributions import Gaussian
from fullscale.loss import surrogate, value_error
from fullscale.state import Batch
from tests.support.statistical import assert_mean
from tests.support.trainer import SMALL_LQR

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


@given(number, number, number, st.floats(0.125, 2, width=32))
@settings(max_examples=50)
def test_value_clipping_is_the_larger_of_two_errors(
    value: float, old: float, target: float, limit: float
) -> None:
    row = jnp.zeros(1)
    batch = Batch(row, row, row, row, jnp.float32([target]), jnp.float32([old]))
    now = schedule.rates(SMALL_LQR, [0])._replace(value_clip=jnp.float32(limit))
    found = float(value_error(jnp.float32([value]), batch, now)[0])
    plain = (value - target) ** 2
    near = (old + min(max(value - old, -limit), limit) - target) ** 2
    np.testing.assert_allclose(found, max(plain, near), rtol=1e-4, atol=1e-5)
    off = value_error(jnp.float32([value]), batch._replace(value=None), now)
    np.testing.assert_allclose(off[0], plain, rtol=1e-4, atol=1e-5)


def estimate(log_ratio: jax.Array) -> jax.Array:
    """r − 1 − log r, as the loss computes it."""
    return jnp.expm1(log_ratio) - log_ratio


@given(st.integers(0, 2**31))
@settings(max_examples=25)
def test_the_estimate_of_the_kl_is_not_negative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_ratio = jnp.float32(rng.normal(size=64) * 10 ** rng.uniform(-6, 0.5))
    assert float(estimate(log_ratio).min()) >= 0.0


def test_the_estimate_of_the_kl_is_near_the_exact_one() -> None:
    """Its mean over actions of the behaviour policy; false-failure rate 1e-6."""
    before = Gaussian(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    after = Gaussian(jnp.full((1, 2), 0.3), jnp.full((1, 2), 0.1))
    action = jax.random.normal(jax.random.key(1), (80_000, 2))
    first, second = (
        distributions.log_prob(Gaussian(*(jnp.tile(x, (80_000, 1)) for x in p)), action)
        for p in (before, after)
    )
    exact = float(distributions.kl(before, after)[0])
    assert_mean(estimate(second - first), exact, effect=0.1 * exact)
