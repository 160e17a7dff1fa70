"""The score: mean return of fresh episodes under the final policy, or the exact J.

Actions are sampled; the seeds are fixed and the same for every run, so that two runs
are compared on the same episodes. Evaluation is not counted in the budget.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fullscale import distributions, keys
from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Environment
from fullscale.network import Agent

EVALUATION_SEED = 20_260_306  # any fixed number; not one that a run's seeds reach


def evaluate(
    config: RunConfig, environment: Environment, agent: Agent, policy: Any
) -> dict[str, np.ndarray]:
    """Score every seed's policy.

    Args:
        config: says how many episodes.
        environment: with a time limit, or with an exact return.
        agent: networks.
        policy: policy parameters with a leading seed axis.

    Returns:
        `score` and `score_standard_error` (0 where the return is exact), each [seed],
        in units of return.

    Raises:
        ConfigError: episodes without a time limit and no exact return.
    """
    if environment.exact_return is not None:
        exact = np.asarray(jax.jit(jax.vmap(environment.exact_return))(policy))
        return {"score": exact, "score_standard_error": np.zeros_like(exact)}
    if environment.horizon is None:
        raise ConfigError(
            f"environment {environment.name!r} has neither a time limit nor an exact "
            "return, so there is nothing to score"
        )
    number = config.evaluation_episodes
    run = jax.jit(
        jax.vmap(lambda p: episode_returns(environment, agent, p, number)),
    )
    returns = np.asarray(run(policy))
    error = returns.std(axis=1, ddof=1) / np.sqrt(number) if number > 1 else None
    return {
        "score": returns.mean(axis=1),
        "score_standard_error": np.full(len(returns), np.nan)
        if error is None
        else error,
    }


def episode_returns(
    environment: Environment, agent: Agent, policy: Any, number: int
) -> Float[Array, " env"]:
    """Returns of `number` fresh episodes, each from its reset to its end."""
    key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), keys.EVALUATE)
    state, observation = environment.reset(jax.random.fold_in(key, 0), number)
    zero = jnp.zeros(number, observation.dtype)
    start = (state, observation, zero, jnp.ones(number, bool))
    start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), start)

    def body(carry: Any, time: Array) -> tuple[Any, None]:
        state, observation, total, alive = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        distribution = agent.policy(policy, observation)
        action = distributions.sample(act_key, distribution)
        out = environment.step(step_key, state, action)
        total = total + jnp.where(alive, out.reward, 0.0)
        alive = alive & ~(out.terminated | out.truncated)
        following = jax.tree.map(
            lambda new, old: new.astype(old.dtype), out.state, state
        )
        return (following, out.observation, total, alive), None

    times = jnp.arange(1, (environment.horizon or 0) + 1)
    (_, _, total, _), _ = jax.lax.scan(body, start, times)
    return total
