"""Fit the laws to a run table: knobs → DDR, (budget, DDR) → score.

`python -m theory.fit TABLE --out CALIBRATION` is the command; `fit` is the function.
"""

from theory.fit.options import Options
from theory.fit.status import Estimate, NotConverged, Status
from theory.fit.two_stage import Fit, fit

__all__ = ["Estimate", "Fit", "NotConverged", "Options", "Status", "fit"]
