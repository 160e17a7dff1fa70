"""What to fit, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.cells import Cells
from theory.forecast import LIMIT

PREDICTED, MEASURED = "predicted", "measured"
THEORY, FITTED = "theory", "fitted"


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

    def target(self, cells: Cells) -> Float[np.ndarray, "cell"]:
        """What the law is fitted to: the gap, or the score if the optimum is free."""
        known = self.asymptote
        return cells.score if known is None else known - cells.score
