"""Stage 1: fit the DDR map to cells, and choose its terms.

Least squares in log D. The map starts with one term per varied knob and no transient;
it may gain a transient (one τ, or one that depends on the knobs), products of two
knobs, and squares of knobs with three or more levels. A candidate is kept only if it
lowers the leave-one-configuration-out error by more than `MIN_GAIN`; the simpler map
wins ties.
"""

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.cells import Cells
from theory.ddr_map import PRODUCT, SQUARE, DdrMap
from theory.fit import levenberg
from theory.fit.status import NotConverged, Status

MIN_GAIN = 0.05
# A weak pull of the slopes of log τ towards 0 keeps them finite where τ ≪ B.
SLOPE_PRIOR = 0.03


@dataclass(frozen=True, kw_only=True)
class MapFit:
    """A fitted map.

    Attributes:
        ddr_map: its terms.
        coefficients: one row per row of weights.
        residuals: log D − map, per cell, for every row.
        left_out_error: rms of log D of left-out configurations.
        converged: per row.
    """

    ddr_map: DdrMap
    coefficients: Float[np.ndarray, "draw k"]
    residuals: Float[np.ndarray, "draw cell"]
    left_out_error: float
    converged: Bool[np.ndarray, "draw"]

    @property
    def residual_sd(self) -> float:
        """Standard deviation of log D around the map (first row), dof corrected."""
        cells, k = self.residuals.shape[1], self.coefficients.shape[1]
        return float(np.sqrt(np.sum(self.residuals[0] ** 2) / max(cells - k, 1)))


def fit_map(cells: Cells) -> MapFit:
    """Choose the terms and fit the map.

    Raises:
        NotConverged: too few configurations, or knobs that vary only together.
    """
    form = base_form(cells)
    _check(form, cells)
    best = (left_out_error(form, cells), form)
    transients: list[tuple[str, ...]] = [(), form.terms]
    for terms in transients:
        best = _better(best, dataclasses.replace(form, transient_terms=terms), cells)
    remaining = curved_terms(cells)
    while remaining:
        forms = [
            dataclasses.replace(best[1], terms=(*best[1].terms, term))
            for term in remaining
        ]
        errors = [left_out_error(form, cells) for form in forms]
        index = int(np.argmin(errors))
        if errors[index] >= (1 - MIN_GAIN) * best[0]:
            break
        best = (errors[index], forms[index])
        remaining.pop(index)
    error, form = best
    fitted = refit(form, cells, np.ones((1, len(cells))))
    return dataclasses.replace(fitted, left_out_error=error)


def base_form(cells: Cells) -> DdrMap:
    """Linear in every varied knob, centred at the mean logarithm of its levels."""
    centres = {
        name: float(np.exp(np.mean(np.log(np.unique(values)))))
        for name, values in cells.knobs.items()
    }
    return DdrMap(terms=tuple(cells.knobs), transient_terms=None, centres=centres)


def refit(
    form: DdrMap,
    cells: Cells,
    weights: Float[np.ndarray, "draw cell"],
    start: Float[np.ndarray, "k"] | None = None,
) -> MapFit:
    """Fit a map of given terms, once per row of weights.

    Args:
        form: the terms.
        cells: the data.
        weights: weight of each cell in each row.
        start: coefficients to start from; a coarse search over τ by default.
    """
    log_ddr = np.log(cells.ddr)
    limit = form.design(form.terms, cells.knobs)
    if form.transient_terms is None:
        coefficients = weighted_least_squares(limit, log_ddr, weights)
        residuals = log_ddr - coefficients @ limit.T
        converged = np.ones(len(weights), dtype=bool)
    else:
        problem = _Transient(form, cells, weights)
        starts = problem.starts() if start is None else [start]
        solutions = [problem.solve(s) for s in starts]
        costs = np.stack([cost for _, cost, _ in solutions])
        pick, row = np.argmin(costs, axis=0), np.arange(len(weights))
        coefficients = np.stack([theta for theta, _, _ in solutions])[pick, row]
        converged = np.stack([done for _, _, done in solutions])[pick, row]
        residuals = log_ddr - problem.model(coefficients)
    return MapFit(
        ddr_map=form,
        coefficients=coefficients,
        residuals=residuals,
        left_out_error=np.nan,
        converged=converged,
    )


def left_out_error(form: DdrMap, cells: Cells) -> float:
    """Rms of log D over cells, each predicted without its configuration."""
    if len(form.coefficient_names) >= len(cells):
        return np.inf
    configs = np.unique(cells.config)
    weights = (cells.config[None, :] != configs[:, None]).astype(float)
    if any(len(np.unique(cells.config[w > 0])) < 2 for w in weights):
        return np.inf
    fitted = refit(form, cells, weights)
    return float(np.sqrt(np.mean(fitted.residuals[weights == 0] ** 2)))


