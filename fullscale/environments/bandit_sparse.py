"""`bandit-sparse`, a negative control: eight pulls of `bandit`, and a jackpot.

An episode is eight pulls that pay as in `bandit`; if all eight were the worst arm, 40
more. J(π) = 8·(⟨μ,π⟩ + τ H(π)) + 40 π₉⁸ has two maxima: the bandit's own policy, where
the jackpot comes once in 10⁴⁵ episodes (10.75 at τ = .2), and the worst arm for ever
(29.88, the optimum). From anywhere near the start a learner ends in the first, whatever
its outer step: exploration fails, not optimisation. The observation is the constant 1,
so that policy and exact return are the bandit's. The twin of `theory.controls`, where
the maxima are derived.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.environments import bandit
from fullscale.environments.protocol import Discrete, Environment, Step

PULLS, SECRET_ARM, JACKPOT = 8, 9, 40.0


def make(config: RunConfig) -> Environment:
    """The sparse bandit at the configured temperature.

    Raises:
        ConfigError: see `bandit.check`.
    """
    bandit.check(config)
    return Environment(
        name="bandit-sparse",
        observation_size=1,
        action=Discrete(len(bandit.MEANS)),
        horizon=None,
        reset=reset,
        step=step,
        exact_return=lambda policy: exact_return(policy, config.entropy_coefficient),
    )


def reset(
    key: PRNGKeyArray, number: int
) -> tuple[Int[Array, "env 2"], Float[Array, "env 1"]]:
    """State: pulls so far, and how many of them were of the secret arm."""
    _, observation = bandit.reset(key, number)
    return jnp.zeros((number, 2), jnp.int32), observation


def step(
    key: PRNGKeyArray, state: Int[Array, "env 2"], action: Int[Array, " env"]
) -> Step:
    """One pull; the eighth ends the episode and may bring the jackpot."""
    pull = bandit.step(key, jnp.ones((state.shape[0], 1)), action)
    secret = (action == SECRET_ARM).astype(state.dtype)
    following = state + jnp.stack([jnp.ones_like(secret), secret], axis=-1)
    ended = following[:, 0] >= PULLS
    jackpot = jnp.where(following[:, 1] >= PULLS, JACKPOT, 0.0)
    return pull._replace(
        state=following,
        reward=pull.reward + jackpot.astype(pull.reward.dtype),
        terminated=ended,
        truncated=jnp.zeros_like(ended),
    )


def exact_return(policy: Any, temperature: float) -> Array:
    """J = 8·(⟨μ,π⟩ + τ H(π)) + 40 π₉⁸ of the linear policy's logits."""
    log_p = jax.nn.log_softmax(policy["Dense_0"]["kernel"][0])
    secret = jnp.exp(PULLS * log_p[SECRET_ARM])
    return PULLS * bandit.exact_return(policy, temperature) + JACKPOT * secret
