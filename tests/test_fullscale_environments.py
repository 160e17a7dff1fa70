"""The environments equal theory's exact formulas; time limits are told from ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fullscale import distributions
from fullscale.config import ConfigError
from fullscale.distributions import Categorical, Gaussian
from fullscale.environments import bandit, lqr, make_environment
from fullscale.presets import preset
from tests.support.statistical import assert_mean
from tests.support.trainer import SMALL_BANDIT, SMALL_LQR, SMALL_REACHER, setup
from theory import bandit as exact_bandit
from theory import lqr as exact_lqr

gains = hnp.arrays(np.float32, (2, 4), elements=st.floats(-0.125, 0.125, width=32))
logits = hnp.arrays(np.float32, (10,), elements=st.floats(-4, 4, width=32))
lqr_return = jax.jit(
    lambda kernel: lqr.exact_return({"Dense_0": {"kernel": kernel}}, 0.3)
)
bandit_return = jax.jit(
    lambda row: bandit.exact_return({"Dense_0": {"kernel": row[None]}}, 0.2)
)


def test_the_lqr_twins_are_the_same_instance() -> None:
    theory = exact_lqr.standard()
    a, b = lqr.instance()
    np.testing.assert_array_equal(theory.A, a)
    np.testing.assert_array_equal(theory.B, b)
    np.testing.assert_array_equal(theory.Q, lqr.STATE_COST * np.eye(lqr.STATES))
    np.testing.assert_array_equal(theory.R, lqr.ACTION_COST * np.eye(lqr.ACTIONS))
    assert theory.state_sd == lqr.STATE_SD
    assert theory.termination == lqr.TERMINATION
    assert theory.action_sd == preset("lqr", 10**6).initial_std


def test_the_bandit_twins_are_the_same_instance() -> None:
    theory = exact_bandit.standard()
    np.testing.assert_array_equal(theory.means, bandit.MEANS)
    assert theory.reward_sd == bandit.REWARD_SD
    assert theory.temperature == preset("bandit", 10**6).entropy_coefficient


@given(gains)
def test_the_lqr_return_equals_theory(gain: np.ndarray) -> None:
    """The policy u = W ᵀx is the gain K = −Wᵀ."""
    system = exact_lqr.standard()
    closed = np.sqrt(system.discount) * (system.A - system.B @ gain)
    radius = np.abs(np.linalg.eigvals(closed)).max()
    assume(radius < 0.995 or radius > 1.0)  # between, single precision cannot tell
    expected = system.value(gain.astype(np.float64))
    np.testing.assert_allclose(lqr_return(jnp.asarray(-gain.T)), expected, rtol=1e-3)
    if radius < 0.95:
        got = lqr_return(jnp.asarray(-gain.T))
        np.testing.assert_allclose(got, expected, rtol=2e-5)


@given(logits)
def test_the_bandit_return_equals_theory(row: np.ndarray) -> None:
    expected = exact_bandit.standard().value(row.astype(np.float64))
    np.testing.assert_allclose(bandit_return(jnp.asarray(row)), expected, atol=1e-5)


def test_the_optimum_is_theorys() -> None:
    gain, best = exact_lqr.standard().optimum()
    got = lqr_return(jnp.asarray(-gain.T, jnp.float32))
    np.testing.assert_allclose(got, best, rtol=1e-5)
    policy, best = exact_bandit.standard().optimum()
    got = bandit_return(jnp.asarray(np.log(policy), jnp.float32))
    np.testing.assert_allclose(got, best, atol=1e-5)
    np.testing.assert_allclose(lqr_return(jnp.zeros((4, 2))), -6.944, atol=2e-3)


@pytest.mark.parametrize("scale", [0.0, 0.1])
def test_lqr_episodes_return_what_theory_says(scale: float) -> None:
    """Monte Carlo with the environment's own step. False-failure rate 1e-6; sees .5."""
    kernel = scale * jax.random.normal(jax.random.key(5), (4, 2))

    def body(carry: tuple, key: jax.Array) -> tuple:
        state, total, alive = carry
        act, move = jax.random.split(key)
        mean = state @ kernel
        policy = Gaussian(mean, jnp.broadcast_to(jnp.log(0.3), mean.shape))
        out = lqr.step(move, state, distributions.sample(act, policy))
        total = total + jnp.where(alive, out.reward, 0.0)
        return (out.state, total, alive & ~out.terminated), None

    start, _ = lqr.reset(jax.random.key(1), 8192)
    carry = (start, jnp.zeros(8192), jnp.ones(8192, bool))
    keys = jax.random.split(jax.random.key(2), 400)
    (_, total, alive), _ = jax.jit(lambda c: jax.lax.scan(body, c, keys))(carry)
    assert not np.asarray(alive).any()
    expected = exact_lqr.standard().value(-np.asarray(kernel, np.float64).T)
    assert_mean(np.asarray(total), expected, effect=0.8)


