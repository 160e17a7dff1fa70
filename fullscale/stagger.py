"""Staggered starts: first episodes begin late, so that time limits do not coincide.

With rollouts shorter than the time limit, environments that all start at once show an
update one stretch of the episode only, another one the next time, and reach the limit
together: the learner chases a cycle (Bharthulwar, Tao and Su 2025, arXiv 2511.21011).
Here the episode clocks start spread over the time limit. A first episode that began
late is not whole, and does not enter the statistics of episodes.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Int

from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Environment

_GOLDEN = 2654435769  # 2³²/φ, rounded to odd
_BITS = 24  # of a phase: what single precision holds


def is_staggered(config: RunConfig, environment: Environment) -> bool:
    """Whether the run's environments start spread over the time limit.

    Raises:
        ConfigError: it is asked for, but the environment has no time limit.
    """
    wanted, horizon = config.staggered_starts, environment.horizon
    if wanted == "on" and horizon is None:
        raise ConfigError(
            f"staggered_starts = 'on' should be 'auto' or 'off' on "
            f"{environment.name!r}, which has no time limit"
        )
    if wanted == "auto":
        return horizon is not None and config.rollout_length < horizon
    return wanted == "on"


def elapsed(
    config: RunConfig, environment: Environment, blocks: Int[Array, " block"]
) -> Int[Array, "block env"] | None:
    """Transitions by which each environment's first episode begins late.

    Environment i (globally) gets the golden-ratio phase frac(i/φ) of the time limit H,
    rounded down to a multiple of gcd(H, T). Any run of consecutive environments is so
    spread evenly; N·T/H time limits fall into every update, up to a few, but into
    T/gcd(H, T) of its T steps only, and steps without one are cheaper.

    Args:
        config: T and the environments per block.
        environment: with its time limit H.
        blocks: global indices of this device's blocks.

    Returns:
        0 … H−1 per environment; None where starts are not staggered.
    """
    if not is_staggered(config, environment) or environment.horizon is None:
        return None
    per_block = config.num_envs // config.num_blocks
    index = blocks[:, None] * per_block + jnp.arange(per_block)[None]
    grid = math.gcd(environment.horizon, config.rollout_length)
    groups = environment.horizon // grid
    phase = (index.astype(jnp.uint32) * jnp.uint32(_GOLDEN)) >> (32 - _BITS)
    group = phase.astype(jnp.float32) * jnp.float32(groups / 2**_BITS)
    return grid * jnp.minimum(group.astype(jnp.int32), groups - 1)
