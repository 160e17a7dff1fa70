"""Whether a run is at a plateau: improvement per doubling shown to be small.

"No significant slope" is not a plateau: too few seeds always get it. The claim is
reversed here: it is the smallness of the slope that must be shown.
"""

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.arithmetic import check_positive
from theory.detection.seeds import Array, check_axis, check_level, check_seeds, slopes
from theory.unit_mean import UnitMean, unit_mean

FEWEST_EVALUATIONS = 3


class Trend(enum.Enum):
    """What was shown; the value is the sentence to show."""

    PLATEAU = "The score changes by less than the margin per doubling of the budget."
    IMPROVING = "The score is still improving."
    WORSENING = "The score is getting worse."
    UNDECIDED = "Neither a plateau nor a change is shown: more seeds would tell."


@dataclass(frozen=True)
class PlateauTest:
    """Slope of a score per doubling of the budget, and what it shows.

    Attributes:
        slope: over seeds, score units per doubling.
        margin: the largest slope that counts as none.
        level: error rate α of the test.
        evaluations: how many of each seed lie in the window.
    """

    slope: UnitMean
    margin: float
    level: float
    evaluations: int

    @property
    def interval(self) -> tuple[float, float]:
        """Of confidence 1 − 2α: inside (−margin, margin) exactly at a plateau."""
        return self.slope.interval(1 - 2 * self.level)

    @property
    def plateau_p(self) -> float:
        """The p-value of "the slope is at least the margin, up or down"."""
        return max(self.slope.p_above(-self.margin), self.slope.p_below(self.margin))

    @property
    def change_p(self) -> float:
        """The p-value of "the slope is 0", two-sided."""
        return min(1.0, 2 * min(self.slope.p_above(0.0), self.slope.p_below(0.0)))

    @property
    def trend(self) -> Trend:
        """The verdict; a plateau wins over a change that is shown to be small."""
        if self.plateau_p < self.level:
            return Trend.PLATEAU
        if self.change_p >= self.level:
            return Trend.UNDECIDED
        return Trend.IMPROVING if self.slope.value > 0 else Trend.WORSENING


def plateau_test(
    curves: ArrayLike,
    transitions: ArrayLike,
    margin: float,
    *,
    level: float = 0.05,
    doublings: float = 1.0,
) -> PlateauTest:
    """Two one-sided t tests over the slopes of the seeds against log₂(transitions).

    The window holds the evaluations with transitions ≥ last/2^doublings. With b the
    mean over seeds of the least-squares slope in it:

        plateau: −margin < b < margin shown, each side at level α
        improving, worsening: no plateau, but b ≠ 0 shown, two-sided at level α

    False verdicts: a plateau where the slope is the margin or more, at most α; a change
    where it is 0, at most α (α/2 each way). Exact where the slopes of the seeds are
    normal, for any correlation within a run, as long as runs are independent: no common
    evaluation noise that varies along the run. Measured at α = .05 with 5 seeds of 400
    evaluations over one doubling (s.e. .003), for an AR(1) score with φ = 1 − a and for
    the loss of such a loop, its square:

        a                                      .5        .1        .02
        plateau at a slope of the margin    .05 .05   .05 .04   .05 .04
        change at no slope                  .05 .05   .05 .04   .05 .04
        the same, line through mean curve   .26 .12   .64 .52   .85 .77

    The slope is that of the window. It bounds the next doubling where the curve is
    concave in log₂(transitions) from there on, as near any plateau; a run that has not
    taken off yet is flat too.

    Args:
        curves: scores, shape [seed, eval].
        transitions: at the evaluations, shape [eval].
        margin: score units per doubling.
        level: α, between 0 and ½.
        doublings: length of the window.

    Returns:
        Slope, interval, p-values and verdict.

    Raises:
        ValueError: if there are fewer than five seeds or three evaluations in the
            window, or an argument is invalid.
    """
    scores = check_seeds("curves", curves, FEWEST_EVALUATIONS)
    budget = check_axis("transitions", transitions, scores.shape[1])
    check_positive("margin", margin)
    check_positive("doublings", doublings)
    check_level("level", level, 0.5)
    kept = _window(budget, doublings)
    slope = unit_mean(slopes(scores[:, kept:], np.log2(budget[kept:])))
    return PlateauTest(slope, float(margin), level, len(budget) - kept)


def _window(budget: Array, doublings: float) -> int:
    """Index of the first evaluation of the window."""
    ago = np.log2(budget[-1] / budget)
    kept = int(np.argmax(ago <= doublings * (1 + 1e-9)))
    if len(budget) - kept < FEWEST_EVALUATIONS:
        msg = (
            f"doublings is {doublings}; the window holds {len(budget) - kept} "
            f"evaluations and must hold at least {FEWEST_EVALUATIONS}."
        )
        raise ValueError(msg)
    return kept
