import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from fullscale import distributions
from fullscale.distributions import Categorical, Gaussian, MultiCategorical, sample
from tests.support.statistical import assert_mean

# Compiled once for all examples.
kl = jax.jit(distributions.kl)
log_prob, entropy = jax.jit(distributions.log_prob), jax.jit(distributions.entropy)

numbers = st.floats(-3, 3, width=32)
vectors = st.lists(numbers, min_size=3, max_size=3).map(lambda v: jnp.asarray([v]))
stds = st.lists(st.floats(-2, 1, width=32), min_size=3, max_size=3).map(jnp.asarray)
gaussians = st.builds(lambda m, s: Gaussian(m, s[None]), vectors, stds)
categoricals = st.builds(Categorical, vectors)
two = st.lists(numbers, min_size=2, max_size=2).map(lambda v: jnp.asarray([v]))
multis = st.builds(lambda a, b: MultiCategorical((a, b)), two, vectors)
pairs = (
    st.tuples(gaussians, gaussians)
    | st.tuples(categoricals, categoricals)
    | st.tuples(multis, multis)
)


@given(gaussians, vectors)
def test_gaussian_density_and_entropy_equal_scipy(
    policy: Gaussian, action: jax.Array
) -> None:
    oracle = stats.norm(np.asarray(policy.mean), np.exp(np.asarray(policy.log_std)))
    expected = oracle.logpdf(np.asarray(action)).sum(-1)
    np.testing.assert_allclose(log_prob(policy, action), expected, rtol=2e-4, atol=1e-4)
    np.testing.assert_allclose(
        entropy(policy), oracle.entropy().sum(-1), rtol=1e-4, atol=1e-5
    )


@given(categoricals, st.integers(0, 2))
def test_categorical_probability_and_entropy_equal_softmax(
    policy: Categorical, action: int
) -> None:
    p = np.exp(np.asarray(policy.logits, np.float64))
    p /= p.sum(-1, keepdims=True)
    np.testing.assert_allclose(
        log_prob(policy, jnp.asarray([action])), np.log(p[:, action]), atol=1e-5
    )
    np.testing.assert_allclose(
        entropy(policy), -(p * np.log(p)).sum(-1), rtol=1e-4, atol=1e-6
    )


@given(pairs)
def test_kl_is_not_negative_and_zero_for_equals(pair: tuple) -> None:
    first, second = pair
    assert float(kl(first, first)[0]) == 0.0
    assert float(kl(first, second)[0]) >= -1e-6


@given(gaussians, gaussians)
def test_gaussian_kl_is_the_expected_log_ratio(
    first: Gaussian, second: Gaussian
) -> None:
    """Gauss-Hermite quadrature of E_first[log first − log second], per dimension."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    (m1, m2), (s1, s2) = (
        [np.asarray(x.mean, np.float64) for x in (first, second)],
        [np.exp(np.asarray(x.log_std, np.float64)) for x in (first, second)],
    )
    x = m1[..., None] + s1[..., None] * nodes
    ratio = stats.norm.logpdf(x, m1[..., None], s1[..., None])
    ratio -= stats.norm.logpdf(x, m2[..., None], s2[..., None])
    expected = (ratio * weights / weights.sum()).sum((-1, -2))
    np.testing.assert_allclose(kl(first, second), expected, rtol=1e-4, atol=1e-5)


@given(categoricals, categoricals)
def test_categorical_kl_is_the_expected_log_ratio(
    first: Categorical, second: Categorical
) -> None:
    p, q = (np.exp(np.asarray(x.logits, np.float64)) for x in (first, second))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    expected = (p * np.log(p / q)).sum(-1)
    np.testing.assert_allclose(kl(first, second), expected, rtol=1e-3, atol=1e-6)


def test_samples_have_the_stated_moments() -> None:
    policy = Gaussian(jnp.full((20_000, 1), 0.7), jnp.full((20_000, 1), np.log(0.5)))
    draws = np.asarray(sample(jax.random.key(0), policy))[:, 0]
    assert_mean(draws, 0.7, effect=0.05)
    assert_mean((draws - 0.7) ** 2, 0.25, effect=0.03)
    choice = Categorical(
        jnp.broadcast_to(jnp.log(jnp.asarray([0.2, 0.8])), (20_000, 2))
    )
    assert_mean(np.asarray(sample(jax.random.key(1), choice)), 0.8, effect=0.05)


def test_wrong_moments_are_noticed() -> None:
    policy = Gaussian(jnp.full((20_000, 1), 0.8), jnp.full((20_000, 1), np.log(0.5)))
    draws = np.asarray(sample(jax.random.key(0), policy))[:, 0]
    with pytest.raises(AssertionError):
        assert_mean(draws, 0.7, effect=0.05)


def test_kl_between_kinds_is_refused() -> None:
    gaussian = Gaussian(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    with pytest.raises(TypeError, match="Gaussian and Categorical"):
        kl(gaussian, Categorical(jnp.zeros((1, 2))))


def table(policy: MultiCategorical) -> np.ndarray:
    """Probabilities of all joint actions of two components, float64."""
    first, second = (np.asarray(x[0], np.float64) for x in policy.logits)
    return np.outer(special.softmax(first), special.softmax(second))


@given(multis, multis)
def test_several_integers_are_one_over_all_joint_actions(
    first: MultiCategorical, second: MultiCategorical
) -> None:
    """Against the table of joint actions: density, entropy (scipy) and KL."""
    joint, other = table(first), table(second)
    six = jax.tree.map(lambda x: jnp.broadcast_to(x, (6, x.shape[-1])), first)
    actions = jnp.asarray([[i, j] for i in range(2) for j in range(3)])
    got = np.asarray(log_prob(six, actions)).reshape(2, 3)
    np.testing.assert_allclose(got, np.log(joint), atol=1e-5)
    np.testing.assert_allclose(
        entropy(first)[0], stats.entropy(joint.ravel()), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        kl(first, second)[0],
        stats.entropy(joint.ravel(), other.ravel()),
        rtol=1e-3,
        atol=1e-5,
    )


def test_several_integers_are_drawn_independently() -> None:
    logits = (jnp.log(jnp.asarray([0.3, 0.7])), jnp.log(jnp.asarray([0.2, 0.5, 0.3])))
    policy = MultiCategorical(
        tuple(jnp.broadcast_to(x, (20_000, x.size)) for x in logits)
    )
    draws = np.asarray(sample(jax.random.key(2), policy))
    assert draws.shape == (20_000, 2)
    assert draws.dtype == np.int32
    for i in range(2):
        for j in range(3):
            hit = (draws == [i, j]).all(-1)
            expected = [0.3, 0.7][i] * [0.2, 0.5, 0.3][j]
            assert_mean(hit.astype(float), expected, effect=0.04)


def test_several_integers_batch_like_one() -> None:
    """Any leading axes, under vmap with a key each, and through jit as a PyTree."""
    draw = jax.random.normal(jax.random.key(0), (2, 3, 4, 5))
    policy = MultiCategorical((draw[..., :2], draw[..., 2:]))
    keys = jax.random.split(jax.random.key(1), 2)
    action = jax.jit(jax.vmap(sample))(keys, policy)
    assert action.shape == (2, 3, 4, 2)
    assert log_prob(policy, action).shape == (2, 3, 4)
    flat = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), policy)
    np.testing.assert_array_equal(entropy(flat), entropy(policy).ravel())


def test_kl_between_other_numbers_of_integers_is_refused() -> None:
    logits = jnp.zeros((1, 2))
    with pytest.raises(ValueError, match="longer than"):
        kl(MultiCategorical((logits,)), MultiCategorical((logits, logits)))
