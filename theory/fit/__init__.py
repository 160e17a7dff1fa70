"""Fit the laws to a run table: knobs → DDR, (budget, DDR) → score.

`python -m theory.fit TABLE --out CALIBRATION` is the command; `fit` is the function.
"""

from theory.fit.intervals import Interval, Kind
from theory.fit.options import Options
from theory.fit.result import Fit
from theory.fit.status import Estimate, NotConverged, Status
from theory.fit.two_stage import fit

__all__ = [
    "Estimate",
    "Fit",
    "Interval",
    "Kind",
    "NotConverged",
    "Options",
    "Status",
    "fit",
]
