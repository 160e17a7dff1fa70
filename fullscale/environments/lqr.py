"""`lqr`: linear dynamics, quadratic cost, termination with probability .05 per step.

x' = A x + B u + .1 w, reward −(xᵀQx + uᵀRu), x₀ ~ N(0, I). The chance of termination is
the discount (γ = .95 in the exact formulas), so the trainer's own γ is 1. The policy is
u = W ᵀx + .3 ε, that is K = −Wᵀ. The twin of `theory.lqr`, kept apart on purpose and
tested equal; matrices are in `instance`.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Box, Environment, Step

STATES, ACTIONS = 4, 2
STATE_COST, ACTION_COST, STATE_SD, TERMINATION = 0.1, 0.05, 0.1, 0.05
_DOUBLINGS = 12  # the value is summed over 2^12 steps
_VANISHED = 1e-3  # what is left of C^4096 where the sum is complete


def make(config: RunConfig) -> Environment:
    """The LQR; its exact return is that of the configured standard deviation.

    Raises:
        ConfigError: a trained standard deviation or a network that is not linear,
            for which the exact return and optimum are not defined here.
    """
    check(config)
    return Environment(
        name="lqr",
        observation_size=STATES,
        action=Box(ACTIONS),
        horizon=None,
        reset=reset,
        step=step,
        exact_return=lambda policy: exact_return(policy, config.initial_std),
    )


def check(config: RunConfig) -> None:
    """Refuse policies for which the exact return does not hold. Raises ConfigError."""
    if config.network != "linear" or config.learn_std:
        raise ConfigError(
            f"network = {config.network!r}, learn_std = {config.learn_std} should be "
            f"'linear', false on {config.environment!r}: its exact return holds for "
            "these only"
        )


@lru_cache(maxsize=1)
def instance() -> tuple[np.ndarray, np.ndarray]:
    """A [state, state] of spectral radius .95 and B [state, action], drawn once."""
    generator = np.random.default_rng(3)
    a = generator.normal(size=(STATES, STATES))
    a *= 0.95 / np.abs(np.linalg.eigvals(a)).max()
    return a, 0.5 * generator.normal(size=(STATES, ACTIONS))


def reset(
    key: PRNGKeyArray, number: int
) -> tuple[Float[Array, "env state"], Float[Array, "env state"]]:
    """Initial states from the standard normal; the state is the observation."""
    state = jax.random.normal(key, (number, STATES))
    return state, state


def step(
    key: PRNGKeyArray,
    state: Float[Array, "env state"],
    action: Float[Array, "env action"],
) -> Step:
    """One transition; the reward is that of the state and action before it."""
    noise_key, end_key = jax.random.split(key)
    a, b = (jnp.asarray(matrix, state.dtype) for matrix in instance())
    noise = STATE_SD * jax.random.normal(noise_key, state.shape, state.dtype)
    following = state @ a.T + action @ b.T + noise
    cost = STATE_COST * jnp.square(state).sum(-1)
    cost += ACTION_COST * jnp.square(action).sum(-1)
    ended = _bernoulli(end_key, TERMINATION, cost.shape)
    return Step(following, following, -cost, ended, jnp.zeros_like(ended))


def exact_return(
    policy: Any, action_sd: float, directions: np.ndarray | None = None
) -> Array:
    """Exact J of the linear policy, by doubling the value's power series.

    P = Q + KᵀRK + γ CᵀPC with C = A − BK; J = −tr P − c, where
    (1−γ) c = s² tr R + γ [s² tr(BᵀPB) + σ² tr P], s the action's and σ the state's
    standard deviation; −inf where √γ C is unstable (spectral radius > .998).

    Args:
        policy: parameters of the linear policy.
        action_sd: s.
        directions: orthonormal rows [action, 2] along which actions act; both inputs
            by default.
    """
    kernel = policy["Dense_0"]["kernel"]
    a, b = (jnp.asarray(matrix, kernel.dtype) for matrix in instance())
    if directions is not None:
        b = b @ jnp.asarray(directions.T, kernel.dtype)
    discount = 1.0 - TERMINATION
    closed = np.sqrt(discount) * (a + b @ kernel.T)
    cost = STATE_COST * jnp.eye(STATES, dtype=kernel.dtype)
    cost += ACTION_COST * kernel @ kernel.T

    def double(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, power = carry
        return total + power.T @ total @ power, power @ power

    value, power = jax.lax.fori_loop(0, _DOUBLINGS, double, (cost, closed))
    noise = action_sd**2 * jnp.trace(b.T @ value @ b) + STATE_SD**2 * jnp.trace(value)
    constant = action_sd**2 * ACTION_COST * b.shape[1] + discount * noise
    exact = -jnp.trace(value) - constant / (1.0 - discount)
    return jnp.where(jnp.abs(power).max() < _VANISHED, exact, -jnp.inf)


def _bernoulli(
    key: PRNGKeyArray, probability: float, shape: tuple[int, ...]
) -> Bool[Array, " env"]:
    return jax.random.uniform(key, shape) < probability
