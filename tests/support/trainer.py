"""Small trainer set-ups, compiled once for all tests that use them."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import keys, mesh
from fullscale.config import RunConfig
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment
from fullscale.network import Agent, make_agent
from fullscale.presets import preset
from fullscale.schedule import rates as scheduled
from fullscale.state import Rates, TrainState

# Meters triple the time that compiling takes, so one configuration has them.
METERED_LQR = preset(
    "lqr", 2_048, num_envs=16, rollout_length=8, minibatch_size=64, update_epochs=2
)
SMALL_LQR = dataclasses.replace(METERED_LQR, meter_interval=0)
SMALL_BANDIT = preset(
    "bandit", 2_048, num_envs=128, minibatch_size=64, update_epochs=2, meter_interval=0
)
SMALL_REACHER = preset(
    "reacher", 2_048, num_envs=16, rollout_length=16, minibatch_size=64,
    update_epochs=2, hidden_sizes=(8,), evaluation_episodes=8, meter_interval=0,
)  # fmt: skip


class Setup(NamedTuple):
    """A compiled trainer: `start(seed keys)` and `chunk(state, rates, count)`."""

    config: RunConfig
    environment: Environment
    agent: Agent
    start: Any
    chunk: Any
    capacity: int

    def fresh(self, seed: int = 0, number: int = 1) -> TrainState:
        """States of so many seeds before their first update."""
        return self.start(keys.base_keys(seed, number))

    def rates(self, **changes: float) -> Rates:
        """The rates of the first updates, with some changed."""
        rates = scheduled(self.config, range(self.capacity))
        changed = {k: jnp.full_like(rates.learning_rate, v) for k, v in changes.items()}
        return rates._replace(**changed)

    def run(self, state: TrainState, rates: Rates, updates: int) -> tuple:
        """So many updates; the given state stays usable."""
        state, metrics = self.chunk(copy(state), rates, jnp.int32(updates))
        return state, {k: np.asarray(v)[:updates] for k, v in metrics.items()}


@functools.lru_cache(maxsize=32)
def setup(config: RunConfig, devices: int = 1, capacity: int = 4) -> Setup:
    """Compile (lazily) a configuration for so many devices."""
    return setup_in(make_environment(config), config, devices, capacity)


def setup_in(
    environment: Environment, config: RunConfig, devices: int = 1, capacity: int = 4
) -> Setup:
    """The same in an environment that has no name in the configuration."""
    agent = make_agent(config, environment)
    grid = mesh.make_mesh(devices, config.num_seeds)
    return Setup(
        config,
        environment,
        agent,
        mesh.compile_start(config, environment, agent, grid),
        mesh.compile_chunk(config, environment, agent, grid, capacity),
        capacity,
    )


def quick(one: Setup) -> Setup:
    """The same, compiled without optimising: sooner there, slower, rounded otherwise.

    For one seed.
    """
    arguments = one.fresh(), one.rates(), jnp.int32(1)
    options = {"xla_backend_optimization_level": 0}
    chunk = one.chunk.lower(*arguments).compile(compiler_options=options)
    return one._replace(chunk=chunk)


def copy(tree: Any) -> Any:
    """A copy whose buffers may be donated."""
    return jax.tree.map(jnp.copy, tree)


def vector(tree: Any) -> np.ndarray:
    """All leaves of a tree as one float64 vector."""
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)
