"""A predictive distribution that can be written down, scored, and compared with a null.

It is normal on a stated scale: the logarithm of the gap where the optimum is known
(−ln(optimum − score), so that up is better), else the score itself. `envelope` makes
one from draws that is nowhere narrower than they are, at 80 % and at 99 %.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bridge.draws import quantile
from theory.shapes import Float

NORMAL = statistics.NormalDist()
LEVELS = (0.8, 0.99)  # central levels at which the envelope holds
QUANTILES = (0.005, 0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975, 0.995)
NARROWEST = 1e-9  # relative; a distribution has a density


@dataclass(frozen=True, kw_only=True)
class Predictive:
    """Distribution of the mean score over the prediction's seeds.

    Attributes:
        optimum: score units; None where it is unknown and the scale is the score.
        centre: median on the scale.
        spread: standard deviation on the scale.
    """

    optimum: float | None
    centre: float
    spread: float

    @property
    def scale(self) -> str:
        """What the normal is normal in."""
        return "score" if self.optimum is None else "-ln(optimum - score)"

    def position(self, score: float) -> float:
        """A score on the scale; ±inf beyond its ends, −inf for a score that is NaN."""
        if math.isnan(score):
            return -math.inf
        if self.optimum is None:
            return score
        gap = self.optimum - score
        return -math.log(gap) if 0.0 < gap < math.inf else math.copysign(math.inf, -gap)

    def score(self, position: float) -> float:
        """The inverse of `position`."""
        if self.optimum is None:
            return position
        return self.optimum - math.exp(-position)

    def deviation(self, score: float) -> float:
        """Standard deviations between a score and the centre."""
        return (self.position(score) - self.centre) / self.spread

    def log_density(self, score: float) -> float:
        """Log density on the scale, in nats; −inf off the scale."""
        return -0.5 * self.deviation(score) ** 2 - math.log(
            self.spread * math.sqrt(2.0 * math.pi)
        )

    def quantile(self, level: float) -> float:
        """The score below which the run's mean falls with probability `level`."""
        return self.score(self.centre + self.spread * NORMAL.inv_cdf(level))

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval of a level, in score units."""
        return self.quantile((1.0 - level) / 2.0), self.quantile((1.0 + level) / 2.0)

    def to_json(self) -> dict[str, object]:
        """Its three numbers and the quantiles they give."""
        return {
            "scale": self.scale,
            "optimum": self.optimum,
            "centre": self.centre,
            "spread": self.spread,
            "quantiles": {str(q): self.quantile(q) for q in QUANTILES},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Predictive":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError."""
        optimum = values["optimum"]
        return cls(
            optimum=None if optimum is None else float(optimum),  # type: ignore[arg-type]
            centre=float(values["centre"]),  # type: ignore[arg-type]
            spread=float(values["spread"]),  # type: ignore[arg-type]
        )


def envelope(
    positions: Float[np.ndarray, "draw"], optimum: float | None = None
) -> Predictive:
    """The narrowest normal around the median that no draw interval sticks out of.

    Args:
        positions: draws of the mean score over the seeds, on the scale.
        optimum: the known optimum, if there is one, in score units.

    Raises:
        ValueError: a draw is not finite.
    """
    if not np.all(np.isfinite(positions)):
        raise ValueError("a predictive draw is not finite")
    centre = quantile(positions, 0.5)
    widths = [
        abs(quantile(positions, (1.0 + sign * level) / 2.0) - centre)
        / NORMAL.inv_cdf((1.0 + level) / 2.0)
        for level in LEVELS
        for sign in (-1, 1)
    ]
    spread = max(*widths, NARROWEST * max(1.0, abs(centre)))
    return Predictive(optimum=optimum, centre=centre, spread=spread)
