"""Figures of the theory: one function each, returning a matplotlib `Figure`.

Nothing is shown or saved here and no global state of matplotlib is touched: show the
figure in a notebook (after `%matplotlib inline`), or call its `savefig`.

- `transient_and_plateau`: how loops approach the level at which they stop.
- `stability_map`: the largest stable step against averaging, momentum and samples.
- `plateau_map`: the plateau over centre of mass and outer step.
- `ridge`: the gap after a budget over outer step and samples per update.
- `ddr_against_budget`: the best DDR of a calibration, beside the runs that tested it.
"""

from theory.figures.budget import ddr_against_budget
from theory.figures.plateau import plateau_map
from theory.figures.ridge import ridge
from theory.figures.stability import stability_map
from theory.figures.transient import transient_and_plateau

__all__ = [
    "ddr_against_budget",
    "plateau_map",
    "ridge",
    "stability_map",
    "transient_and_plateau",
]
