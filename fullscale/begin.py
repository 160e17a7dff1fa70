"""A run's first state and its log, opened: as its plan says."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fullscale import checkpoint as checkpoints
from fullscale import keys, snapshot, switch
from fullscale.config import ConfigError, RunConfig
from fullscale.counters import Counters
from fullscale.files import SUMMARY, StorageError
from fullscale.origin import (
    Continue,
    Finished,
    Fresh,
    Plan,
    Switch,
    complain,
    recordable,
    text_of,
)
from fullscale.program import compile_program, sizes_of, template
from fullscale.runlog import RunWriter, now, write_config
from fullscale.summary import PARAMETERS


class Beginning(NamedTuple):
    """Where the loop starts.

    Attributes:
        log: open, for this process alone.
        state: on the devices.
        counters: of what was done before.
    """

    log: RunWriter
    state: Any
    counters: Counters


def begin(
    plan: Plan, config: RunConfig, run: Path, devices: int, code_version: str
) -> Beginning:
    """Lay out the first state and open the log.

    Args:
        plan: not `Finished`.
        config: the run.
        run: its folder.
        devices: how many are used.
        code_version: of the code that runs, for the log.

    Raises:
        ConfigError: the checkpoint's learner does not fit the configuration.
        StorageError: the folder or the checkpoint is not as the plan has it.
    """
    match plan:
        case Continue():
            return _go_on(plan, config, run, devices, code_version)
        case Switch():
            return _start_from(plan, config, run, devices, code_version)
        case Fresh():
            return Beginning(
                _new_log(config, run, code_version),
                _fresh_state(config, devices),
                Counters(),
            )
        case Finished():
            raise ValueError("a finished run has nothing to begin")


def _fresh_state(config: RunConfig, devices: int) -> Any:
    program = compile_program(sizes_of(config), devices)
    return program.start(keys.base_keys(config.seed, config.num_seeds))


def _new_log(
    config: RunConfig, run: Path, code_version: str, about: Mapping | None = None
) -> RunWriter:
    log = RunWriter(run, config, code_version, about)
    if checkpoints.found(run):
        log.close()
        raise StorageError(
            f"{str(run / checkpoints.FOLDER)!r} holds checkpoints of another run; give "
            "another --out"
        )
    return log


def _go_on(
    plan: Continue, config: RunConfig, run: Path, devices: int, code_version: str
) -> Beginning:
    checkpoint = plan.checkpoint
    if checkpoint is None:
        state, counters = _fresh_state(config, devices), Counters()
    else:
        wanted = template(config, devices)
        _check_shapes(plan, checkpoint, config, devices)
        state = snapshot.restore(checkpoint, wanted)
        counters = checkpoint.counters
    log = RunWriter.reopen(run, counters.updates)
    with _closing_on_error(log):
        log.append({"resumed": _note(plan, config, counters, devices, code_version)})
        log.sync()
        if plan.changes:
            write_config(run, config)
        for name in (SUMMARY, PARAMETERS):  # of a run that was finished
            (run / name).unlink(missing_ok=True)
        checkpoints.clean(run, checkpoint, complain)
    return Beginning(log, state, counters)


@contextlib.contextmanager
def _closing_on_error(log: RunWriter) -> Iterator[None]:
    try:
        yield
    except BaseException:
        log.close()
        raise


def _note(
    plan: Continue,
    config: RunConfig,
    counters: Counters,
    devices: int,
    code_version: str,
) -> dict[str, object]:
    """What the log says of this process."""
    note: dict[str, object] = {
        "time": now(),
        **counters._asdict(),
        "devices": devices,
        "code_version": code_version,
        "config_hash": config.content_hash(),
        "checkpoint": plan.checkpoint.sha256 if plan.checkpoint else None,
        "changes": recordable(plan.changes),
    }
    if plan.evaluation is not None:
        note["evaluation"] = plan.evaluation
    return note


def _check_shapes(
    plan: Continue,
    checkpoint: checkpoints.Checkpoint,
    config: RunConfig,
    devices: int,
) -> None:
    """Refuse a state of other shapes, by the keys that changed them."""
    difference = snapshot.difference(checkpoint.leaves, template(config, devices))
    if not difference:
        return
    before, where = checkpoint.config, str(checkpoint.folder)
    guilty = {
        key: values
        for key, values in plan.changes.items()
        if _changes_shapes(checkpoint, key, values[1], devices)
    }
    if plan.changes:
        raise StorageError(
            f"{text_of(guilty or plan.changes)} changes what the state is made of "
            f"({difference}); start a new run from {where!r} with --from"
        )
    raise StorageError(
        f"checkpoint {where!r} is of code version {checkpoint.code_version}, whose "
        f"state for {before.environment!r} was made otherwise ({difference}); use that "
        "version"
    )


def _changes_shapes(
    checkpoint: checkpoints.Checkpoint, key: str, value: object, devices: int
) -> bool:
    try:
        alone = dataclasses.replace(checkpoint.config, **{key: value})  # type: ignore[arg-type]
        return bool(snapshot.difference(checkpoint.leaves, template(alone, devices)))
    except ConfigError:
        return True


def _start_from(
    plan: Switch, config: RunConfig, run: Path, devices: int, code_version: str
) -> Beginning:
    """A new run whose first checkpoint, of update 0, is written at once."""
    state, about = switch.start(plan, config, devices)
    log = _new_log(config, run, code_version, {"parent": about})
    with _closing_on_error(log):
        snapshot.save(
            run, config, state, Counters(), devices=devices, code_version=code_version
        )
    return Beginning(log, state, Counters())
