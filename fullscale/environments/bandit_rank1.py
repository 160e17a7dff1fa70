"""`bandit-rank1`, a negative control: two kinds of bandit that look alike.

Each episode, one pull, is of the bandit or of the one with the arms in reverse order,
with probability ½ each. The only observation is the constant 1, so that the logits of
both kinds are one feature times one row of weights, a matrix of rank 1 where the best
has rank 2. J(π) = ⟨μ̄,π⟩ + τ H(π) with the mean means μ̄; its optimum, 1.033 at τ = .2,
is what a learner reaches; a policy of rank 2 has the bandit's 1.344. Capacity, not the
outer step, is what is missing. The twin of `theory.controls`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.environments import bandit
from fullscale.environments.protocol import Discrete, Environment, Step


def make(config: RunConfig) -> Environment:
    """The two bandits at the configured temperature.

    Raises:
        ConfigError: see `bandit.check`.
    """
    bandit.check(config)
    return Environment(
        name="bandit-rank1",
        observation_size=1,
        action=Discrete(len(bandit.MEANS)),
        horizon=None,
        reset=reset,
        step=step,
        exact_return=lambda policy: exact_return(policy, config.entropy_coefficient),
    )


def reset(
    key: PRNGKeyArray, number: int
) -> tuple[Int[Array, " env"], Float[Array, "env 1"]]:
    """State: the kind, 0 or 1, which is not observed."""
    kind = jax.random.bernoulli(key, shape=(number,)).astype(jnp.int32)
    return kind, jnp.ones((number, 1))


def step(
    key: PRNGKeyArray, state: Int[Array, " env"], action: Int[Array, " env"]
) -> Step:
    """One pull of this kind of bandit, where arm i of kind 1 is arm 9−i of kind 0."""
    arm = jnp.where(state == 0, action, len(bandit.MEANS) - 1 - action)
    return bandit.step(key, jnp.ones((state.shape[0], 1)), arm)._replace(state=state)


def exact_return(policy: Any, temperature: float) -> Array:
    """J = ⟨μ̄,π⟩ + τ H(π) of the linear policy's logits."""
    reverse = jax.tree.map(lambda row: row[:, ::-1], policy)
    one, other = (bandit.exact_return(p, temperature) for p in (policy, reverse))
    return (one + other) / 2
