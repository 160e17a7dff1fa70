"""`python -m bridge.calibrate DOMAIN`: a calibration from nothing, stage by stage.

training (run the cells the laws are fitted on) → forecast (fit, and put the forecasts
of the held-out cells on record) → held-out (run those) → score (write DOMAIN.json,
which `bridge.predict` reads). Interrupt it at any time: started again it goes on with
what is missing. Recorded forecasts are never overwritten.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro

from bridge import cli, forecasts
from bridge.campaign import run_cells
from bridge.designs import DESIGNS, Design
from bridge.errors import UsageError
from theory import calibration as calibrations
from theory import table as run_table

FOLDER = Path(__file__).parent / "calibrations"
Stage = Literal["training", "forecast", "held-out", "score"]


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Run a calibration's stages; resumable."""

    domain: tyro.conf.Positional[str]
    """Domain with a design: lqr."""
    stage: Literal["all"] | Stage = "all"
    """Which stage to run; "all" runs them in order."""
    folder: Path = FOLDER
    """Where DOMAIN.nc, DOMAIN-forecasts.json, DOMAIN-held-out.nc, DOMAIN.json go."""
    devices: int | None = None
    """Devices per run; by default cores that share the seeds."""


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of one calibration."""

    training: Path
    forecasts: Path
    held_out: Path
    sidecar: Path


def files(folder: Path, domain: str) -> Files:
    """Where a domain's calibration lies."""
    return Files(
        training=folder / f"{domain}.nc",
        forecasts=folder / f"{domain}-forecasts.json",
        held_out=folder / f"{domain}-held-out.nc",
        sidecar=folder / f"{domain}.json",
    )


def main(arguments: Arguments) -> int:
    """Run what is missing."""
    if arguments.domain not in DESIGNS:
        raise UsageError(
            f"there is no design for {arguments.domain!r}; there are {sorted(DESIGNS)}"
        )
    design = DESIGNS[arguments.domain]()
    place = files(arguments.folder, design.domain)
    chosen = STAGES if arguments.stage == "all" else {arguments.stage: None}
    for stage in chosen:
        sys.stderr.write(f"{design.domain}: {stage}\n")
        STAGES[stage](design, place, arguments.devices)
    return 0


def run_training(design: Design, place: Files, devices: int | None) -> None:
    """Train the cells that the table lacks."""
    _start_jax(design.seeds, devices)
    run_cells(place.training, design.training, devices)


def record_forecasts(design: Design, place: Files, devices: int | None) -> None:
    """Fit, and put the forecasts on record."""
    del devices
    if place.forecasts.exists():
        forecasts.read(place.forecasts)
    fitted, calibration = forecasts.fit_design(design, place.training)
    forecasts.write(place.forecasts, forecasts.forecasts(design, fitted, calibration))


def run_held_out(design: Design, place: Files, devices: int | None) -> None:
    """Train the held-out cells, once their forecasts are on record."""
    if not place.forecasts.exists():
        raise UsageError(
            f"the forecasts of {design.domain!r} are not on record yet; "
            "run --stage forecast first"
        )
    _start_jax(design.seeds, devices)
    run_cells(place.held_out, design.held_out, devices)


def score(design: Design, place: Files, devices: int | None) -> None:
    """Score the recorded forecasts and write the calibration."""
    del devices
    record = forecasts.read(place.forecasts)
    result = forecasts.score(record, design, run_table.read(place.held_out))
    _, calibration = forecasts.fit_design(design, place.training)
    calibrations.save(dataclasses.replace(calibration, held_out=result), place.sidecar)


STAGES: dict[Stage, Callable[[Design, Files, int | None], None]] = {
    "training": run_training,
    "forecast": record_forecasts,
    "held-out": run_held_out,
    "score": score,
}


def _start_jax(seeds: int, devices: int | None) -> None:
    from fullscale import runtime

    runtime.set_up(cpu_devices=runtime.cpu_devices(seeds, devices))


if __name__ == "__main__":
    sys.exit(cli.run(Arguments, main, "python -m bridge.calibrate"))
