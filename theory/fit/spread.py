"""How far configurations and seeds scatter around a fit, and what each cell is worth.

Known optimum: a cell's relative variance is config² + φ·share/num_seeds, share being
`theory.forecast.seed_share`. φ comes from the variance within cells, config² from what
is left of the squared residuals, and both give the cells' weights. Free asymptote: one
variance for all, and equal weights.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.cells import Cells
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.options import Options
from theory.forecast import LAW_PARAMETERS, seed_share

# Below this relative sd a law is not trusted, however well a cell is measured.
MIN_CONFIG_SD = 0.02


@dataclass(frozen=True, kw_only=True)
class Sds:
    """Standard deviations per row of weights, as `theory.forecast.Parameters` has them.

    Attributes:
        config: of configurations.
        seed: of seeds.
        ddr: of log DDR around the map.
    """

    config: Float[np.ndarray, "draw"]
    seed: Float[np.ndarray, "draw"]
    ddr: Float[np.ndarray, "draw"]


class Spread:
    """Scatter around the estimate (its first row)."""

    def __init__(
        self, cells: Cells, options: Options, stage_one: MapFit, stage_two: LawFit
    ) -> None:
        solution = stage_two.solution
        mean = solution.mean[:1]
        self.known = options.asymptote is not None
        scale, share = np.ones_like(mean[0]), np.ones_like(mean[0])
        if self.known:
            scale = mean[0]
            share = seed_share(mean, solution.level[:1, None], solution.noise[:1])[0]
        self.seed_variance = _seed_variance(cells, scale, share)
        self.from_seeds = self.seed_variance * share / cells.num_seeds
        residuals = (options.target(cells) - mean[0]) / scale
        parameters = len(LAW_PARAMETERS[options.family])
        correction = len(cells) / max(len(cells) - parameters, 1)
        self.config_squares = correction * residuals**2 - self.from_seeds
        freedom = max(len(cells) - stage_one.coefficients.shape[1], 1)
        self.ddr_squares = len(cells) / freedom * stage_one.residuals[0] ** 2

    def sds(self, weights: Float[np.ndarray, "draw cell"]) -> Sds:
        """Standard deviations per row of bootstrap weights."""
        share = weights / np.sum(weights, axis=-1, keepdims=True)
        config = np.maximum(share @ self.config_squares, 0.0)
        return Sds(
            config=np.sqrt(np.log1p(config) if self.known else config),
            seed=np.full(len(weights), np.sqrt(self.seed_variance)),
            ddr=np.sqrt(share @ self.ddr_squares),
        )

    def reliability(self) -> Float[np.ndarray, "one cell"]:
        """Weight of each cell's relative residual, mean one."""
        if not self.known:
            return np.ones((1, len(self.from_seeds)))
        config = max(float(np.mean(self.config_squares)), MIN_CONFIG_SD**2)
        weights = 1 / (config + self.from_seeds)
        return (weights / np.mean(weights))[None]


def _seed_variance(cells: Cells, scale: np.ndarray, share: np.ndarray) -> float:
    """Variance within cells, relative to scale² · share; 0 if no cell has two seeds.

    A cell that only the law's rounding calls noisy (share near 0) says nothing of φ.
    """
    several = (cells.num_seeds > 1) & (share > 1e-3)
    freedom = (cells.num_seeds - 1)[several]
    if len(freedom) == 0:
        return 0.0
    relative = cells.seed_variance[several] / (scale**2 * share)[several]
    return float(np.sum(freedom * relative) / np.sum(freedom))
