"""λ-returns that know a time limit from an end.

Aₜ = δₜ + γλ (1−doneₜ) Aₜ₊₁ with δₜ = rₜ + γ V⁺ₜ − Vₜ, where V⁺ₜ is 0 if the episode
terminated, the value of the *true* final observation if it was truncated, and Vₜ₊₁
otherwise. At the end of the rollout Vₜ₊₁ is the value of the observation to come.
(Schulman et al. 2016, generalised advantage estimation; truncation as Pardo et al.
2018.)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fullscale.state import Rates


def advantages(
    reward: Float[Array, "time *env"],
    value: Float[Array, "time *env"],
    next_value: Float[Array, "time *env"],
    last_value: Float[Array, "*env"],
    terminated: Bool[Array, "time *env"],
    truncated: Bool[Array, "time *env"],
    rates: Rates,
) -> Float[Array, "time *env"]:
    """Generalised advantages of a rollout, in units of return.

    Args:
        reward: rₜ.
        value: Vₜ, the critic's value before the step.
        next_value: value of the true next observation; used where truncated.
        last_value: value of the observation after the rollout.
        terminated: nothing follows the step.
        truncated: the time limit cut the episode at the step.
        rates: γ is `discount`, λ is `gae_lambda`.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    following = jnp.where(truncated, next_value, following)
    following = jnp.where(terminated, 0.0, following)
    delta = reward + rates.discount * following - value
    decay = rates.discount * rates.gae_lambda * ~(terminated | truncated)

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta_t, decay_t = now
        advantage = delta_t + decay_t * later
        return advantage, advantage

    _, result = jax.lax.scan(
        back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True
    )
    return result
