"""`bandit`: one step, ten arms, Gaussian reward noise; J(π) = ⟨μ,π⟩ + τ H(π).

The twin of `theory.bandit`, kept apart on purpose and tested equal. The temperature τ
is the configuration's `entropy_coefficient`, so the bonus is part of the objective.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Discrete, Environment, Step

MEANS = (
    0.12573, -0.132105, 0.640423, 0.1049, -0.535669,
    0.361595, 1.304, 0.947081, -0.703735, -1.265421,
)  # fmt: skip
REWARD_SD = 1.0


def make(config: RunConfig) -> Environment:
    """The bandit at the configured temperature.

    Raises:
        ConfigError: normalised advantages, which would move the optimum.
    """
    check(config)
    return Environment(
        name="bandit",
        observation_size=1,
        action=Discrete(len(MEANS)),
        horizon=None,
        reset=reset,
        step=step,
        exact_return=lambda policy: exact_return(policy, config.entropy_coefficient),
    )


def check(config: RunConfig) -> None:
    """Refuse what would move the optimum or has no exact return. Raises ConfigError."""
    if config.normalise_advantages:
        raise ConfigError(
            f"normalise_advantages = true moves the optimum of {config.environment!r} "
            "(τ would become τ·sd(advantage)); set it to false"
        )
    if config.network != "linear":
        raise ConfigError(
            f"network = {config.network!r} should be 'linear' on {config.environment!r}"
        )


def reset(key: PRNGKeyArray, number: int) -> tuple[Array, Float[Array, "env 1"]]:
    """Nothing to draw: the only observation is the constant 1."""
    del key
    observation = jnp.ones((number, 1))
    return observation, observation


def step(key: PRNGKeyArray, state: Array, action: Int[Array, " env"]) -> Step:
    """Reward μ_action + noise; every step ends its episode."""
    mean = jnp.asarray(MEANS, state.dtype)[action]
    reward = mean + REWARD_SD * jax.random.normal(key, mean.shape, mean.dtype)
    ended = jnp.ones(mean.shape, bool)
    return Step(state, state, reward, ended, jnp.zeros_like(ended))


def exact_return(policy: Any, temperature: float) -> Array:
    """J = ⟨μ,π⟩ + τ H(π) of the linear policy's logits."""
    log_p = jax.nn.log_softmax(policy["Dense_0"]["kernel"][0])
    means = jnp.asarray(MEANS, log_p.dtype)
    return (jnp.exp(log_p) * (means - temperature * log_p)).sum()
