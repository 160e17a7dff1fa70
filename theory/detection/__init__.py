"""Is this run at a plateau? Tests whose unit is the seed.

Evaluations of one run are correlated over about 1/a updates (a = ηh), so that a line
through a curve has far fewer independent points than evaluations, and how many is not
known. Runs that differ in their seed are independent whatever a is. Every test here
therefore reduces each seed to one number and puts a Student t over seeds.

- `plateau_test`: is the improvement per doubling of the budget below a margin?
- `plateau_level`, `single_curve_level`: the level, with an honest standard error.
- `displacement`: does the policy still travel, diffuse, or stay where it is?
- `monotonicity`: does the score ever fall, from one column to a later one?

What decides is the first; the displacement is evidence of the mechanism. In this model
a noise plateau also has gap = KL/(2η) (`theory.kl.stationary_gap`), and relaxes to the
predicted level when η is halved; a plateau of exploration or of capacity does neither.
"""

from theory.detection.displacement import Displacement, Motion, displacement
from theory.detection.level import Level, plateau_level, single_curve_level
from theory.detection.monotone import Drop, Monotonicity, Order, monotonicity
from theory.detection.plateau import PlateauTest, Trend, plateau_test
from theory.unit_mean import UnitMean

__all__ = [
    "Displacement",
    "Drop",
    "Level",
    "Monotonicity",
    "Motion",
    "Order",
    "PlateauTest",
    "Trend",
    "UnitMean",
    "displacement",
    "monotonicity",
    "plateau_level",
    "plateau_test",
    "single_curve_level",
]
