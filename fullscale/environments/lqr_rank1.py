"""`lqr-rank1`, a negative control: `lqr` through one input instead of two.

The action is one number v that acts as u = v·(.6, .8), so that gains have rank 1 where
the best has rank 2. The optimum among them, −2.214, is that of a system with one input,
by its Riccati equation; with both inputs and the same noise it is −1.611. A learner
ends at the first, whatever its outer step: capacity is what is missing. The twin of
`theory.controls`.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.environments import lqr
from fullscale.environments.protocol import Box, Environment, Step

DIRECTION = (0.6, 0.8)  # of unit length: costs of u are costs of v


def make(config: RunConfig) -> Environment:
    """The LQR of one input, at the configured standard deviation of v.

    Raises:
        ConfigError: see `lqr.check`.
    """
    lqr.check(config)
    along = np.array([DIRECTION])
    return Environment(
        name="lqr-rank1",
        observation_size=lqr.STATES,
        action=Box(1),
        horizon=None,
        reset=lqr.reset,
        step=step,
        exact_return=lambda policy: lqr.exact_return(policy, config.initial_std, along),
    )


def step(
    key: PRNGKeyArray,
    state: Float[Array, "env state"],
    action: Float[Array, "env 1"],
) -> Step:
    """One transition of `lqr` with u = v·(.6, .8)."""
    return lqr.step(key, state, action @ jnp.asarray([DIRECTION], action.dtype))
