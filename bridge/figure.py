"""`python -m bridge.figure DOMAIN --out FILE`: forecasts on record against what ran.

Left, gap against N at the preset's knobs: training budgets as lines, the held-out
budget as points beside the forecast's 80 % interval. Right, every held-out cell:
measured against forecast, for the law and its rivals. Nothing is fitted here: it reads
the run tables and the recorded forecasts.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import tyro

from bridge import cli
from bridge.calibrate import FOLDER, files
from bridge.designs import DESIGNS, Design
from bridge.errors import UsageError
from fullscale.presets import PRESETS
from theory import table as run_table

LABELS = {
    "law": "law",
    "constant_ddr": "constant DDR",
    "persistence": "nearest budget",
    "moving_optimum": "argmin + line",
}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Draw a calibration: training runs, recorded forecasts and held-out runs."""

    domain: tyro.conf.Positional[str]
    """Domain with a finished calibration: lqr."""
    out: Path
    """Image to write; the ending says the format (.svg, .png, .pdf)."""
    folder: Path = FOLDER
    """Where the calibration's files lie."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One held-out cell: its knobs, recorded quantiles per model, measured gap."""

    num_envs: int
    recipe: bool
    budget: int
    quantiles: dict[str, np.ndarray]
    gap: float
    error: float


def main(arguments: Arguments) -> int:
    """Read, draw, write."""
    if arguments.domain not in DESIGNS:
        raise UsageError(
            f"there is no design for {arguments.domain!r}; there are {sorted(DESIGNS)}"
        )
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "ppo-outer-loop"  # the same file every time
    draw(DESIGNS[arguments.domain](), arguments.folder, arguments.out)
    return 0


def draw(design: Design, folder: Path, out: Path) -> None:
    """The two panels of a finished calibration with a known optimum."""
    from matplotlib import pyplot as plt

    if design.asymptote is None:
        raise UsageError(f"{design.domain!r} has no known optimum, so there is no gap")
    place = files(folder, design.domain)
    training = run_table.read(place.training)
    cells = held_out_cells(design, folder)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    _budgets(left, design, training, cells)
    _scatter(right, design.asymptote, cells)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
    plt.close(figure)


def held_out_cells(design: Design, folder: Path) -> list[Cell]:
    """Recorded forecasts joined with the runs that tested them."""
    place = files(folder, design.domain)
    record = json.loads(place.forecasts.read_text())
    table = run_table.read(place.held_out)
    assert design.asymptote is not None
    cells = []
    for cell in record["cells"]:
        names = ("num_envs", "outer_learning_rate", "clip_epsilon", "budget")
        rows = np.logical_and.reduce([table[k] == cell[k] for k in names])
        gaps = design.asymptote - table["score"][rows]
        cells.append(
            Cell(
                num_envs=cell["num_envs"],
                recipe=_is_recipe(design, cell),
                budget=cell["budget"],
                quantiles={k: np.array(v) for k, v in cell["quantiles"].items()},
                gap=float(gaps.mean()),
                error=float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
            )
        )
    return cells


def _is_recipe(design: Design, cell: dict) -> bool:
    preset = {"outer_learning_rate": 1.0, "clip_epsilon": 0.2, **PRESETS[design.domain]}
    return all(cell[k] == preset[k] for k in ("outer_learning_rate", "clip_epsilon"))


def _budgets(axes, design: Design, table, cells: list[Cell]) -> None:  # type: ignore[no-untyped-def]
    recipe = (table["outer_learning_rate"] == 1.0) & (table["clip_epsilon"] == 0.2)
    for budget in table.budgets():
        rows = recipe & (table["budget"] == budget)
        sizes = np.unique(table["num_envs"][rows])
        gaps = [
            design.asymptote - table["score"][rows & (table["num_envs"] == n)].mean()
            for n in sizes
        ]
        axes.plot(sizes, gaps, "o-", ms=4, label=f"B = {budget:,}: trained on")
    shown = [cell for cell in cells if cell.recipe]
    sizes = np.array([cell.num_envs for cell in shown])
    low, middle, high = (
        [design.asymptote - cell.quantiles["law"][i] for cell in shown]
        for i in (90, 50, 10)
    )
    axes.fill_between(sizes, low, high, color="0.8", label="forecast, 80 %")
    axes.plot(sizes, middle, color="0.4", lw=1)
    axes.errorbar(
        sizes, [c.gap for c in shown], [c.error for c in shown], fmt="kD", ms=5,
        label=f"B = {shown[0].budget:,}: held out",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="environments N", ylabel="gap J* − J")
    axes.set_xscale("log", base=2)
    axes.legend(fontsize=7)


def _scatter(axes, asymptote: float, cells: list[Cell]) -> None:  # type: ignore[no-untyped-def]
    for name, label in LABELS.items():
        middle = [asymptote - cell.quantiles[name][50] for cell in cells]
        axes.plot(middle, [c.gap for c in cells], "o" if name == "law" else "x",
                  ms=6 if name == "law" else 4, label=label)  # fmt: skip
    ends = np.array([5e-4, 3.0])
    axes.plot(ends, ends, color="0.6", lw=1)
    axes.set(xscale="log", yscale="log", xlabel="forecast gap (median)",
             ylabel="measured gap")  # fmt: skip
    axes.legend(fontsize=7)


if __name__ == "__main__":
    sys.exit(cli.run(Arguments, main, "python -m bridge.figure"))
