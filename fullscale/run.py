"""The loop around the compiled update: dispatch, read one chunk late, write, stop.

All effects of a run are here and in `storage`: disk, clock, progress. The host never
holds more than two chunks of metrics, whatever the length of the run.
"""

import contextlib
import importlib.metadata
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import mesh, schedule, sinks
from fullscale.alarms import check_finite, check_replicas
from fullscale.begin import begin
from fullscale.config import CONSTANT, ConfigError, RunConfig
from fullscale.config.checks import SCHEDULED
from fullscale.counters import Counters
from fullscale.files import SUMMARY
from fullscale.instruments import DECADES
from fullscale.normalise import as_dict
from fullscale.origin import Finished, Fresh, Plan, complain
from fullscale.outputs import Outputs
from fullscale.program import CHUNK, Program, compile_program, sizes_of
from fullscale.saver import Saver
from fullscale.score import anchor_policy, evaluate
from fullscale.summary import write_parameters, write_summary

Report = Callable[[dict], None]


class OutOfMemory(RuntimeError):
    """A run that does not fit into the devices' memory."""


def train(
    config: RunConfig,
    folder: Path,
    devices: int | None = None,
    report: Report | None = None,
    *,
    outputs: Outputs | None = None,
    plan: Plan | None = None,
) -> dict[str, list[float]]:
    """Train as configured and leave a run folder behind.

    Args:
        config: the run.
        folder: a folder that holds no run yet, or the run that the plan goes on with.
        devices: how many to use; by default as many as the plan's checkpoint did, or
            the most that fit.
        report: called with every log row.
        outputs: what is written besides the log.
        plan: how the run begins (`origin.resume`, `origin.switch`); by default anew.

    Returns:
        The final evaluation: name → value per seed.

    Raises:
        ConfigError: the configuration cannot run on these devices.
        StorageError: the folder cannot be written or holds a run.
        Diverged: a metric that must be finite was not, or devices did not agree.
        OutOfMemory: the devices' memory does not hold it.
        OSError: the disk is full; what was written before is intact.
    """
    outputs, plan = outputs or Outputs(), plan or Fresh()
    outputs.check()
    if isinstance(plan, Finished):
        if not (folder / SUMMARY).exists():
            write_summary(folder)
        return dict(plan.evaluation)
    try:
        count = _devices(config, devices, plan)
        return _train(config, folder, count, report or _silent, outputs, plan)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemory(
                f"num_envs × rollout_length = {config.num_envs} × "
                f"{config.rollout_length}, num_seeds = {config.num_seeds} and "
                f"hidden_sizes = {config.hidden_sizes} do not fit into memory; "
                "use smaller ones or more devices"
            ) from None
        raise


def _devices(config: RunConfig, wanted: int | None, plan: Plan) -> int:
    """So many, else as many as before where they are there, else all that fit."""
    if wanted is None and plan.devices is not None:
        with contextlib.suppress(ConfigError):
            return mesh.choose_devices(config, plan.devices)
        complain(
            f"the {plan.devices} devices of before are not there; results will agree "
            "with theirs to rounding, not bit for bit"
        )
    return mesh.choose_devices(config, wanted)


def _train(
    config: RunConfig,
    folder: Path,
    devices: int,
    report: Report,
    outputs: Outputs,
    plan: Plan,
) -> dict[str, list[float]]:
    program = compile_program(sizes_of(config), devices)
    version = code_version()
    log, state, counters = begin(plan, config, folder, devices, version)
    writer = sinks.attach(
        log, folder, config, transitions=counters.transitions, wandb=outputs.wandb
    )
    saver = Saver(folder, config, outputs, log, devices=devices, code_version=version)
    try:
        loop = _Loop(config, program, writer, report, saver)
        state = loop.run(state, counters)
        policy, anchor = (
            state.learner.parameters["policy"],
            anchor_policy(state.learner),
        )
        besides = {} if anchor is None else {"anchor": anchor}
        if state.normaliser is not None:
            besides["normaliser"] = as_dict(state.normaliser)
        write_parameters(
            folder, jax.device_get({**state.learner.parameters, **besides})
        )
        parts = (config, program.environment, program.agent)
        scores = evaluate(*parts, policy, anchor, state.normaliser)
        evaluation = {k: v.tolist() for k, v in scores.items()}
        writer.append({"evaluation": evaluation})
    finally:
        writer.close()
    write_summary(folder)
    return evaluation


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


def is_metered(config: RunConfig, update: int) -> bool:
    """Whether the meters run at an update, counted from 1."""
    return config.meter_interval > 0 and update % config.meter_interval == 0


class _Chunk(NamedTuple):
    """What one dispatch will have computed."""

    metrics: dict
    checksums: jax.Array | None  # of what devices hold alike, [seed, device]
    before: Counters
    updates: int


class _Loop:
    """Dispatch, write what the dispatch before has computed, save, until the end."""

    def __init__(
        self,
        config: RunConfig,
        program: Program,
        writer: sinks.Log,
        report: Report,
        saver: Saver,
    ) -> None:
        self._config, self._program = config, program
        self._writer, self._report, self._saver = writer, report, saver
        self._pending: _Chunk | None = None
        self._first = True  # its time includes compiling
        self._clock = 0.0
        self._update_seconds = math.nan  # of a late chunk without meters

    def run(self, state: Any, counters: Counters) -> Any:
        """All updates that are left; the state at the end."""
        config, saver = self._config, self._saver
        self._clock = time.perf_counter()
        while (done := counters.updates) < config.updates:
            count = saver.limit(done, chunk_length(config, done))
            rates = schedule.rates(config, range(done, done + CHUNK))
            state, metrics = self._program.chunk(state, rates, jnp.int32(count))
            checksums = self._program.checksums and self._program.checksums(state)
            self._flush()
            self._pending = _Chunk(metrics, checksums, counters, count)
            counters = counters.after(config, count)
            if saver.due(counters.updates):
                self._flush()
                saver.save(state, counters)
                self._clock = time.perf_counter()
        self._flush()
        saver.finish(state, counters)
        return state

    def _flush(self) -> None:
        """Write the rows that wait."""
        if self._pending is not None:
            parts = (self._config, self._writer, self._report, self._pending)
            began, first = self._clock, self._first
            self._clock = _record(*parts, began, self._update_seconds)
            count, done = self._pending.updates, self._pending.before.updates
            if not first and not is_metered(self._config, done + count):
                self._update_seconds = (self._clock - began) / count
            self._pending, self._first = None, False


def _record(
    config: RunConfig,
    writer: sinks.Log,
    report: Report,
    chunk: _Chunk,
    clock: float,
    update_seconds: float,
) -> float:
    """Write one chunk's rows; returns the time at which they were ready."""
    metrics, checksums, before, count = chunk
    first = before.updates
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
        row = {
            **before.after(config, i + 1)._asdict(),
            **{name: float(column[i]) for name, column in knobs.items()},
            "transitions_per_second": rate,
            **{name: values[i] for name, values in host.items()},
        }
        if config.meter_interval:
            metered = is_metered(config, first + i + 1)
            extra = max(now - clock - update_seconds, 0.0) if metered else math.nan
            row["meter_seconds"] = extra
        with np.errstate(divide="ignore"):
            row["ddr"] = config.samples_per_update / row["outer_kl"]
        writer.append(row)
        check_finite(config, row)
        report(row)
    if checksums is not None:
        check_replicas(np.asarray(checksums), before.after(config, count))
    return now
