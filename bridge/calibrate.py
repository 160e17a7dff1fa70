"""`python -m bridge.calibrate DOMAIN`: run a calibration's cells, stage by stage.

`--stage training` runs the cells the laws are fitted on, `--stage held-out` those they
are judged on, which is refused until the forecasts are on record. Interrupt it at any
time; started again it goes on with what is missing.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Literal

import tyro

from bridge import cli
from bridge.campaign import run_cells
from bridge.designs import DESIGNS
from bridge.errors import UsageError

FOLDER = Path(__file__).parent / "calibrations"


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Run the cells of a calibration design; resumable."""

    domain: tyro.conf.Positional[str]
    """Domain with a design: lqr."""
    stage: Literal["training", "held-out"] = "training"
    """Which cells to run."""
    folder: Path = FOLDER
    """Where the tables DOMAIN.nc and DOMAIN-held-out.nc are kept."""
    devices: int | None = None
    """Devices per run; by default one per core."""


def main(arguments: Arguments) -> int:
    """Run what is missing."""
    if arguments.domain not in DESIGNS:
        raise UsageError(
            f"there is no design for {arguments.domain!r}; there are {sorted(DESIGNS)}"
        )
    design = DESIGNS[arguments.domain]()
    from fullscale import runtime

    runtime.set_up(cpu_devices=arguments.devices or runtime.cpu_devices(64, None))
    if arguments.stage == "training":
        run_cells(
            arguments.folder / f"{design.domain}.nc", design.training, arguments.devices
        )
        return 0
    if not (arguments.folder / f"{design.domain}-forecasts.json").exists():
        raise UsageError(
            f"the forecasts of {design.domain!r} are not on record yet; write them "
            f"first with --stage forecast"
        )
    run_cells(
        arguments.folder / f"{design.domain}-held-out.nc",
        design.held_out,
        arguments.devices,
    )
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(Arguments, main, "python -m bridge.calibrate"))
