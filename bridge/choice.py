"""From gaps per draw and setting to one number of environments and its range.

Regret = gap/best_gap − 1, the best taken over the candidates within each draw. The
choice is the candidate of least expected regret (mean over draws). Its *range* holds
the candidates whose expected regret is within five percentage points of the least; the
*interval* holds the middle 80 % of each draw's own best candidate. The first says what
is safe to use, the second how well the best is known.
"""

from dataclasses import dataclass

import numpy as np

from bridge.draws import member
from bridge.errors import UsageError
from theory.shapes import Float

REGRET_MARGIN = 0.05  # percentage points / 100
INTERVAL = (0.1, 0.9)


class ChoiceError(UsageError):
    """Gaps that allow no choice; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to use, and how far from it one may go.

    Attributes:
        index: of the candidate of least expected regret.
        low: index of the smallest candidate of the range.
        high: index of the largest candidate of the range.
        interval: indices of the 80 % interval of each draw's best candidate.
        regret: expected regret per candidate.
        best_shares: share of draws in which each candidate is the best.
    """

    index: int
    low: int
    high: int
    interval: tuple[int, int]
    regret: Float[np.ndarray, "cell"]
    best_shares: Float[np.ndarray, "cell"]


def choose(gap: Float[np.ndarray, "draw cell"]) -> Choice:
    """The choice among candidates in increasing order.

    Args:
        gap: gap to the asymptote in score units (floor included), or anything
            proportional to it within a draw.

    Raises:
        ChoiceError: some draw has no candidate with a positive finite gap.
    """
    usable = np.where(np.isfinite(gap) & (gap > 0), gap, np.inf)
    best = usable.min(axis=-1, keepdims=True)
    if not np.all(np.isfinite(best)):
        raise ChoiceError("some draws give no candidate a positive finite gap")
    regret = (usable / best - 1.0).mean(axis=0)
    index = int(regret.argmin())
    near = np.flatnonzero(regret <= regret[index] + REGRET_MARGIN)
    winners = usable.argmin(axis=-1)
    return Choice(
        index=index,
        low=int(near.min()),
        high=int(near.max()),
        interval=(member(winners, INTERVAL[0]), member(winners, INTERVAL[1])),
        regret=regret,
        best_shares=np.bincount(winners, minlength=gap.shape[1]) / len(winners),
    )
