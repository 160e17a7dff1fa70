"""What to fit, and how."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.cells import Cells
from theory.forecast import LAW_PARAMETERS, LIMIT, RUN
from theory.table import TableError

PREDICTED, MEASURED = "predicted", "measured"
THEORY, FITTED = "theory", "fitted"
MIN_DRAWS = 10
ALLOWED = {
    "family": tuple(LAW_PARAMETERS),
    "ddr_column": ("ddr", "ddr_noise"),
    "law_ddr": (LIMIT, RUN),
    "regressor": (PREDICTED, MEASURED),
    "pace": (THEORY, FITTED),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to fit, and how.

    Attributes:
        asymptote: the known optimum in score units; None if it is to be fitted.
        family: "joint", "free" or "saturating", see `theory.laws`, `theory.saturating`.
        ddr_column: "ddr" or "ddr_noise".
        law_ddr: "limit": the law is of the map's noise-only DDR; "run": of the DDR of
            the whole run.
        regressor: "predicted" by the map, or "measured", for comparison only.
        pace: "theory": a run learns as fast as its DDR says; "fitted": terms of the
            pace are added where they earn it, see `theory.fit.pace`.
        knobs: knobs of the map; all varied ones if None.
        draws: bootstrap draws.
        seed: of the bootstrap's random numbers.

    Raises:
        TableError: an option that is none, too few draws, or an asymptote that is not
            finite.
    """

    asymptote: float | None
    family: str = "joint"
    ddr_column: str = "ddr"
    law_ddr: str = LIMIT
    regressor: str = PREDICTED
    pace: str = THEORY
    knobs: Sequence[str] | None = None
    draws: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed:
                known = ", ".join(map(repr, allowed))
                raise TableError(f"{name} is {value!r}; it should be one of {known}")
        if self.draws < MIN_DRAWS:
            raise TableError(f"draws is {self.draws}; at least {MIN_DRAWS} are needed")
        if self.asymptote is not None and not math.isfinite(self.asymptote):
            raise TableError(
                f"asymptote is {self.asymptote}; it should be a number, or None for a "
                "free one"
            )

    def target(self, cells: Cells) -> Float[np.ndarray, "cell"]:
        """What the law is fitted to: the gap, or the score if the optimum is free."""
        known = self.asymptote
        return cells.score if known is None else known - cells.score
