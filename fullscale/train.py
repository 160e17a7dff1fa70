"""`python -m fullscale.train CONFIG.toml --out DIR`: train one configuration."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path

import tyro

from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig
from fullscale.presets import check_runnable
from fullscale.progress import progress
from fullscale.sinks import require_wandb
from fullscale.storage import StorageError


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Train the configuration of a TOML file and leave a run folder behind."""

    config: tyro.conf.Positional[Path]
    """TOML file with the run's configuration; unknown keys are refused."""
    out: Path
    """Run folder to create: config.toml, metrics.jsonl, run.nc, parameters."""
    devices: int | None = None
    """Devices to use; by default all that fit (CPU: cores that share the seeds)."""
    wandb: str = ""
    """Project of wandb to log to as well (needs the extra `wandb`); empty for none."""
    json: bool = False
    """Print one JSON object on stdout and nothing else."""


def main(arguments: Arguments) -> int:
    """Train; returns the exit status (0 done, 2 bad input or full disk, 3 diverged)."""
    try:
        run = config_module.load(arguments.config)
        check_runnable(run)
        if arguments.wandb:
            require_wandb()
        return _train(arguments, run)
    except (ConfigError, StorageError) as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(f"cannot write {str(arguments.out)!r}: {error.strerror}", 2)
    except KeyboardInterrupt:
        return _fail(f"interrupted; {str(arguments.out)!r} holds the run so far", 130)


def _train(arguments: Arguments, run: RunConfig) -> int:
    from fullscale import runtime

    if arguments.devices is not None and arguments.devices < 1:
        return _fail(f"--devices {arguments.devices} should be at least 1", 2)
    runtime.set_up(cpu_devices=runtime.cpu_devices(run.num_seeds, arguments.devices))
    from fullscale.run import Diverged, OutOfMemory, train

    with progress(run, quiet=arguments.json) as report:
        try:
            evaluation = train(
                run, arguments.out, arguments.devices, report, arguments.wandb
            )
        except Diverged as error:
            return _fail(str(error), 3)
        except OutOfMemory as error:
            return _fail(str(error), 2)
    _print_result(arguments, run, evaluation)
    return 0


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
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
