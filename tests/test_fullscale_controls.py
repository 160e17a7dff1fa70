"""The negative controls equal their twins in theory, by formula and by episodes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fullscale import distributions
from fullscale.config import ConfigError
from fullscale.distributions import Categorical, Gaussian
from fullscale.environments import (
    bandit_rank1,
    bandit_sparse,
    lqr_rank1,
    lqr_sparse,
    make_environment,
)
from fullscale.environments.protocol import Environment
from fullscale.presets import preset
from tests.support.statistical import assert_mean
from theory import controls

EPISODES = 20_000
logits = hnp.arrays(np.float32, 10, elements=st.floats(-4, 4, width=32))
inputs = hnp.arrays(np.float32, (4, 1), elements=st.floats(-0.125, 0.125, width=32))
kernels = hnp.arrays(np.float32, (4, 2), elements=st.floats(-0.5, 0.5, width=32))


def made(name: str) -> Environment:
    return make_environment(preset(name, 10**6))


def value_of(name: str) -> Callable[[np.ndarray], Any]:
    """Compiled exact return of a linear policy's kernel."""
    exact = made(name).exact_return
    assert exact is not None
    compiled = jax.jit(lambda kernel: exact({"Dense_0": {"kernel": kernel}}))
    return lambda kernel: compiled(np.asarray(kernel, np.float32))


values = {
    name: value_of(name)
    for name in ("bandit-sparse", "bandit-rank1", "lqr-sparse", "lqr-rank1")
}


def test_the_twins_have_the_same_constants() -> None:
    assert bandit_sparse.PULLS == controls.PULLS
    assert bandit_sparse.SECRET_ARM == controls.SECRET_ARM
    assert bandit_sparse.JACKPOT == controls.JACKPOT
    assert lqr_sparse.THRESHOLD == controls.THRESHOLD
    assert lqr_rank1.DIRECTION == controls.DIRECTION


@given(logits)
def test_sparse_bandit_return_equals_theory(row: np.ndarray) -> None:
    expected = controls.sparse_bandit_value(row.astype(np.float64))
    np.testing.assert_allclose(
        values["bandit-sparse"](row[None]), expected, rtol=1e-5, atol=1e-4
    )


@given(logits)
def test_rank_one_bandit_return_equals_theory(row: np.ndarray) -> None:
    expected = controls.rank_one_bandit().value(row.astype(np.float64))
    np.testing.assert_allclose(values["bandit-rank1"](row[None]), expected, atol=1e-5)


@given(kernels)
def test_sparse_lqr_return_equals_theory(kernel: np.ndarray) -> None:
    expected = controls.sparse_lqr_value(-kernel.T.astype(np.float64))
    got = values["lqr-sparse"](kernel)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)


@given(inputs)
def test_rank_one_lqr_return_equals_theory(kernel: np.ndarray) -> None:
    expected = controls.rank_one_lqr().value(-kernel.T.astype(np.float64))
    np.testing.assert_allclose(values["lqr-rank1"](kernel), expected, rtol=2e-4)


def test_untrained_and_reachable_returns_are_theorys_levels() -> None:
    rows = {
        "bandit-sparse": np.log(controls.sparse_bandit_maxima()[0])[None],
        "bandit-rank1": np.log(controls.rank_one_bandit().optimum()[0])[None],
        "lqr-sparse": np.zeros((4, 2)),
        "lqr-rank1": -controls.rank_one_lqr().optimum()[0].T,
    }
    for name, row in rows.items():
        levels = controls.levels(name)
        got = values[name](row)
        np.testing.assert_allclose(got, levels.reachable, rtol=1e-5, atol=1e-9)
        got = values[name](np.zeros(row.shape))
        np.testing.assert_allclose(got, levels.untrained, rtol=1e-5, atol=1e-9)


def test_an_unstable_gain_has_a_finite_sparse_return() -> None:
    got = values["lqr-sparse"](np.full((4, 2), 1e6))
    np.testing.assert_allclose(got, controls.levels("lqr-sparse").optimum, rtol=1e-3)


