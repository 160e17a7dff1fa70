"""The best DDR against the budget, and the runs that tested it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from theory import cells as cells_module
from theory.calibrated import Calibration
from theory.ddr_map import Values
from theory.figures.canvas import GREY, canvas, colour
from theory.table import RunTable

TRAINING, HELD_OUT = "training", "held out"


def ddr_against_budget(
    calibration: Calibration,
    *,
    training: RunTable | None = None,
    held_out: RunTable | None = None,
    knob: str = "num_envs",
    level: float | int = 0.8,
) -> Figure:
    """DDR of the best value of a knob against the budget, with runs beside it.

    The line is the median over bootstrap draws and the band the central interval of the
    DDR at each draw's best value, other knobs at their centres; it is dashed past the
    largest training budget. Dots are configurations that ran (mean over seeds); the
    ringed one scored best at its budget. Held-out budgets are drawn in another colour:
    the band was fitted without them.

    Args:
        calibration: the fit.
        training: the run table it was fitted to.
        held_out: runs it has not seen.
        knob: the knob that is tuned.
        level: of the interval, in (0, 1).

    Returns:
        One panel, both axes logarithmic.

    Raises:
        CalibrationError: the calibration's map does not use this knob.
        ValueError: the level is outside (0, 1).
        TableError: a table lacks a column.
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1.")
    tables = {TRAINING: training, HELD_OUT: held_out}
    given = {name: table for name, table in tables.items() if table is not None}
    budgets = [*calibration.budgets]
    for table in given.values():
        budgets += [int(budget) for budget in table.budgets()]
    figure, (axes,) = canvas()
    _band(axes, calibration, knob, level, (min(budgets) / 2, max(budgets) * 4.0))
    for index, (name, table) in enumerate(given.items()):
        _runs(axes, table, calibration.ddr_column, name, colour(index + 1))
    axes.set(xscale="log", yscale="log", xlabel="budget (transitions)")
    axes.set_ylabel(f"{calibration.ddr_column} (transitions per nat)")
    axes.legend(frameon=False)
    return figure


def _band(
    axes: Axes,
    calibration: Calibration,
    knob: str,
    level: float | int,
    ends: tuple[float, float],
) -> None:
    budgets = np.geomspace(*ends, 25)
    ddr = np.stack([_best_ddr(calibration, knob, budget) for budget in budgets])
    tail = (1 - level) / 2
    low, middle, high = np.nanquantile(ddr, [tail, 0.5, 1 - tail], axis=1)
    known = budgets <= calibration.budgets[-1]
    beyond = budgets >= budgets[known][-1]
    axes.fill_between(budgets, low, high, color=colour(0), alpha=0.2, lw=0)
    label = f"best DDR, {level:.0%} interval"
    axes.plot(budgets[known], middle[known], color=colour(0), label=label)
    axes.plot(budgets[beyond], middle[beyond], color=colour(0), ls="--")
    axes.axvline(calibration.budgets[-1], color=GREY, lw=0.8, ls=":")


def _best_ddr(calibration: Calibration, knob: str, budget: float) -> np.ndarray:
    """DDR at each draw's own best value of the knob; nan where it has none."""
    best = calibration.best_value(knob, budget)
    centres = calibration.model.ddr_map.centres
    found = np.isfinite(best)
    knobs: dict[str, Values] = {**centres, knob: np.where(found, best, centres[knob])}
    ddr = calibration.model.expected(calibration.draws, budget, knobs).ddr
    return np.where(found, np.diagonal(ddr), np.nan)


def _runs(axes: Axes, table: RunTable, column: str, name: str, shade: str) -> None:
    budgets, ddr, score = _cells(table, column)
    axes.scatter(budgets, ddr, s=12, color=shade, alpha=0.6, lw=0, label=name)
    for budget in np.unique(budgets):
        here = np.flatnonzero(budgets == budget)
        best = here[np.argmax(score[here])]
        axes.scatter(budget, ddr[best], s=70, facecolors="none", edgecolors=shade)


def _cells(table: RunTable, column: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Budget, DDR and mean score per configuration and budget."""
    cells = cells_module.from_table(table, ddr_column=column)
    return cells.transitions, cells.ddr, cells.score
