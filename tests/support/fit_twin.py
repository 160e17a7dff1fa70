"""The slow obvious twin of the fit: one general search per draw, nothing shared."""

import numpy as np
import scipy.optimize

from tests.support.simulated import OPTIMUM
from theory.fit import Fit


def twin_map(found: Fit, weights: np.ndarray) -> np.ndarray:
    """Coefficients of the map by a general least-squares search."""
    form, cells = found.model.ddr_map, found.cells
    slopes = 2 + len(form.terms) + np.arange(len(form.transient_terms or ()))

    def residuals(a: np.ndarray) -> np.ndarray:
        off = form.log_ddr(a[None], cells.transitions, cells.knobs)[0]
        weighted = np.sqrt(weights) * (off - np.log(cells.ddr))
        return np.concatenate([weighted, 0.03 * a[slopes]])

    start = found.point.ddr_map[0]
    return scipy.optimize.least_squares(residuals, start, xtol=1e-12, ftol=1e-12).x


def twin_law(found: Fit, log_ddr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Floor, bias, noise and source by a general search of the deviance."""
    gap = OPTIMUM - found.cells.score
    z = np.log(found.cells.transitions) - log_ddr / 2
    reliability = found.problem.weights[0]

    def deviance(logs: np.ndarray) -> float:
        mean = np.exp(logs[0] - np.exp(logs[2]) * (z - np.mean(z)))
        mean = mean + np.exp(logs[1] - log_ddr / 2)
        ratio = gap / mean
        return float(weights * reliability @ (2 * (ratio - 1 - np.log(ratio))))

    _, bias, noise, source = found.point.law[0]
    start = [np.log(bias) - source * np.mean(z), np.log(noise), np.log(source)]
    best = scipy.optimize.minimize(
        deviance, start, method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000},
    ).x  # fmt: skip
    source = np.exp(best[2])
    return np.array(
        [0.0, np.exp(best[0] + source * np.mean(z)), np.exp(best[1]), source]
    )