def returns(name: str, kernel: np.ndarray, length: int) -> np.ndarray:
    """Returns of episodes of the environment under a linear policy."""
    environment, weights = made(name), jnp.asarray(kernel, jnp.float32)

    def act(key: jax.Array, observation: jax.Array) -> jax.Array:
        out = observation @ weights
        if name.startswith("bandit"):
            return distributions.sample(key, Categorical(out))
        spread = jnp.full(out.shape, jnp.log(0.3))
        return distributions.sample(key, Gaussian(out, spread))

    def body(carry: tuple, key: jax.Array) -> tuple:
        state, observation, total, alive = carry
        act_key, step_key = jax.random.split(key)
        out = environment.step(step_key, state, act(act_key, observation))
        total = total + jnp.where(alive, out.reward, 0.0)
        alive = alive & ~out.terminated
        return (out.state, out.observation, total, alive), out.truncated.any()

    state, observation = environment.reset(jax.random.key(0), EPISODES)
    carry = (state, observation, jnp.zeros(EPISODES), jnp.ones(EPISODES, bool))
    keys = jax.random.split(jax.random.key(1), length)
    (*_, total, alive), cut = jax.jit(lambda c: jax.lax.scan(body, c, keys))(carry)
    assert not np.asarray(alive).any()
    assert not np.asarray(cut).any()
    return np.asarray(total)


@pytest.mark.parametrize(
    ("name", "kernel", "length", "bonus", "effect"),
    [
        ("bandit-sparse", 6.0 * np.eye(10)[9:], 8, True, 1.5),
        ("bandit-rank1", np.linspace(0.0, 2.0, 10)[None], 1, True, 0.1),
        ("lqr-sparse", np.full((4, 2), 0.7), 400, False, 1.3),
        ("lqr-rank1", np.full((4, 1), -0.1), 400, False, 0.5),
    ],
)
def test_episodes_return_what_theory_says(
    name: str, kernel: np.ndarray, length: int, effect: float, *, bonus: bool
) -> None:
    """False-failure rate 1e-6 each. Entropy is in J but not in the rewards."""
    expected = float(values[name](kernel))
    if bonus:
        row = jnp.asarray(kernel[0], jnp.float32)
        expected -= length * 0.2 * float(distributions.entropy(Categorical(row)))
    got = returns(name, kernel, length)
    assert_mean(got, expected, effect=effect)


def test_only_the_secret_arm_all_along_brings_the_jackpot() -> None:
    step = jax.jit(bandit_sparse.step)
    pulls = np.full((bandit_sparse.PULLS, 3), bandit_sparse.SECRET_ARM)
    pulls[0, 1] = pulls[-1, 2] = 0
    state, _ = bandit_sparse.reset(jax.random.key(0), 3)
    for time, action in enumerate(pulls):
        out = step(jax.random.key(time), state, jnp.asarray(action))
        last = time == bandit_sparse.PULLS - 1
        assert (np.asarray(out.terminated) == last).all()
        jackpot = np.asarray(out.reward) > bandit_sparse.JACKPOT / 2
        np.testing.assert_array_equal(jackpot, [last, False, False])
        state = out.state


def test_both_kinds_of_bandit_look_alike_and_pay_in_reverse() -> None:
    state, observation = bandit_rank1.reset(jax.random.key(0), 1000)
    assert set(np.asarray(state)) == {0, 1}
    assert (np.asarray(observation) == 1).all()
    key = jax.random.key(1)
    kinds = jnp.asarray([0, 1])
    means = np.array([
        np.asarray(bandit_rank1.step(key, kinds, jnp.full(2, arm)).reward)
        for arm in range(10)
    ])  # fmt: skip
    noise = means[0] - [0.12573, -1.265421]
    np.testing.assert_allclose(means[:, 0] - noise[0], means[::-1, 1] - noise[1], 1e-5)


@pytest.mark.parametrize("name", sorted(values))
def test_what_has_no_exact_return_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'mlp'.*{name}"):
        make_environment(preset(name, 10**6, network="mlp"))
