"""`python -m fullscale.train CONFIG.toml --out DIR`: train one configuration."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Annotated

import tyro

from fullscale import command, origin
from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig
from fullscale.origin import Finished, Fresh, Plan
from fullscale.outputs import Outputs
from fullscale.presets import check_runnable
from fullscale.progress import progress
from fullscale.runlog import holds_run
from fullscale.sinks import require_wandb
from fullscale.storage import StorageError


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Train the configuration of a TOML file and leave a run folder behind."""

    config: tyro.conf.Positional[Path]
    """TOML file with the run's configuration; unknown keys are refused."""
    out: Path
    """Run folder: config.toml, metrics.jsonl, checkpoints, run.nc, parameters."""
    resume: bool = False
    """Go on with the run in --out from its newest intact checkpoint; a folder without
    a run starts one, a finished run is left as it is."""
    accept_changes: bool = False
    """With --resume: go on although the configuration is not the run's."""
    start_from: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Run folder or checkpoint whose policy, critic and optimiser the new run starts
    with, under its own configuration; hidden_sizes may be twice as wide."""
    fresh_optimiser: bool = False
    """With --from: start with a fresh optimiser state."""
    devices: int | None = None
    """Devices to use; by default as many as before, or all that fit (CPU: cores that
    share the seeds)."""
    outputs: tyro.conf.OmitArgPrefixes[Outputs] = dataclasses.field(
        default_factory=Outputs
    )
    json: bool = False
    """Print one JSON object on stdout and nothing else."""


def main(arguments: Arguments) -> int:
    """Train; returns the exit status (0 done, 2 bad input or full disk, 3 diverged)."""
    out = repr(str(arguments.out))
    try:
        run = config_module.load(arguments.config)
        check_runnable(run)
        arguments.outputs.check()
        if arguments.outputs.wandb:
            require_wandb()
        return _train(arguments, run)
    except (ConfigError, StorageError) as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(
            f"cannot write {out}: {error.strerror}; what was written before is intact",
            2,
        )
    except KeyboardInterrupt:
        return _fail(f"interrupted; {out} holds the run so far", command.INTERRUPTED)


def _train(arguments: Arguments, run: RunConfig) -> int:
    from fullscale import runtime

    if arguments.devices is not None and arguments.devices < 1:
        return _fail(f"--devices {arguments.devices} should be at least 1", 2)
    plan = make_plan(arguments, run)
    wanted = arguments.devices or plan.devices
    runtime.set_up(cpu_devices=runtime.cpu_devices(run.num_seeds, wanted))
    from fullscale.alarms import Diverged
    from fullscale.run import OutOfMemory, train

    parts = (run, arguments.out, arguments.devices)
    with progress(run, quiet=arguments.json) as report:
        try:
            evaluation = train(*parts, report, outputs=arguments.outputs, plan=plan)
        except Diverged as error:
            return _fail(str(error), 3)
        except OutOfMemory as error:
            return _fail(str(error), 2)
    _print_result(arguments, run, evaluation)
    return 0


def make_plan(arguments: Arguments, run: RunConfig) -> Plan:
    """How the run begins.

    Raises:
        ConfigError: an option without the one that it belongs to, or a checkpoint that
            cannot be the run's beginning.
        StorageError: there is nothing intact to go on from.
    """
    if arguments.accept_changes and not arguments.resume:
        raise ConfigError("--accept-changes belongs to --resume, which is not given")
    if arguments.fresh_optimiser and arguments.start_from is None:
        raise ConfigError("--fresh-optimiser belongs to --from, which is not given")
    if arguments.resume and (arguments.start_from is None or holds_run(arguments.out)):
        accepted = arguments.accept_changes
        plan = origin.resume(run, arguments.out, accept_changes=accepted)
        if isinstance(plan, Finished):
            sys.stderr.write(f"{str(arguments.out)!r} is finished; nothing to do\n")
        return plan
    if arguments.start_from is not None:
        fresh = arguments.fresh_optimiser
        return origin.switch(run, arguments.start_from, fresh_optimiser=fresh)
    return Fresh()


def _print_result(
    arguments: Arguments, run: RunConfig, evaluation: dict[str, list[float]]
) -> None:
    result = {
        "out": str(arguments.out),
        "environment": run.environment,
        "updates": run.updates,
        "transitions": run.transitions,
        "gradient_steps": run.gradient_steps,
        **evaluation,
    }
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    score = statistics.fmean(evaluation["score"])
    sys.stdout.write(
        f"{run.environment}: score {score:.6g} (mean of {run.num_seeds} seeds) after "
        f"{run.transitions:,} transitions in {run.updates:,} updates; "
        f"run folder {arguments.out}\n"
    )


def _fail(sentence: str, status: int) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return status


if __name__ == "__main__":
    sys.exit(command.run(Arguments, main, "python -m fullscale.train"))