def test_bandit_rewards_have_theorys_mean() -> None:
    state, _ = bandit.reset(jax.random.key(0), 20_000)
    action = jnp.full(20_000, 6)
    out = jax.jit(bandit.step)(jax.random.key(1), state, action)
    assert_mean(np.asarray(out.reward), bandit.MEANS[6], effect=0.1)
    assert bool(out.terminated.all())
    assert not bool(out.truncated.any())


@given(gains, gains)
def test_lqr_kl_equals_theory_on_given_states(
    first: np.ndarray, second: np.ndarray
) -> None:
    states = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    log_std = jnp.full((64, 2), np.log(0.3))
    policies = [Gaussian(jnp.asarray(-states @ k.T), log_std) for k in (first, second)]
    got = float(np.mean(lqr_kl(*policies)))
    theory = exact_lqr.standard()
    expected = theory.kl(
        first.astype(np.float64), second.astype(np.float64), states=states
    )
    np.testing.assert_allclose(got, np.mean(expected), rtol=2e-4, atol=1e-8)


lqr_kl = jax.jit(distributions.kl)


@given(logits, logits)
def test_bandit_kl_equals_theory(first: np.ndarray, second: np.ndarray) -> None:
    got = lqr_kl(Categorical(jnp.asarray(first)), Categorical(jnp.asarray(second)))
    expected = exact_bandit.kl(first.astype(np.float64), second.astype(np.float64))
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-6)


def test_reacher_is_truncated_at_its_horizon_and_never_terminated() -> None:
    environment = setup(SMALL_REACHER).environment
    state, observation = environment.reset(jax.random.key(0), 2)
    assert observation.shape == (2, environment.observation_size)
    step = jax.jit(environment.step)
    for time in range(1, 101):
        out = step(jax.random.key(time), state, jnp.zeros((2, 2)))
        state = out.state
        assert not bool(out.terminated.any())
        assert bool(out.truncated.all()) == (time == 100)


def test_actions_are_clipped_to_the_box_by_the_environment() -> None:
    environment = setup(SMALL_REACHER).environment
    state, _ = environment.reset(jax.random.key(0), 2)
    outs = [
        environment.step(jax.random.key(1), state, jnp.full((2, 2), size))
        for size in (1.0, 50.0)
    ]
    np.testing.assert_array_equal(outs[0].observation, outs[1].observation)


@pytest.mark.parametrize(
    ("environment", "change", "words"),
    [
        ("bandit", {"normalise_advantages": True}, "normalise_advantages"),
        ("bandit", {"network": "mlp"}, "linear"),
        ("lqr", {"learn_std": True}, "learn_std"),
        ("lqr", {"network": "mlp"}, "linear"),
        ("kinetix-sfl-m", {}, "Kinetix"),
    ],
)
def test_what_has_no_exact_return_is_refused(
    environment: str, change: dict, words: str
) -> None:
    config = preset(environment, 10**8, **change)
    with pytest.raises(ConfigError, match=words):
        make_environment(config)


def test_small_configurations_are_small() -> None:
    for config in (SMALL_LQR, SMALL_BANDIT, SMALL_REACHER):
        assert config.samples_per_update <= 256
