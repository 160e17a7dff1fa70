"""What measuring costs: the trainer as it is, without meters, and without `outer_kl`.

`python -m tests.benchmarks.instruments --json`. The three programs are timed in turn in
one process, over as many updates as lie between two readings of the meters, so that
ratios hold on a noisy machine. Nobody can switch `outer_kl` off in a run; here it is
replaced by a constant.
"""

import dataclasses
import statistics
import sys
from typing import Any
from unittest import mock

import tyro

from fullscale import runtime
from tests.benchmarks.timing import Sizes, machine, seconds, show


@dataclasses.dataclass(frozen=True)
class Arguments(Sizes):
    """Time the trainer with and without its instruments."""

    repeats: int = 7
    """Timings of each; the median counts."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    config = arguments.config()
    runtime.set_up(cpu_devices=1)
    import jax.numpy as jnp

    from tests.benchmarks.throughput import compiled_trainer

    updates = 2 * config.meter_interval
    unmetered = dataclasses.replace(config, meter_interval=0)
    programs = {
        "whole": compiled_trainer(config, 1, updates),
        "no_meters": compiled_trainer(unmetered, 1, updates),
    }
    with mock.patch("fullscale.iteration.outer_kl", _nothing(jnp)):
        programs["nothing"] = compiled_trainer(unmetered, 1, updates)
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(arguments.repeats):
        for name, program in programs.items():
            times[name].append(seconds(program))
    nothing = times["nothing"]
    share = {
        name: statistics.median(
            a / b - 1 for a, b in zip(times[name], nothing, strict=True)
        )
        for name in ("whole", "no_meters")
    }
    result = {
        "environment": config.environment,
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "minibatch_size": config.minibatch_size,
        "meter_interval": config.meter_interval,
        "all_instruments": share["whole"],
        "outer_kl_alone": share["no_meters"],
        "machine": machine(),
    }
    show(result, as_json=arguments.json)
    return 0


def _nothing(jnp: Any) -> Any:
    return lambda *_: jnp.zeros(())


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
