"""Cost per transition, and compile time, from thousands of environments to a million.

`python -m tests.benchmarks.scaling --json`. The same rollout length and minibatch at
every N, one update each after a short one has warmed up; sizes are timed in turn.
"""

import dataclasses
import statistics
import sys
import time
from typing import Any

import tyro

from fullscale import runtime
from fullscale.config import RunConfig
from fullscale.presets import preset
from tests.benchmarks.timing import machine, seconds, show


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Time one update of each number of environments."""

    num_envs: tuple[int, ...] = (2**13, 2**20)
    """Numbers of parallel environments; ratios are to the first."""
    rollout_length: int = 16
    """Transitions per environment and update."""
    minibatch_size: int = 2**14
    """Transitions per gradient step."""
    transitions: int = 2**24
    """Transitions of one timing, at least one update."""
    environment: str = "reacher"
    """Which preset."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    runtime.set_up(cpu_devices=1)
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # noqa: FBT003
    rows = [_measure(arguments, number) for number in arguments.num_envs]
    first = rows[0]
    result = {
        "environment": arguments.environment,
        "rollout_length": arguments.rollout_length,
        "minibatch_size": arguments.minibatch_size,
        "num_envs": [row["num_envs"] for row in rows],
        "compile_seconds": [row["compile_seconds"] for row in rows],
        "transitions_per_second": [row["rate"] for row in rows],
        "cost_ratio": [first["rate"] / row["rate"] for row in rows],
        "machine": machine(),
    }
    show(result, as_json=arguments.json)
    return 0


def _measure(arguments: Arguments, number: int) -> dict[str, Any]:
    """Compile seconds and transitions per second of one number of environments."""
    import jax
    import jax.numpy as jnp

    from fullscale import keys, schedule

    config = _config(arguments, number)
    updates = max(1, arguments.transitions // config.samples_per_update)
    chunk, start = _functions(config, updates)
    base = keys.base_keys(0, 1)
    rates, count = schedule.rates(config, range(updates)), jnp.int32(updates)
    shapes = jax.eval_shape(start, base)
    began = time.perf_counter()
    compiled = chunk.lower(shapes, rates, count).compile()
    compile_seconds = time.perf_counter() - began
    held = {"state": start(base)}

    def update() -> None:
        held["state"], metrics = compiled(held["state"], rates, count)
        jax.block_until_ready((held["state"], metrics))

    repeats = 3 if updates > 1 else 1
    taken = statistics.median(seconds(update) for _ in range(repeats))
    return {
        "num_envs": number,
        "compile_seconds": compile_seconds,
        "rate": updates * config.samples_per_update / taken,
    }


def _functions(config: RunConfig, updates: int) -> tuple[Any, Any]:
    from fullscale import mesh
    from tests.benchmarks.throughput import parts

    environment, agent, grid = parts(config, 1)
    chunk = mesh.compile_chunk(config, environment, agent, grid, updates)
    return chunk, mesh.compile_start(config, environment, agent, grid)


def _config(arguments: Arguments, number: int) -> RunConfig:
    return preset(
        arguments.environment,
        10**11,
        num_envs=number,
        rollout_length=arguments.rollout_length,
        minibatch_size=arguments.minibatch_size,
        meter_interval=0,
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
