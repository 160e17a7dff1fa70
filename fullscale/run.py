"""The loop around the compiled update: dispatch, read one chunk late, write, stop.

All effects of a run are here and in `storage`: disk, clock, progress. The host never
holds more than two chunks of metrics, whatever the length of the run.
"""

import dataclasses
import functools
import importlib.metadata
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import keys, mesh, schedule, sinks
from fullscale.config import CONSTANT, RunConfig
from fullscale.config.checks import SCHEDULED
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment
from fullscale.instruments import DECADES
from fullscale.network import Agent, make_agent
from fullscale.score import anchor_policy, evaluate
from fullscale.storage import RunWriter
from fullscale.summary import write_parameters, write_summary

CHUNK = 16  # updates per dispatch; the log is written once per chunk

Report = Callable[[dict], None]


class Diverged(RuntimeError):
    """A run whose parameters or metrics stopped being finite; the text says where."""


class OutOfMemory(RuntimeError):
    """A run that does not fit into the devices' memory."""


def train(
    config: RunConfig,
    folder: Path,
    devices: int | None = None,
    report: Report | None = None,
    wandb: str = "",
) -> dict[str, list[float]]:
    """Train as configured and leave a run folder behind.

    Args:
        config: the run.
        folder: a folder that holds no run yet.
        devices: how many to use; by default the most that fit.
        report: called with every log row.
        wandb: project to log to as well; empty for none.

    Returns:
        The final evaluation: name → value per seed.

    Raises:
        ConfigError: the configuration cannot run on these devices.
        StorageError: the folder cannot be written or holds a run.
        Diverged: a metric that must be finite was not.
        OutOfMemory: the devices' memory does not hold it.
        OSError: the disk is full; what was written before is intact.
    """
    try:
        return _train(config, folder, devices, report or _silent, wandb)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemory(
                f"num_envs × rollout_length = {config.num_envs} × "
                f"{config.rollout_length}, num_seeds = {config.num_seeds} and "
                f"hidden_sizes = {config.hidden_sizes} do not fit into memory; "
                "use smaller ones or more devices"
            ) from None
        raise


def _train(
    config: RunConfig, folder: Path, devices: int | None, report: Report, wandb: str
) -> dict[str, list[float]]:
    program = compile_program(sizes_of(config), mesh.choose_devices(config, devices))
    log = RunWriter(folder, config, code_version())
    writer = sinks.attach(log, folder, config, wandb=wandb)
    try:
        state = program.start(keys.base_keys(config.seed, config.num_seeds))
        state = _loop(config, program.chunk, state, writer, report)
        policy, anchor = (
            state.learner.parameters["policy"],
            anchor_policy(state.learner),
        )
        averaged = {} if anchor is None else {"anchor": anchor}
        write_parameters(
            folder, jax.device_get({**state.learner.parameters, **averaged})
        )
        parts = (config, program.environment, program.agent)
        scores = evaluate(*parts, policy, anchor)
        evaluation = {k: v.tolist() for k, v in scores.items()}
        writer.append({"evaluation": evaluation})
    finally:
        writer.close()
    write_summary(folder)
    return evaluation


class Program(NamedTuple):
    """What is compiled once and serves every run of the same sizes."""

    environment: Environment
    agent: Agent
    start: Callable[[Any], Any]
    chunk: Callable[..., Any]


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
    )


def _silent(row: dict) -> None:
    del row


def code_version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version("ppo-outer-loop")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def chunk_length(config: RunConfig, done: int) -> int:
    """Updates to dispatch at once after `done`; a metered update goes alone.

    So the clock of its chunk, beside that of the chunks before, shows its cost.
    """
    left = config.updates - done
    if not config.meter_interval:
        return min(CHUNK, left)
    plain = config.meter_interval - 1 - done % config.meter_interval
    return min(CHUNK, left, plain or 1)


def _loop(
    config: RunConfig, chunk: Callable, state: Any, writer: sinks.Log, report: Report
) -> Any:
    done, pending = 0, None
    clock = time.perf_counter()
    while done < config.updates:
        count = chunk_length(config, done)
        rates = schedule.rates(config, range(done, done + CHUNK))
        state, metrics = chunk(state, rates, jnp.int32(count))
        if pending is not None:
            clock = _record(config, writer, report, *pending, clock)
        pending = (metrics, done, count)
        done += count
    if pending is not None:
        _record(config, writer, report, *pending, clock)
    return state


def _record(
    config: RunConfig,
    writer: sinks.Log,
    report: Report,
    metrics: dict,
    first: int,
    count: int,
    clock: float,
) -> float:
    """Write one chunk's rows; returns the time at which they were ready."""
    host = {name: np.asarray(values)[:count] for name, values in metrics.items()}
    decades = {f"kl_to_update_{10**i}" for i in range(DECADES)}
    known = {f"kl_to_update_{10**i}" for i in range(len(str(config.updates)))}
    for name in decades - known:
        host.pop(name, None)
    knobs = {
        name: schedule.values(config, name, range(first, first + count))
        for name in SCHEDULED
        if name == "learning_rate" or getattr(config, f"final_{name}") != CONSTANT
    }
    now = time.perf_counter()
    rate = count * config.samples_per_update * config.num_seeds / (now - clock)
    row: dict = {}
    for i in range(count):
        update = first + i + 1
        row = {
            "updates": update,
            "transitions": update * config.samples_per_update,
            "simulator_transitions": update * config.samples_per_update,
            "gradient_steps": update * config.update_epochs * config.num_minibatches,
            **{name: float(column[i]) for name, column in knobs.items()},
            "transitions_per_second": rate,
            **{name: values[i] for name, values in host.items()},
        }
        with np.errstate(divide="ignore"):
            row["ddr"] = config.samples_per_update / row["outer_kl"]
        writer.append(row)
        _check_finite(config, row)
        report(row)
    return now


COUNTED = ("nonfinite_rewards", "nonfinite_observations", "nonfinite_gradients")
MUST_BE_FINITE = ("policy_loss", "value_loss", "grad_norm", "outer_kl")


def _check_finite(config: RunConfig, row: dict) -> None:
    """Stop at the first number that is not finite, by name, update and environment.

    Masked rewards, observations and gradients were counted and go on; parameters that
    are not finite end a run in any case.
    """
    if config.nonfinite == "stop":
        for name in COUNTED:
            bad = np.flatnonzero(np.asarray(row.get(name, 0)) > 0)
            if bad.size:
                where = _environment(row, name, bad[0])
                raise Diverged(
                    f"{name} = {row[name][bad[0]]:.0f} at update {row['updates']} "
                    f"({row['transitions']} transitions) for seed number {bad[0]}"
                    f'{where}; nonfinite = "mask" would end such episodes, skip such '
                    "gradient steps, and go on counting"
                )
    masked = config.nonfinite == "mask"
    for name in ("outer_kl",) if masked else MUST_BE_FINITE:
        bad = np.flatnonzero(~np.isfinite(row[name]))
        if bad.size:
            raise Diverged(
                f"{name} is not finite at update {row['updates']} "
                f"({row['transitions']} transitions) for seed number {bad[0]}"
            )


def _environment(row: dict, name: str, seed: int) -> str:
    if name == "nonfinite_gradients":
        return ""
    return f", first in environment {row['nonfinite_environment'][seed]:.0f}"
