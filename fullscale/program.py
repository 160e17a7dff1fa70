"""What is compiled for a run: once for all runs of the same sizes."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from fullscale import keys, mesh, replicas
from fullscale.config import CONSTANT, RunConfig
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment
from fullscale.network import Agent, make_agent

CHUNK = 16  # updates per dispatch; the log is written once per chunk


class Program(NamedTuple):
    """What is compiled once and serves every run of the same sizes.

    Attributes:
        environment: what is stepped.
        agent: networks.
        start: base keys → states.
        chunk: (states, rates, count) → (states, metrics).
        checksums: states → checksums [seed, device] of what devices hold alike; None
            where no two hold the same.
    """

    environment: Environment
    agent: Agent
    start: Callable[[Any], Any]
    chunk: Callable[..., Any]
    checksums: Callable[[Any], Any] | None = None


_TRACED: dict[str, Any] = {
    "learning_rate": 1.0, "clip_epsilon": 1.0, "kl_coefficient": 1.0,
    "max_importance_ratio": 1.0, "outer_learning_rate": 1.0, "value_coefficient": 1.0,
    "discount": 1.0, "gae_lambda": 1.0, "schedule": "linear", "seed": 0,
    "final_learning_rate": CONSTANT, "final_clip_epsilon": CONSTANT,
    "final_outer_learning_rate": CONSTANT, "final_com": CONSTANT,
    "evaluation_episodes": 1, "prediction": "",
}  # fmt: skip


def sizes_of(config: RunConfig) -> RunConfig:
    """The same configuration with everything that is not compiled in set alike.

    Two configurations of equal sizes share a program; their traced rates, seeds and
    budgets may differ. (`entropy_coefficient` stays: `bandit`'s exact return has it.)
    """
    return dataclasses.replace(
        config,
        **_TRACED,
        com=config.com if config.is_plain_ppo else 1.0,
        outer_momentum=0.5 if config.outer_momentum else 0.0,
        target_kl=1.0 if config.target_kl < math.inf else math.inf,
        value_clip=1.0 if config.value_clip < math.inf else math.inf,
        budget=config.samples_per_update,
    )


@functools.lru_cache(maxsize=8)
def compile_program(sizes: RunConfig, devices: int) -> Program:
    """The jitted functions for runs of these sizes on so many devices."""
    environment = make_environment(sizes)
    agent = make_agent(sizes, environment)
    grid = mesh.make_mesh(devices, sizes.num_seeds)
    return Program(
        environment=environment,
        agent=agent,
        start=mesh.compile_start(sizes, environment, agent, grid),
        chunk=mesh.compile_chunk(sizes, environment, agent, grid, CHUNK),
        checksums=replicas.compile_checksums(grid),
    )


def template(config: RunConfig, devices: int) -> Any:
    """What a state of this configuration is: shapes, dtypes, and where they lie."""
    program = compile_program(sizes_of(config), devices)
    shapes = jax.eval_shape(program.start, keys.base_keys(0, config.num_seeds))
    grid = mesh.make_mesh(devices, config.num_seeds)

    def place(spec: PartitionSpec, shapes: Any) -> Any:
        sharding = NamedSharding(grid, spec)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes
        )

    return jax.tree.map(
        place, mesh.state_spec(), shapes, is_leaf=lambda x: isinstance(x, PartitionSpec)
    )
