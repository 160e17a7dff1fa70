"""`python -m bridge.configure PREDICTION --out FILE`: another run under a prediction.

A prediction covers its recipe at every number of environments in its table. The first
seed and the number of seeds are free too; every other knob is fixed, and a
configuration that changed one would test nothing.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bridge import cli, deposit, prediction, quantities
from bridge.errors import UsageError
from fullscale import config as config_module

COMMAND = "python -m bridge.configure"
RECIPE = "recipe"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write another configuration that tests a prediction."""

    prediction: Annotated[Positional[str], arg(metavar="PREDICTION")]
    """The prediction.json to test."""
    out: Annotated[str, arg(metavar="FILE")]
    """Configuration file to write."""
    num_envs: Annotated[str | None, arg(metavar="N")] = None
    """Parallel environments, one of the table's; by default the recommended ones."""
    seed: Annotated[str | None, arg(metavar="S")] = None
    """First seed, to add seeds to a run that was made."""
    seeds: Annotated[str | None, arg(metavar="K")] = None
    """Seeds of the run; by default the prediction's."""
    preset: Annotated[str, arg(metavar="NAME")] = RECIPE
    """How the other knobs are set; "recipe" is what the prediction covers."""
    json: bool = False
    """Print the configuration as one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return cli.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    if arguments.preset != RECIPE:
        raise UsageError(
            f"--preset {arguments.preset!r} changes knobs that the prediction fixes; "
            f"it covers {RECIPE!r} only"
        )
    made = prediction.load(Path(arguments.prediction))
    config = made.run_config(**_changes(arguments))
    path = Path(arguments.out)
    if not path.name.strip():
        raise UsageError(f"--out = {arguments.out!r} should name a file")
    text = config_module.dumps(config)
    deposit.place(path.parent, {path.name: text})
    if arguments.json:
        cli.write(json.dumps(prediction.config_to_json(config), allow_nan=False))
    else:
        cli.write(
            f"Wrote {path}: {config.num_envs:,} environments, {config.num_seeds} seeds "
            f"from {config.seed}, under the prediction {made.sha256[:12]}.\n"
            f"Next: python -m fullscale.train {path} --out RUN"
        )
    return cli.DONE


def _changes(arguments: Arguments) -> dict[str, int]:
    changes: dict[str, int] = {}
    if arguments.num_envs is not None:
        changes["num_envs"] = quantities.count("--num-envs", arguments.num_envs, "64")
    if arguments.seeds is not None:
        changes["num_seeds"] = quantities.count("--seeds", arguments.seeds, "5")
    if arguments.seed is not None:
        changes["seed"] = quantities.count("--seed", arguments.seed, "5", least=0)
    return changes


if __name__ == "__main__":
    sys.exit(main())
