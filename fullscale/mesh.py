"""Devices: which are used, how blocks are spread, and the two compiled functions.

Devices form a grid, seeds × environments. Seeds need nothing of each other, so devices
are given to seeds first; those of one seed share its environments, which live in
`num_blocks` logical blocks, and add up their gradients. Seeds that share devices are a
vmapped axis inside the mapped function.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec
from jaxtyping import Array, Int

from fullscale.config import ConfigError, RunConfig
from fullscale.environments.protocol import Environment
from fullscale.iteration import Metrics, iteration, start
from fullscale.loss import DEVICE
from fullscale.network import Agent
from fullscale.shares import check, fits
from fullscale.state import Rates, TrainState, Worlds

SEED = "seed"  # mesh axis over which seeds are spread
PER_SEED = PartitionSpec(SEED)  # [seed, …]
SPREAD = PartitionSpec(SEED, DEVICE)  # [seed, block, …]
HISTORY = PartitionSpec(None, SEED)  # [update, seed]
WHOLE = PartitionSpec()


def choose_devices(config: RunConfig, wanted: int | None) -> int:
    """How many devices to use: `wanted`, or the most that divide the blocks.

    Raises:
        ConfigError: `wanted` devices do not exist or do not divide the blocks, or no
            number of them fits.
    """
    available = jax.device_count()
    fitting = [d for d in range(1, available + 1) if fits(config, d)]
    if not fitting:
        check(config, available)
    if wanted is None:
        return fitting[-1]
    if wanted not in fitting:
        raise ConfigError(
            f"devices = {wanted} should be one of {fitting}: there are {available} "
            f"devices for {config.num_seeds} seeds of {config.num_blocks} blocks each"
        )
    return wanted


def make_mesh(devices: int, num_seeds: int = 1) -> Mesh:
    """The first `devices` devices as a grid [seed, device], as many seeds as divide."""
    seeds = math.gcd(devices, num_seeds)
    return jax.make_mesh(
        (seeds, devices // seeds),
        (SEED, DEVICE),
        (AxisType.Auto, AxisType.Auto),
        devices=jax.devices()[:devices],
    )


def compile_start(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    mesh: Mesh | AbstractMesh,
) -> Callable[[Array], TrainState]:
    """Jitted: base keys [seed] → states with a leading seed axis.

    Under an abstract mesh for shapes only.
    """

    def begin(keys: Array) -> TrainState:
        one = partial(start, config, environment, agent, blocks=_blocks(config, mesh))
        return jax.vmap(one)(keys)

    return jax.jit(
        jax.shard_map(begin, mesh=mesh, in_specs=PER_SEED, out_specs=state_spec())
    )


def compile_chunk(
    config: RunConfig,
    environment: Environment,
    agent: Agent,
    mesh: Mesh,
    capacity: int,
) -> Callable[[TrainState, Rates, Array], tuple[TrainState, Metrics]]:
    """Jitted: (states, rates, count ≤ capacity) → (states, metrics [capacity, seed]).

    `rates` has one row per update, [capacity]. `count` is traced, so a run's last,
    shorter chunk does not compile again; rows beyond it are zero. The states are
    donated.
    """

    def chunk(
        state: TrainState, rates: Rates, count: Array
    ) -> tuple[TrainState, Metrics]:
        blocks = _blocks(config, mesh)

        def once(state: TrainState, index: Array) -> tuple[TrainState, Metrics]:
            now = jax.tree.map(lambda rows: rows[index], rates)
            parts = (config, environment, agent)
            one = partial(
                iteration, *parts, rates=now, blocks=blocks, update=state.update[0]
            )
            return jax.vmap(one)(state)

        def body(
            index: Array, carry: tuple[TrainState, Metrics]
        ) -> tuple[TrainState, Metrics]:
            state, history = carry
            state, metrics = once(state, index)
            return state, jax.tree.map(
                lambda rows, row: rows.at[index].set(row), history, metrics
            )

        _, shapes = jax.eval_shape(once, state, jnp.int32(0))
        empty = {
            name: jax.lax.pcast(
                jnp.zeros((capacity, *shape.shape), shape.dtype), SEED, to="varying"
            )
            for name, shape in shapes.items()
        }
        return jax.lax.fori_loop(0, count, body, (state, empty))

    spec = state_spec()
    mapped = jax.shard_map(
        chunk, mesh=mesh, in_specs=(spec, WHOLE, WHOLE), out_specs=(spec, HISTORY)
    )
    return jax.jit(mapped, donate_argnums=0)


def state_spec() -> TrainState:
    """How a state lies on the mesh: seeds spread, and each seed's environments."""
    spread: Any = SPREAD
    whole: Any = PER_SEED
    return TrainState(
        learner=whole,
        worlds=Worlds(*(spread for _ in Worlds._fields)),
        key=whole,
        update=whole,
        frozen=whole,
        normaliser=whole,
    )


def _blocks(config: RunConfig, mesh: Mesh | AbstractMesh) -> Int[Array, " block"]:
    """Global indices of this device's blocks."""
    own = config.num_blocks // mesh.shape[DEVICE]
    return jax.lax.axis_index(DEVICE) * own + np.arange(own)
