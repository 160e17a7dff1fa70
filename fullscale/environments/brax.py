"""`brax/NAME`: any environment that Brax registers, with its default backend.

Brax's environments know no time limit; it is 1,000 transitions here, as in Brax's own
`envs.create`, kept by a clock beside Brax's state and told apart from `done`, which is
terminal. Actions are clipped to [−1, 1], which Brax scales to the actuators' ranges;
the log-density stays that of the unclipped action.
"""

import contextlib
import difflib
import importlib
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Box, Environment, Step
from fullscale.opaque import opaque

PREFIX = "brax/"
HORIZON = 1000


class Clocked(NamedTuple):
    """Brax's state and the age of its episode.

    Attributes:
        inner: Brax's state, leading axis env.
        time: transitions of the episode so far.
    """

    inner: Any
    time: Int[Array, " env"]


def make(config: RunConfig) -> Environment:
    """The Brax environment of the configured name.

    Raises:
        ConfigError: Brax is not installed or does not know the name, or the
            observation is not one vector.
    """
    env = _find(config.environment)
    observation = jax.eval_shape(env.reset, jax.random.key(0)).obs
    if not isinstance(observation, jax.ShapeDtypeStruct) or len(observation.shape) != 1:
        raise ConfigError(
            f"environment {config.environment!r} should observe one vector; it "
            f"observes {observation}"
        )
    action = Box(env.action_size, -1.0, 1.0)
    begin, advance = opaque(jax.vmap(env.reset)), opaque(jax.vmap(env.step))

    def reset(key: PRNGKeyArray, number: int) -> tuple[Clocked, Array]:
        inner = begin(jax.random.split(key, number))
        return Clocked(inner, jnp.zeros(number, jnp.int32)), inner.obs

    def step(
        key: PRNGKeyArray, state: Clocked, raw: Float[Array, "env action"]
    ) -> Step:
        del key  # Brax is deterministic, or keeps keys of its own
        clipped = jnp.clip(raw, action.low, action.high)
        out = advance(state.inner, clipped)
        out = jax.tree.map(lambda new, old: new.astype(old.dtype), out, state.inner)
        following = Clocked(out, state.time + 1)
        terminated = out.done > 0
        truncated = (following.time >= HORIZON) & ~terminated
        return Step(following, out.obs, out.reward, terminated, truncated)

    return Environment(
        name=config.environment,
        observation_size=observation.shape[0],
        action=action,
        horizon=HORIZON,
        reset=reset,
        step=step,
        elapse=elapse,
    )


def elapse(state: Clocked, transitions: Int[Array, " env"]) -> Clocked:
    """The same states with their episode clocks set."""
    return state._replace(time=transitions.astype(state.time.dtype))


def _find(environment: str) -> Any:
    name = environment.removeprefix(PREFIX)
    registered = _library(environment)
    if name not in registered._envs:
        known = sorted(registered._envs)
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {PREFIX + close[0]!r}? " if close else ""
        raise ConfigError(
            f"Brax has no environment {name!r}; {hint}there are {', '.join(known)}"
        )
    return registered.get_environment(name)


def _library(environment: str) -> Any:
    """`brax.envs`, imported with its remarks on stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module("brax.envs")
    except ImportError as error:
        raise ConfigError(
            f"environment {environment!r} needs the extra 'brax' "
            f"(pip install 'ppo-outer-loop[brax]'): {error}"
        ) from None
