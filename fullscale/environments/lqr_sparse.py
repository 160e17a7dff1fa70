"""`lqr-sparse`, a negative control: `lqr`'s dynamics, and a reward no one ever sees.

The reward is 1 where the first coordinate is at least 12 from 0, else 0; costs are
none. Untrained, its spread is at most 1.8, and the exact return 10⁻¹¹; gains that throw
the system out of its rest bring it to any value below γ/(1−γ) = 19, the supremum. All
rewards seen are 0, so every gradient is 0 and the run stays where it began, whatever
its outer step: exploration fails. The twin of `theory.controls`, where the supremum is
derived.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.environments import lqr
from fullscale.environments.protocol import Box, Environment, Step

THRESHOLD = 12.0
_STEPS = 512  # .95^512 < 1e-11
_LARGE = 1e15  # where a growing coordinate may stop growing; its square is finite


def make(config: RunConfig) -> Environment:
    """The sparse LQR; its exact return is that of the configured standard deviation.

    Raises:
        ConfigError: see `lqr.check`.
    """
    lqr.check(config)
    return Environment(
        name="lqr-sparse",
        observation_size=lqr.STATES,
        action=Box(lqr.ACTIONS),
        horizon=None,
        reset=lqr.reset,
        step=step,
        exact_return=lambda policy: exact_return(policy, config.initial_std),
    )


def step(
    key: PRNGKeyArray,
    state: Float[Array, "env state"],
    action: Float[Array, "env action"],
) -> Step:
    """One transition; the reward is that of the state before it."""
    far = (jnp.abs(state[:, 0]) >= THRESHOLD).astype(state.dtype)
    return lqr.step(key, state, action)._replace(reward=far)


def exact_return(policy: Any, action_sd: float) -> Array:
    """Exact J = Σ_t γᵗ P(|x_t,1| ≥ 12) of the linear policy, also an unstable one.

    x_t,1 is normal with mean 0 and variance |v_t|² + Σ_{j<t} (s²|Bᵀv_j|² + σ²|v_j|²),
    where v_j = (Cᵀ)ʲe₁, C = A − BK, s and σ are the action's and state's deviations.
    """
    kernel = policy["Dense_0"]["kernel"]
    a, b = (jnp.asarray(matrix, kernel.dtype) for matrix in lqr.instance())
    closed = a + b @ kernel.T

    def term(carry: tuple[Array, Array], weight: Array) -> tuple[tuple, Array]:
        direction, entered = carry
        own = jnp.square(direction).sum()
        far = jax.scipy.special.erfc(THRESHOLD / jnp.sqrt(2.0 * (own + entered)))
        acted = jnp.square(direction @ b).sum()
        entered = entered + action_sd**2 * acted + lqr.STATE_SD**2 * own
        direction = jnp.clip(direction @ closed, -_LARGE, _LARGE)
        return (direction, entered), weight * far

    start = (jnp.zeros_like(kernel[:, 0]).at[0].set(1.0), jnp.zeros_like(kernel[0, 0]))
    weights = (1.0 - lqr.TERMINATION) ** jnp.arange(_STEPS, dtype=kernel.dtype)
    _, terms = jax.lax.scan(term, start, weights)
    return terms.sum()