def curved_terms(cells: Cells) -> list[str]:
    """Products and squares that the levels allow."""
    products = [PRODUCT.join(pair) for pair in itertools.combinations(cells.knobs, 2)]
    levels = {knob: len(np.unique(values)) for knob, values in cells.knobs.items()}
    return products + [knob + SQUARE for knob, count in levels.items() if count >= 3]


def _better(
    best: tuple[float, DdrMap], candidate: DdrMap, cells: Cells
) -> tuple[float, DdrMap]:
    """The candidate with its error if it earns its terms, else the best so far."""
    error = left_out_error(candidate, cells)
    return (error, candidate) if error < (1 - MIN_GAIN) * best[0] else best


def _check(form: DdrMap, cells: Cells) -> None:
    design = form.design(form.terms, cells.knobs)
    configs = len(np.unique(cells.config))
    if configs <= len(form.terms):
        raise NotConverged(
            Status.TOO_FEW,
            f"{configs} configurations vary {len(form.terms)} knobs.",
        )
    if np.linalg.matrix_rank(design, tol=1e-8 * len(cells)) < design.shape[1]:
        raise NotConverged(
            Status.SINGULAR, "The knobs are " + ", ".join(form.terms) + "."
        )


def weighted_least_squares(
    design: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Weighted least squares per row of weights."""
    normal = np.einsum("dn,nk,nl->dkl", weights, design, design, optimize=True)
    right = weights * target @ design
    index = np.arange(design.shape[1])
    normal[:, index, index] *= 1 + 1e-12
    return np.linalg.solve(normal, right[..., None])[..., 0]


class _Transient:
    """The nonlinear problem log D = X·a − log(1 + exp(Z·t − log B))."""

    def __init__(self, form: DdrMap, cells: Cells, weights: np.ndarray) -> None:
        self.target = np.log(cells.ddr)
        self.log_budget = np.log(cells.transitions)
        self.limit = form.design(form.terms, cells.knobs)
        self.transient = form.design(form.transient_terms or (), cells.knobs)
        self.root = np.sqrt(weights)
        self.k, self.q = self.limit.shape[1], self.transient.shape[1]

    def starts(self) -> list[np.ndarray]:
        """Coefficients for τ well below, and amid, the budgets."""
        ones = np.ones((1, len(self.target)))
        starts = []
        for log_tau in (np.min(self.log_budget) - 2, np.mean(self.log_budget)):
            excess = np.logaddexp(0.0, log_tau - self.log_budget)
            linear = weighted_least_squares(self.limit, self.target + excess, ones)[0]
            starts.append(np.concatenate([linear, [log_tau], np.zeros(self.q - 1)]))
        return starts

    def model(self, theta: np.ndarray) -> np.ndarray:
        """Log D per draw and cell."""
        excess = theta[:, self.k :] @ self.transient.T - self.log_budget
        return theta[:, : self.k] @ self.limit.T - np.logaddexp(0.0, excess)

    def solve(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients, cost and convergence per row of weights."""
        big = np.full(self.k + self.q, 60.0)
        lower, upper = -big, big.copy()
        lower[self.k] = np.min(self.log_budget) - 6
        upper[self.k] = np.max(self.log_budget) + 6
        lower[self.k + 1 :], upper[self.k + 1 :] = -4.0, 4.0
        rows = np.tile(start, (len(self.root), 1))
        return levenberg.minimise(self._evaluate, rows, lower, upper)

    def _evaluate(self, theta: np.ndarray, rows: np.ndarray) -> levenberg.Evaluation:
        root = self.root[rows]
        excess = theta[:, self.k :] @ self.transient.T - self.log_budget
        share = 1 / (1 + np.exp(-np.clip(excess, -700, 700)))
        residuals = self.model(theta) - self.target
        # The weak prior on the slopes of log τ is further residuals, at the end.
        slopes = theta[:, self.k + 1 :]
        cells, index = len(self.target), np.arange(self.q - 1)
        jacobian = np.zeros((len(theta), cells + self.q - 1, self.k + self.q))
        jacobian[:, :cells, : self.k] = root[..., None] * self.limit
        jacobian[:, :cells, self.k :] = -(root * share)[..., None] * self.transient
        jacobian[:, cells + index, self.k + 1 + index] = SLOPE_PRIOR
        return (
            np.concatenate([residuals * root, SLOPE_PRIOR * slopes], axis=-1),
            jacobian,
        )
