import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fullscale import returns
from fullscale.presets import preset
from fullscale.schedule import rates
from fullscale.state import Rates

TIME, ENVS = 7, 3
advantages = jax.jit(returns.advantages)  # traced once for all examples
values = hnp.arrays(np.float32, (TIME, ENVS), elements=st.floats(-5, 5, width=32))
flags = hnp.arrays(np.bool_, (TIME, ENVS))
lasts = hnp.arrays(np.float32, (ENVS,), elements=st.floats(-5, 5, width=32))
unit = st.floats(0, 1, width=32)


def rates_of(discount: float, gae_lambda: float) -> Rates:
    config = preset("reacher", 10**6, discount=discount, gae_lambda=gae_lambda)
    return jax.tree.map(lambda column: column[0], rates(config, [0]))


def loop(  # the slow obvious twin, float64, one environment at a time
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    last: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    discount: float,
    lam: float,
) -> np.ndarray:
    result = np.zeros((TIME, ENVS))
    for env in range(ENVS):
        later = 0.0
        for t in reversed(range(TIME)):
            if terminated[t, env]:
                bootstrap = 0.0
            elif truncated[t, env]:
                bootstrap = float(next_value[t, env])
            elif t == TIME - 1:
                bootstrap = float(last[env])
            else:
                bootstrap = float(value[t + 1, env])
            delta = float(reward[t, env]) + discount * bootstrap - float(value[t, env])
            ended = terminated[t, env] or truncated[t, env]
            later = delta + (0.0 if ended else discount * lam * later)
            result[t, env] = later
    return result


@given(values, values, values, lasts, flags, flags, unit, unit)
def test_advantages_equal_the_loop(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    last: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    discount: float,
    lam: float,
) -> None:
    arrays = (reward, value, next_value, last, terminated, truncated)
    got = advantages(
        *map(jnp.asarray, arrays),
        rates_of(discount, lam),
    )
    expected = loop(*arrays, discount, lam)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


@given(values, values, lasts, flags)
def test_nothing_after_an_end_matters(
    reward: np.ndarray, value: np.ndarray, last: np.ndarray, ended: np.ndarray
) -> None:
    """Changing what follows an end leaves the advantages before it unchanged."""
    ended[3] = True
    never = np.zeros_like(ended)
    rates = rates_of(0.9, 0.8)

    def upto(changed: np.ndarray, last: np.ndarray) -> np.ndarray:
        arrays = (changed, value, value, last, ended, never)
        return np.asarray(advantages(*map(jnp.asarray, arrays), rates))[:4]

    changed = reward.copy()
    changed[4:] += 7.0
    np.testing.assert_array_equal(upto(reward, last), upto(changed, last + 1))


@given(values, lasts, flags, flags)
def test_a_perfect_critic_leaves_no_advantage(
    value: np.ndarray, last: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
) -> None:
    """rₜ := Vₜ − γ V⁺ₜ makes every δ zero, so every advantage is zero."""
    following = np.concatenate([value[1:], last[None]])
    following = np.where(truncated, 2.0, following)
    following = np.where(terminated, 0.0, following)
    reward = value - np.float32(0.5) * following
    got = advantages(
        *map(
            jnp.asarray,
            (reward, value, np.full_like(value, 2.0), last, terminated, truncated),
        ),
        rates_of(0.5, 0.9),
    )
    np.testing.assert_allclose(got, 0.0, atol=1e-5)


def test_jitted_equals_unjitted() -> None:
    draws = np.random.default_rng(0).normal(size=(4, TIME, ENVS)).astype(np.float32)
    arrays = (draws[0], draws[1], draws[2], draws[3, 0], draws[0] > 1, draws[1] > 1)
    rates = rates_of(0.9, 0.8)
    with jax.disable_jit():
        inputs = [jnp.asarray(array) for array in arrays]
        plain = returns.advantages(*inputs, rates)  # type: ignore[arg-type, call-arg]
    jitted = advantages(*inputs, rates)
    np.testing.assert_allclose(plain, jitted, rtol=1e-6, atol=1e-6)
