"""The loop around the compiled update: dispatch, read one chunk late, write, stop.

All effects of a run are here and in `storage`: disk, clock, progress. The host never
holds more than two chunks of metrics, whatever the length of the run.
"""

import dataclasses
import functools
import importlib.metadata
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import keys, mesh
from fullscale.config import RunConfig
from fullscale.environments import make_environment
from fullscale.environments.protocol import Environment
from fullscale.evaluate import evaluate
from fullscale.network import Agent, make_agent
from fullscale.state import make_rates
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
) -> dict[str, list[float]]:
    """Train as configured and leave a run folder behind.

    Args:
        config: the run.
        folder: a folder that holds no run yet.
        devices: how many to use; by default the most that fit.
        report: called with the last log row after every chunk.

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
        return _train(config, folder, devices, report or _silent)
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
    config: RunConfig, folder: Path, devices: int | None, report: Report
) -> dict[str, list[float]]:
    program = compile_program(sizes_of(config), mesh.choose_devices(config, devices))
    writer = RunWriter(folder, config, code_version())
    try:
        state = program.start(keys.base_keys(config.seed, config.num_seeds))
        state = _loop(config, program.chunk, state, writer, report)
        parameters = state.learner.parameters
        write_parameters(folder, jax.device_get(parameters))
        scores = evaluate(
            config, program.environment, program.agent, parameters["policy"]
        )
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


def sizes_of(config: RunConfig) -> RunConfig:
    """The same configuration with everything that is not compiled in set alike.

    Two configurations of equal sizes share a program; their traced rates, seeds and
    budgets may differ. (`entropy_coefficient` stays: `bandit`'s exact return has it.)
    """
    return dataclasses.replace(
        config,
        learning_rate=1.0,
        clip_epsilon=0.0,
        outer_learning_rate=1.0,
        value_coefficient=1.0,
        discount=1.0,
        gae_lambda=1.0,
        budget=config.samples_per_update,
        seed=0,
        evaluation_episodes=1,
        prediction="",
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


def _loop(
    config: RunConfig, chunk: Callable, state: Any, writer: RunWriter, report: Report
) -> Any:
    rates = make_rates(config)
    done, pending = 0, None
    clock = time.perf_counter()
    while done < config.updates:
        count = min(CHUNK, config.updates - done)
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
    writer: RunWriter,
    report: Report,
    metrics: dict,
    first: int,
    count: int,
    clock: float,
) -> float:
    """Write one chunk's rows; returns the time at which they were ready."""
    host = {name: np.asarray(values)[:count] for name, values in metrics.items()}
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
            "learning_rate": config.learning_rate,
            "transitions_per_second": rate,
            **{name: values[i] for name, values in host.items()},
        }
        with np.errstate(divide="ignore"):
            row["ddr"] = config.samples_per_update / row["outer_kl"]
        writer.append(row)
        _check_finite(row)
    report(row)
    return now


MUST_BE_FINITE = ("outer_kl", "policy_loss", "value_loss", "grad_norm")


def _check_finite(row: dict) -> None:
    for name in MUST_BE_FINITE:
        bad = np.flatnonzero(~np.isfinite(row[name]))
        if bad.size:
            raise Diverged(
                f"{name} is not finite at update {row['updates']} "
                f"({row['transitions']} transitions) for seed number {bad[0]}"
            )
