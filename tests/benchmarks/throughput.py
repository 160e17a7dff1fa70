"""Transitions per second of the trainer, beside a learner-only roofline.

`python -m tests.benchmarks.throughput --json`. The roofline is the same networks,
loss, optimiser, minibatches and devices on a batch that is already there: no
environments, no advantages, no measurement. Both are timed in turn in one process,
so their ratio holds although the machine is noisy.
"""

import dataclasses
import statistics
import sys
from collections.abc import Callable
from typing import Any

import tyro

from fullscale import runtime
from fullscale.config import RunConfig
from tests.benchmarks.timing import Sizes, machine, seconds, show


@dataclasses.dataclass(frozen=True)
class Arguments(Sizes):
    """Time the trainer and its learner-only roofline in one process."""

    devices: int | None = None
    """Devices; by default one."""
    updates: int = 32
    """Updates per timing."""
    repeats: int = 5
    """Timings of each; the median counts."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    config = arguments.config()
    devices = runtime.cpu_devices(1, arguments.devices)
    runtime.set_up(cpu_devices=devices)
    trainer = compiled_trainer(config, devices, arguments.updates)
    learner = compiled_learner(config, devices, arguments.updates)
    times: dict[str, list[float]] = {"trainer": [], "learner": []}
    for _ in range(arguments.repeats):
        times["trainer"].append(seconds(trainer))
        times["learner"].append(seconds(learner))
    count = config.samples_per_update * arguments.updates
    rate = {name: count / statistics.median(values) for name, values in times.items()}
    ratios = [a / b for a, b in zip(times["learner"], times["trainer"], strict=True)]
    result = {
        "environment": config.environment,
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "minibatch_size": config.minibatch_size,
        "update_epochs": config.update_epochs,
        "devices": devices,
        "transitions_per_second": rate["trainer"],
        "learner_only_transitions_per_second": rate["learner"],
        "fraction_of_learner": statistics.median(ratios),
        "machine": machine(),
    }
    show(result, as_json=arguments.json)
    return 0


def compiled_trainer(
    config: RunConfig, devices: int, updates: int
) -> Callable[[], None]:
    """The trainer's compiled function, ready to do so many updates a call."""
    import jax
    import jax.numpy as jnp

    from fullscale import keys, mesh
    from fullscale.schedule import rates as scheduled

    environment, agent, grid = parts(config, devices)
    rates, count = scheduled(config, range(updates)), jnp.int32(updates)
    chunk = mesh.compile_chunk(config, environment, agent, grid, updates)
    start = mesh.compile_start(config, environment, agent, grid)
    held = {"state": start(keys.base_keys(0, 1))}

    def trainer() -> None:
        held["state"], metrics = chunk(held["state"], rates, count)
        jax.block_until_ready((held["state"], metrics))

    trainer()
    return trainer


def compiled_learner(
    config: RunConfig, devices: int, updates: int
) -> Callable[[], None]:
    """Inner loops alone, on a fixed random batch, as many a call."""
    import jax
    import jax.numpy as jnp

    from fullscale import keys, mesh
    from fullscale.schedule import rates as scheduled

    environment, agent, grid = parts(config, devices)
    rates, count = scheduled(config, range(1)), jnp.int32(updates)
    start = mesh.compile_start(config, environment, agent, grid)
    begun = start(keys.base_keys(0, 1)).learner
    one, now = jax.tree.map(lambda x: x[0], (begun, rates))
    inner_loops = _learner(config, agent, environment, grid)

    def learner() -> None:
        jax.block_until_ready(inner_loops(one, now, count))

    learner()
    return learner


def parts(config: RunConfig, devices: int) -> tuple[Any, Any, Any]:
    """Environment, agent and mesh."""
    from fullscale import mesh
    from fullscale.environments import make_environment
    from fullscale.network import make_agent

    environment = make_environment(config)
    return environment, make_agent(config, environment), mesh.make_mesh(devices)


def _learner(config: RunConfig, agent: Any, environment: Any, grid: Any) -> Any:
    """Jitted: `count` inner loops on a fixed random batch."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    from fullscale import distributions
    from fullscale.loss import DEVICE
    from fullscale.state import Batch
    from fullscale.update import inner_loop

    blocks_here = config.num_blocks // grid.shape[DEVICE]
    rows = config.samples_per_update // grid.size

    def run(learner: Any, rates: Any, count: Any) -> Any:
        blocks = jax.lax.axis_index(DEVICE) * blocks_here + jnp.arange(blocks_here)
        key = jax.random.fold_in(jax.random.key(0), jax.lax.axis_index(DEVICE))
        observation = jax.random.normal(key, (rows, environment.observation_size))
        policy = agent.policy(learner.parameters["policy"], observation)
        action = distributions.sample(key, policy)
        noise = jax.random.normal(key, (rows,))
        log_prob = distributions.log_prob(policy, action)
        batch = Batch(observation, action, log_prob, noise, noise, None)

        def body(index: Any, carry: Any) -> Any:
            order = jax.random.fold_in(jax.random.key(1), index)
            return inner_loop(config, agent, carry, batch, rates, order, blocks)[0]

        return jax.lax.fori_loop(0, count, body, learner)

    whole = PartitionSpec()
    return jax.jit(
        jax.shard_map(run, mesh=grid, in_specs=(whole, whole, whole), out_specs=whole)
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
