"""`python -m fullscale.plan CONFIG.toml --devices D`: what a run needs, before it runs.

Nothing of the run's size is allocated, and the devices need not exist.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from fullscale import command, shares
from fullscale import config as config_module
from fullscale.config import RunConfig
from fullscale.config.error import UsageError
from fullscale.presets import check_runnable

COMMAND = "python -m fullscale.plan"


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Say what a configuration needs on so many devices: memory, steps, operations."""

    config: tyro.conf.Positional[Path]
    """TOML file with the run's configuration."""
    devices: int = 1
    """Devices to share the run; they need not exist."""
    throughput: float | None = None
    """Transitions per second and device, for device-hours."""
    compile: bool = False
    """Also compile the update, and say what memory the compiler gives it."""
    json: bool = False
    """Print one JSON object on stdout and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return command.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    throughput = arguments.throughput
    if throughput is not None and not 0 < throughput < math.inf:
        raise UsageError(
            f"--throughput {throughput:g} should be a positive number of transitions "
            "per second and device"
        )
    config = config_module.load(arguments.config)
    check_runnable(config)
    made = plan(config, arguments.devices, throughput, compile_update=arguments.compile)
    write = json.dumps if arguments.json else in_words
    command.write(write(made))
    return command.DONE


def plan(
    config: RunConfig,
    devices: int,
    throughput: float | None = None,
    *,
    compile_update: bool = False,
) -> dict[str, Any]:
    """What a run needs.

    Args:
        config: the run.
        devices: that share it; they need not exist unless the update is compiled.
        throughput: transitions per second and device, if known.
        compile_update: ask the compiler for the memory as well.

    Returns:
        What `--json` prints.

    Raises:
        ConfigError: so many devices cannot share the run; with the nearest that can.
    """
    share = shares.share(config, devices)
    from fullscale import runtime

    runtime.set_up(cpu_devices=devices if compile_update else None)
    from fullscale import costs, memory
    from fullscale.environments import make_environment
    from fullscale.network import make_agent

    environment = make_environment(config)
    cost = costs.per_transition(config, environment, make_agent(config, environment))
    kept = memory.measure(config, devices)
    all_seeds = config.transitions * config.num_seeds
    hours = None if throughput is None else all_seeds / throughput / 3600.0
    made: dict[str, Any] = {
        "environment": config.environment,
        "devices": devices,
        "num_seeds": config.num_seeds,
        **_arithmetic(config),
        "share": share._asdict(),
        "memory_bytes": {**kept._asdict(), "total": kept.total},
        "compiled_bytes": None,
        "flops_per_transition": {**cost._asdict(), "total": cost.total},
        "flops": cost.total * all_seeds,
        "device_hours": hours,
        "hours": None if hours is None else hours / devices,
    }
    if compile_update:
        found = memory.compiled(config, devices)
        made["compiled_bytes"] = {**found._asdict(), "total": found.total}
    return made


def _arithmetic(config: RunConfig) -> dict[str, int]:
    """Counts of one seed."""
    return {
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "samples_per_update": config.samples_per_update,
        "minibatch_size": config.minibatch_size,
        "num_minibatches": config.num_minibatches,
        "update_epochs": config.update_epochs,
        "num_blocks": config.num_blocks,
        "updates": config.updates,
        "transitions": config.transitions,
        "gradient_steps_per_update": config.gradient_steps_per_update,
        "gradient_steps": config.gradient_steps,
    }


def in_words(made: Mapping[str, Any]) -> str:
    """The plan as lines of text."""
    share, cost = made["share"], made["flops_per_transition"]
    lines = [
        f"{made['environment']}, {_count(made['num_seeds'], 'seed')} on "
        f"{_count(made['devices'], 'device')}:",
        f"  batch      N × T = {made['num_envs']:,} × {made['rollout_length']:,} = "
        f"{made['samples_per_update']:,} transitions per update, in "
        f"{made['num_blocks']} blocks",
        f"  minibatch  {made['minibatch_size']:,} transitions; "
        f"{made['num_minibatches']:,} per epoch, {made['update_epochs']} epochs",
        f"  run        {made['updates']:,} updates, {made['transitions']:,} "
        f"transitions, {made['gradient_steps']:,} gradient steps one after another",
        f"  a device   {_count(share['seeds'], 'seed')}, of each "
        f"{_count(share['num_envs'], 'environment')} in "
        f"{_count(share['blocks'], 'block')}, "
        f"{_count(share['minibatch_rows'], 'row')} of a gradient step",
        *_memory_lines(made["memory_bytes"], made["compiled_bytes"]),
        f"  operations {cost['total']:.3g} FLOP per transition ("
        + ", ".join(f"{k} {cost[k]:.2g}" for k in cost if k != "total")
        + f"); {made['flops']:.3g} in all",
    ]
    if made["device_hours"] is not None:
        lines.append(
            f"  time       {made['device_hours']:,.4g} device-hours, "
            f"{made['hours']:,.4g} hours"
        )
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _memory_lines(
    kept: Mapping[str, int], compiled: Mapping[str, int] | None
) -> list[str]:
    parts = ", ".join(
        f"{name} {size_in_words(kept[name])}"
        for name in kept
        if name not in ("total", "other") and kept[name]
    )
    lines = [
        f"  memory     {size_in_words(kept['total'])} per device ({parts}), and what "
        "the networks need while they compute"
    ]
    if compiled is not None:
        lines.append(
            f"  compiled   {size_in_words(compiled['total'])} per device: argument "
            f"{size_in_words(compiled['argument'])} + output "
            f"{size_in_words(compiled['output'])} + temporary "
            f"{size_in_words(compiled['temporary'])} − alias "
            f"{size_in_words(compiled['alias'])}"
        )
    return lines


def size_in_words(number: int) -> str:
    """Bytes with a binary unit, to three digits."""
    size, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"


if __name__ == "__main__":
    sys.exit(main())
