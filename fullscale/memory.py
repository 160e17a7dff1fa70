"""What a run keeps in each device's memory, by its shapes: nothing is allocated.

The trainer's own functions are traced with shapes in the place of arrays, under a mesh
of devices that need not exist. What networks need besides while they compute is the
compiler's choice and not in it: `compiled` asks the compiler.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType
from jaxtyping import Array

from fullscale import keys, mesh
from fullscale.agent import Agent
from fullscale.batch import make_batch
from fullscale.config import ConfigError, RunConfig
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment
from fullscale.loss import DEVICE
from fullscale.network import make_agent
from fullscale.program import CHUNK, compile_program, sizes_of, template
from fullscale.rollout import rollout
from fullscale.schedule import rates
from fullscale.shares import share
from fullscale.state import Batch, Rates, TrainState, Trajectory


class Memory(NamedTuple):
    """Bytes on each device, all of its seeds together.

    Attributes:
        parameters: of the networks.
        optimiser: its state.
        anchor: the average of past policies and the velocity of the outer step.
        frozen: policies kept to measure the distance from.
        environments: their states, and what they show.
        rollout: what one update collects.
        batch: the same as it is learned from.
        shuffled: the batch again in the order of an epoch, and that order.
        other: keys and counters.
    """

    parameters: int
    optimiser: int
    anchor: int
    frozen: int
    environments: int
    rollout: int
    batch: int
    shuffled: int
    other: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


class Compiled(NamedTuple):
    """Bytes on each device that the compiled update needs, as the compiler says.

    Attributes:
        argument: what goes in.
        output: what comes out.
        temporary: what is needed in between.
        alias: outputs that lie where arguments lay (the state is donated).
    """

    argument: int
    output: int
    temporary: int
    alias: int

    @property
    def total(self) -> int:
        """What is live at once: argument + output + temporary − alias."""
        return self.argument + self.output + self.temporary - self.alias


def measure(config: RunConfig, devices: int) -> Memory:
    """What one device keeps, by shapes.

    Args:
        config: the run.
        devices: how many; they need not exist.

    Raises:
        ConfigError: so many devices cannot share the run.
    """
    part = share(config, devices)
    environment = make_environment(config)
    agent = make_agent(config, environment)
    parts = (config, environment, agent)
    axes = (AxisType.Auto, AxisType.Auto)
    grid = AbstractMesh((1, part.devices_per_seed), (mesh.SEED, DEVICE), axes)
    first = jax.eval_shape(lambda: keys.base_keys(0, 1))
    states = jax.eval_shape(mesh.compile_start(*parts, grid), first)
    found: dict[str, int] = {}

    def look(states: TrainState, every: Rates) -> TrainState:
        """Note the shapes that one device and seed sees; called while tracing."""
        state, now = (jax.tree.map(lambda x: x[0], tree) for tree in (states, every))
        blocks = jnp.arange(part.blocks) + jax.lax.axis_index(DEVICE) * part.blocks
        trajectory, batch = _collect(*parts, state, now, blocks)
        found.update(_sizes(state, trajectory, batch, part.rows))
        return states

    spec = mesh.state_spec()
    mapped = jax.shard_map(look, mesh=grid, in_specs=(spec, mesh.WHOLE), out_specs=spec)
    every = jax.eval_shape(partial(rates, config, range(1)))
    jax.eval_shape(mapped, states, every)
    return Memory(*(part.seeds * found[name] for name in Memory._fields))


def _collect(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    state: TrainState,
    now: Rates,
    blocks: Array,
) -> tuple[Trajectory, Batch]:
    """What an update collects, and the batch that it learns from."""
    parameters = state.learner.parameters
    worlds, trajectory, _ = rollout(
        environment, agent, parameters, state.worlds, state.key, blocks,
        config.rollout_length, watch=config.normalise_observations,
    )  # fmt: skip
    return trajectory, make_batch(config, agent, parameters, trajectory, worlds, now)


def _sizes(state: TrainState, trajectory: Any, batch: Any, rows: int) -> dict[str, int]:
    learner = state.learner
    known = {
        "parameters": number_of_bytes(learner.parameters),
        "optimiser": number_of_bytes(learner.optimiser),
        "anchor": number_of_bytes((learner.anchor, learner.velocity)),
        "frozen": number_of_bytes(state.frozen),
        "environments": number_of_bytes(state.worlds),
    }
    collected = number_of_bytes(batch)
    return {
        **known,
        "rollout": number_of_bytes(trajectory),
        "batch": collected,
        "shuffled": collected + rows * jnp.dtype(jnp.int32).itemsize,
        "other": number_of_bytes(state) - sum(known.values()),
    }


def number_of_bytes(tree: Any) -> int:
    """Of all arrays of a tree, or of their shapes."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def compiled(config: RunConfig, devices: int) -> Compiled:
    """Compile the update for the devices of this machine and ask what it needs.

    Raises:
        ConfigError: they cannot share the run, or are not there.
    """
    share(config, devices)
    if devices > jax.device_count():
        raise ConfigError(
            f"--compile for devices = {devices} needs as many here, and there are "
            f"{jax.device_count()}; with JAX_PLATFORMS=cpu they are made up"
        )
    chunk: Any = compile_program(sizes_of(config), devices).chunk
    every = jax.eval_shape(partial(rates, config, range(CHUNK)))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    lowered = chunk.lower(template(config, devices), every, count)
    analysis = lowered.compile().memory_analysis()
    return Compiled(
        argument=analysis.argument_size_in_bytes,
        output=analysis.output_size_in_bytes,
        temporary=analysis.temp_size_in_bytes,
        alias=analysis.alias_size_in_bytes,
    )
