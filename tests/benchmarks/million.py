"""1,048,576 environments, really run: two whole updates of Reacher through the trainer.

`python -m tests.benchmarks.million --json`. Rollouts of 16 transitions, minibatches of
16,384, the trainer's own loop with its log, final checkpoint and evaluation. Memory is
the peak of the whole process.
"""

import dataclasses
import resource
import sys
import tempfile
import time
from pathlib import Path

import tyro

from fullscale import runtime, storage
from fullscale.presets import preset
from tests.benchmarks.timing import machine, show


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Train so many environments for some updates, and say how fast and how large."""

    num_envs: int = 2**20
    """Parallel environments."""
    rollout_length: int = 16
    """Transitions per environment and update."""
    minibatch_size: int = 2**14
    """Transitions per gradient step."""
    updates: int = 2
    """Updates."""
    environment: str = "reacher"
    """Which preset."""
    devices: int | None = None
    """Devices; by default one."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Run, and print."""
    config = preset(
        arguments.environment,
        arguments.num_envs * arguments.rollout_length * arguments.updates,
        num_envs=arguments.num_envs,
        rollout_length=arguments.rollout_length,
        minibatch_size=arguments.minibatch_size,
    )
    runtime.set_up(cpu_devices=runtime.cpu_devices(1, arguments.devices))
    from fullscale.run import train

    with tempfile.TemporaryDirectory(prefix="ppo-outer-loop-") as scratch:
        began = time.perf_counter()
        evaluation = train(config, Path(scratch) / "run", arguments.devices)
        seconds = time.perf_counter() - began
        record = storage.read(Path(scratch) / "run")
    result = {
        "environment": config.environment,
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "minibatch_size": config.minibatch_size,
        "updates": record.updates,
        "transitions": int(record.transitions[-1]),
        "gradient_steps": config.gradient_steps,
        "transitions_per_second": config.transitions / seconds,
        "seconds": seconds,
        "peak_memory_gib": _peak_bytes() / 2**30,
        "outer_kl": record.metrics["outer_kl"][:, 0].tolist(),
        "score": evaluation["score"][0],
        "machine": _device(),
    }
    show(result, as_json=arguments.json)
    return 0


def _peak_bytes() -> int:
    """The most memory that this process ever held (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _device() -> str:
    import jax

    kind = jax.devices()[0].device_kind
    return machine() if kind == "cpu" else f"{kind}, {machine()}"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
