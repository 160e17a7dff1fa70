"""Leave one budget, or one level of a knob, out: does the law forecast it?

A random split would let neighbours help. A left-out budget asks whether the law carries
from one budget to another (the outer ones: whether it extrapolates), a left-out level
of a knob whether the map does, and the parameters of each fit whether they hold still.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from theory.cells import MIN_BUDGETS
from theory.fit import assembly, held_out
from theory.fit.named import OPTIMUM_EXPONENT, named
from theory.fit.options import Options
from theory.fit.status import NotConverged
from theory.fit.two_stage import fit
from theory.forecast import LAW_PARAMETERS
from theory.table import RunTable, TableError

BUDGET = "budget"
MIN_LEVELS = 3  # so that the knob still varies among two


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What happened without one budget or level; JSON values throughout.

    Attributes:
        by: "budget" or the knob.
        value: the budget, in transitions, or the level.
        status: a sentence about the fit to the others; without an answer, all that
            follows is empty.
        cells: how many were forecast.
        crps: of the law's forecasts, on the outcome that is scored.
        coverage: nominal level → share of cells within.
        skill: null model → skill of the law over it, with its interval.
        law: parameter of the law, or "optimum_exponent" → estimate.
    """

    by: str
    value: int | float
    status: str
    cells: int = 0
    crps: float | None = None
    coverage: Mapping[str, float] = field(default_factory=dict)
    skill: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    law: Mapping[str, float] = field(default_factory=dict)


def leave_one_out(
    table: RunTable, options: Options, by: str = BUDGET
) -> Sequence[LeftOut]:
    """Fit without each budget, or each level of a knob, and forecast what was left out.

    Args:
        table: the runs.
        options: what to fit.
        by: "budget", or a knob that varies.

    Raises:
        TableError: too few budgets or levels, no such knob, or a table that cannot be
            fitted.
    """
    return [_without(table, options, by, value) for value in _values(table, by)]


def _values(table: RunTable, by: str) -> Sequence[int | float]:
    if by == BUDGET:
        budgets = table.budgets()
        if len(budgets) <= MIN_BUDGETS:
            raise TableError(
                f"the run table has {len(budgets)} budgets; to leave one out takes "
                f"{MIN_BUDGETS + 1}"
            )
        return budgets
    varied = table.varied()
    if by not in varied:
        raise TableError(
            f"{by!r} cannot be left out: what varies is {', '.join((BUDGET, *varied))}"
        )
    levels = np.unique(table[by])
    if len(levels) < MIN_LEVELS:
        raise TableError(
            f"{by} has {len(levels)} levels; to leave one out takes {MIN_LEVELS}"
        )
    return levels.tolist()


def _without(table: RunTable, options: Options, by: str, value: int | float) -> LeftOut:
    out = table[by] == value
    kept, tested = table.select(~out), table.select(out)
    try:
        found = fit(kept, options)
        seen = held_out.evaluate(found, assembly.calibration(found, kept), tested)
    except NotConverged as error:
        return LeftOut(by=by, value=value, status=str(error))
    models = typing.cast(dict[str, dict[str, typing.Any]], seen["models"])
    law = models.pop(held_out.LAW)
    parameters = named(found.model, found.point)
    names = (*LAW_PARAMETERS[found.model.family], OPTIMUM_EXPONENT)
    return LeftOut(
        by=by,
        value=value,
        status=found.status.value,
        cells=len(typing.cast(list[object], seen["cells"])),
        crps=law["crps"],
        coverage=law["coverage"],
        skill={
            name: model["skill_of_law"]
            for name, model in models.items()
            if "skill_of_law" in model
        },
        law={name: float(parameters[name][0]) for name in names},
    )
