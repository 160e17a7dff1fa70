"""The score: mean return of fresh episodes under the final policy, or the exact J.

Actions are sampled; the seeds are fixed and the same for every run, so that two runs
are compared on the same episodes. Evaluation is not counted in the budget.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from fullscale import distributions, keys
from fullscale.agent import Agent
from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Environment
from fullscale.normalise import seeing
from fullscale.state import Learner, Normaliser

EVALUATION_SEED = 20_260_306  # any fixed number; not one that a run's seeds reach
BATCH = 4_096  # episodes at once; more are scored batch after batch
LONGEST = 300  # transitions of an episode without time limit that are looked at


def evaluate(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    policy: Any,
    anchor: Any = None,
    normaliser: Normaliser | None = None,
) -> dict[str, np.ndarray]:
    """Score every seed's policy, and its anchor's where there is one.

    Args:
        config: says how many episodes.
        environment: with a time limit, or with an exact return.
        agent: networks.
        policy: policy parameters with a leading seed axis.
        anchor: those of the average that is PPO-EWMA's proximal policy, or None.
        normaliser: through which they see, with a leading seed axis; it stands still.

    Returns:
        `score` and `score_standard_error` (0 where the return is exact, NaN for one
        episode), and `score_anchor` where there is one; each [seed], in units of
        return.

    Raises:
        ConfigError: episodes without a time limit and no exact return.
    """
    found = _score(config, environment, agent, (policy, normaliser))
    if anchor is not None:
        averaged = _score(config, environment, agent, (anchor, normaliser))
        found["score_anchor"] = averaged["score"]
    return found


def anchor_policy(learner: Learner) -> Any | None:
    """Policy parameters of the anchor, shaped as the policy's; None in plain PPO.

    Args:
        learner: with a leading seed axis.
    """
    if learner.anchor is None:
        return None
    return shaped_as(learner.parameters["policy"], learner.anchor.vector)


def shaped_as(policy: Any, vectors: Float[Array, "seed policy_parameter"]) -> Any:
    """Raveled parameters [seed, …] as a tree like the policy's."""
    _, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], policy))
    return jax.vmap(unravel)(jnp.asarray(vectors))


def _score(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    actors: tuple[Any, Normaliser | None],
) -> dict[str, np.ndarray]:
    if environment.exact_return is not None:
        exact = np.asarray(jax.jit(jax.vmap(environment.exact_return))(actors[0]))
        return {"score": exact, "score_standard_error": np.zeros_like(exact)}
    if environment.horizon is None:
        raise ConfigError(
            f"environment {environment.name!r} has neither a time limit nor an exact "
            "return, so there is nothing to score"
        )
    returns = all_returns(environment, agent, actors, config.evaluation_episodes)
    number = returns.shape[1]
    spread = (
        returns.std(axis=1, ddof=1) if number > 1 else np.full(len(returns), np.nan)
    )
    return {
        "score": returns.mean(axis=1),
        "score_standard_error": spread / np.sqrt(number),
    }


def all_returns(
    environment: Environment,
    agent: Agent,
    actors: tuple[Any, Normaliser | None],
    number: int,
) -> Float[np.ndarray, "seed episode"]:
    """Returns of `number` episodes of every seed, at most `BATCH` at once.

    Args:
        environment: with a time limit.
        agent: networks.
        actors: policies, and the normaliser through which each sees, [seed, …].
        number: episodes per seed.
    """

    @partial(jax.jit, static_argnums=2)
    def run(actors: tuple[Any, Normaliser | None], key: Array, size: int) -> Array:
        def one(policy: Any, normaliser: Normaliser | None) -> Array:
            eyes = seeing(agent, normaliser)
            return episode_returns(environment, eyes, policy, size, key)

        return jax.vmap(one)(*actors)

    found = []
    for batch, first in enumerate(range(0, number, BATCH)):
        size = min(BATCH, number - first)
        found.append(np.asarray(run(actors, evaluation_key(batch), size)))
    return np.concatenate(found, axis=1)


def evaluation_key(batch: int) -> Array:
    """Key of a batch of evaluation episodes, the same for every run."""
    key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), keys.EVALUATE)
    return jax.random.fold_in(key, batch) if batch else key


def episode_returns(
    environment: Environment, agent: Agent, policy: Any, number: int, key: Array
) -> Float[Array, " env"]:
    """Returns of `number` fresh episodes, each from its reset to its end.

    Args:
        environment: with a time limit.
        agent: networks.
        policy: parameters of one policy.
        number: episodes.
        key: consumed.
    """
    times = environment.horizon or 0
    total, _ = play(environment, agent, policy, number, key, times, lambda moment: None)
    return total


class Moment(NamedTuple):
    """One step of a batch of episodes.

    Attributes:
        observation: before the action.
        reward: of the transition; 0 past the end of an episode.
        alive: whether the episode was still going on before it.
    """

    observation: Float[Array, "env obs"]
    reward: Float[Array, " env"]
    alive: Bool[Array, " env"]


def play(
    environment: Environment,
    agent: Agent,
    policy: Any,
    number: int,
    key: Array,
    times: int,
    look: Callable[[Moment], Any],
) -> tuple[Float[Array, " env"], Any]:
    """Episodes from their resets, at most `times` transitions of each.

    Args:
        environment: any.
        agent: networks.
        policy: parameters of one policy.
        number: episodes.
        key: consumed.
        times: transitions.
        look: what to keep of each moment.

    Returns:
        The returns, and what `look` kept, stacked over time.
    """
    state, observation = environment.reset(jax.random.fold_in(key, 0), number)
    zero = jnp.zeros(number, observation.dtype)
    memory = agent.carry((number,)).policy
    start = (state, observation, memory, zero, jnp.ones(number, bool))
    start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), start)

    def body(carry: Any, time: Array) -> tuple[Any, Any]:
        state, observation, memory, total, alive = carry
        act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        begins = jnp.broadcast_to(time == 1, (number,))
        seen = agent.see(observation)
        distribution, memory = agent.act(policy, memory, seen, begins)
        action = distributions.sample(act_key, distribution)
        out = environment.step(step_key, state, action)
        reward = jnp.where(alive, out.reward, 0.0)
        kept = look(Moment(observation, reward, alive))
        following = jax.tree.map(
            lambda new, old: new.astype(old.dtype), out.state, state
        )
        alive = alive & ~(out.terminated | out.truncated)
        return (following, out.observation, memory, total + reward, alive), kept

    (*_, total, _), kept = jax.lax.scan(body, start, jnp.arange(1, times + 1))
    return total, kept


def one_episode(
    environment: Environment,
    agent: Agent,
    policy: Any,
    normaliser: Normaliser | None = None,
) -> tuple[Float[np.ndarray, "time obs"], Float[np.ndarray, " time"]]:
    """Observations and rewards of the first seed's first evaluation episode.

    Of an environment without a time limit at most `LONGEST` transitions.
    """
    first, eyes = jax.tree.map(lambda x: x[0], (policy, normaliser))
    times = environment.horizon or LONGEST

    def keep(moment: Moment) -> Moment:
        return jax.tree.map(lambda x: x[0], moment)

    agent = seeing(agent, eyes)
    run = partial(play, environment, agent, number=1, times=times, look=keep)
    _, kept = jax.jit(lambda p, key: run(p, key=key))(first, evaluation_key(0))
    alive = np.asarray(kept.alive)
    return np.asarray(kept.observation)[alive], np.asarray(kept.reward)[alive]
