"""From knobs and a budget to distributions of DDR, gap and score.

A `Model` is the form (which DDR map, which law); `Parameters` are its numbers, one row
per draw. A forecast is a function of knobs only: no measured DDR enters.

    knobs, B ──map──▶ D;   B·pace(knobs), D ──law──▶ gap;   score = asymptote − gap

Theory says that one number, the outer step per sample, sets both how fast a run learns
and where it stops, so that D alone stands for the knobs. Where a trainer clips, a run
may learn more slowly than its plateau tells; `pace_terms` let the budget count for
more or less, log pace = Σ c_j x_j. No terms, or c = 0, is the theory.

*Expected* arrays carry the uncertainty of the parameters alone. *Predictive* ones add
what a run that is really made will add: the deviation of one configuration from the law
and seed noise/√num_seeds. With a known optimum both act on the logarithm of the gap
(mean one, so that the mean gap stays the law's); with a free asymptote both are added
to the score.

Seeds scatter little while they learn and much at the plateau. Near an optimum the gap
is ½xᵀHx with x = x̄ + fluctuation, so that its variance is φ·n·(n + 2b), n the noise
part and b the bias part of the mean gap and φ the squared coefficient of variation of a
plateau, 2/dimension for isotropic noise. `seed_share` is that over gap²·φ.
"""

import dataclasses
import statistics
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from theory import laws
from theory.ddr_map import DdrMap, KnobValues, Values
from theory.saturating import SaturatingLaw
from theory.shapes import Float

Law = laws.JointLaw | laws.FreeLaw | SaturatingLaw
LAW_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "joint": ("floor", "bias", "noise", "source"),
    "free": (
        "floor", "bias", "noise", "budget_exponent", "ddr_exponent", "noise_exponent",
    ),
    "saturating": ("floor", "bias", "noise", "rate", "source"),
}  # fmt: skip
LAWS: Mapping[str, Callable[..., Law]] = {
    "joint": laws.JointLaw,
    "free": laws.FreeLaw,
    "saturating": SaturatingLaw,
}
KNOWN, FREE = "known", "free"
LIMIT, RUN = "limit", "run"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The numbers of a model, one row per draw (a point estimate is one row).

    Attributes:
        ddr_map: coefficients of the map, in the map's order.
        pace: exponents c, in the order of the model's `pace_terms`.
        law: the law's parameters, in the order of `LAW_PARAMETERS[family]`.
        asymptote: score at infinite budget and DDR, in score units.
        config_sd: sd of a configuration around the law: of log gap where the optimum is
            known, else in score units.
        seed_sd: of one seed: coefficient of variation of the gap at a plateau where the
            optimum is known, else sd in score units.
        ddr_sd: sd of log DDR of a configuration around the map.
    """

    ddr_map: Float[np.ndarray, "draw k"]
    pace: Float[np.ndarray, "draw r"]
    law: Float[np.ndarray, "draw p"]
    asymptote: Float[np.ndarray, "draw"]
    config_sd: Float[np.ndarray, "draw"]
    seed_sd: Float[np.ndarray, "draw"]
    ddr_sd: Float[np.ndarray, "draw"]


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """DDR of the whole run (transitions per nat), gap and score (score units)."""

    ddr: Float[np.ndarray, "draw cell"]
    gap: Float[np.ndarray, "draw cell"]
    score: Float[np.ndarray, "draw cell"]


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A forecast per cell, as draws.

    Attributes:
        expected: parameter uncertainty only; compare settings with it.
        predictive: with configuration and seed noise; compare runs with it.
    """

    expected: Quantities
    predictive: Quantities


@dataclass(frozen=True, kw_only=True)
class Model:
    """The form of a calibration.

    Attributes:
        ddr_map: knobs → DDR.
        family: "joint" or "free" of `theory.laws`, or "saturating".
        law_ddr: which DDR the law is of: "limit", the map's noise-only D∞, or "run",
            the DDR of the whole run at its budget.
        asymptote: "known" (the optimum) or "free" (fitted).
        pace_terms: terms of log pace, as those of the map.
    """

    ddr_map: DdrMap
    family: str
    law_ddr: str
    asymptote: str
    pace_terms: tuple[str, ...] = ()

    def law(self, parameters: Parameters) -> Law:
        """The law with one row of parameters per draw, shaped [draw, 1]."""
        return LAWS[self.family](*(column[:, None] for column in parameters.law.T))

    def expected(
        self, parameters: Parameters, budget: Values, knobs: KnobValues
    ) -> Quantities:
        """DDR, gap and score that the law itself gives, per draw and cell.

        Args:
            parameters: one row per draw.
            budget: transitions, for all cells or one per cell.
            knobs: values per cell; scalars broadcast.

        Raises:
            MapError: a knob is missing, not positive or not finite.
        """
        ddr = np.exp(self.ddr_map.log_ddr(parameters.ddr_map, budget, knobs))
        paced, used = self.law_arguments(parameters, budget, knobs)
        gap = np.broadcast_to(self.law(parameters).gap(paced, used), ddr.shape)
        return Quantities(ddr=ddr, gap=gap, score=parameters.asymptote[:, None] - gap)

    def seed_variance(
        self, parameters: Parameters, budget: Values, knobs: KnobValues
    ) -> Float[np.ndarray, "draw cell"]:
        """Variance of one seed around its configuration.

        Of gap/expected gap where the optimum is known, else of the score.

        Raises:
            MapError: a knob is missing, not positive or not finite.
        """
        variance = parameters.seed_sd[:, None] ** 2
        paced, used = self.law_arguments(parameters, budget, knobs)
        if self.asymptote == FREE:
            return np.broadcast_to(variance, used.shape)
        law = self.law(parameters)
        zero = np.zeros_like(law.floor)
        plateau = dataclasses.replace(law, floor=zero, bias=zero)
        gap, floor, noise = (
            np.asarray(part, dtype=float)
            for part in (law.gap(paced, used), law.floor, plateau.gap(paced, used))
        )
        return variance * seed_share(gap, floor, noise)

    def law_arguments(
        self, parameters: Parameters, budget: Values, knobs: KnobValues
    ) -> tuple[Float[np.ndarray, "draw cell"], Float[np.ndarray, "draw cell"]]:
        """Paced budget and DDR, as the law takes them. Raises MapError."""
        if self.law_ddr == LIMIT:
            log_ddr = self.ddr_map.log_limit(parameters.ddr_map, knobs)
        else:
            log_ddr = self.ddr_map.log_ddr(parameters.ddr_map, budget, knobs)
        log_pace = parameters.pace @ self.pace_columns(knobs).T
        return np.exp(np.log(budget) + log_pace), np.exp(log_ddr)

    def pace_columns(self, knobs: KnobValues) -> Float[np.ndarray, "cell r"]:
        """Columns of log pace, one per term. Raises MapError."""
        return self.ddr_map.design(self.pace_terms, knobs)[:, 1:]

    def forecast(
        self,
        parameters: Parameters,
        budget: Values,
        knobs: KnobValues,
        num_seeds: int,
    ) -> Forecast:
        """Expected and predictive distributions of the mean over `num_seeds` seeds.

        The noise is a function of the cell (its budget and knobs) alone: forecasting a
        cell by itself or among others gives the same draws.

        Raises:
            MapError: a knob is missing, not positive or not finite.
            ValueError: `num_seeds` is less than one.
        """
        if num_seeds < 1:
            raise ValueError(f"num_seeds = {num_seeds} should be at least 1")
        expected = self.expected(parameters, budget, knobs)
        noise = cell_noise(self.ddr_map, budget, knobs, expected.ddr.shape)
        seed_variance = self.seed_variance(parameters, budget, knobs) / num_seeds
        if self.asymptote == KNOWN:
            seed_variance = np.log1p(seed_variance)
        sd = np.sqrt(parameters.config_sd[:, None] ** 2 + seed_variance)
        ddr_sd = parameters.ddr_sd[:, None]
        ddr = expected.ddr * np.exp(ddr_sd * noise[1])
        asymptote = parameters.asymptote[:, None]
        if self.asymptote == KNOWN:
            gap = expected.gap * np.exp(sd * noise[0] - sd**2 / 2)
        else:
            gap = expected.gap + sd * noise[0]
        predictive = Quantities(ddr=ddr, gap=gap, score=asymptote - gap)
        return Forecast(expected=expected, predictive=predictive)


def seed_share(
    gap: Float[np.ndarray, "draw cell"],
    floor: Float[np.ndarray, "draw #cell"],
    noise: Float[np.ndarray, "draw cell"],
) -> Float[np.ndarray, "draw cell"]:
    """n·(n + 2b)/gap²: a seed's relative variance in units of that of a plateau.

    Args:
        gap: floor + b + n.
        floor: the part that is there in every run.
        noise: n.
    """
    return noise * np.maximum(2 * (gap - floor) - noise, 0.0) / gap**2


def cell_noise(
    ddr_map: DdrMap,
    budget: Values,
    knobs: KnobValues,
    shape: tuple[int, int],
) -> Float[np.ndarray, "two draw cell"]:
    """Two standard normal samples per cell, stratified over draws, fixed by the cell.

    Every cell gets the same `draw` normal quantiles, shuffled by a generator that is
    seeded with the cell's budget and knobs: no Monte Carlo error in one cell's spread,
    independence between cells, and no dependence on which cells are asked together.
    """
    draws, cells = shape
    levels = (np.arange(draws) + 0.5) / draws
    inverse = statistics.NormalDist().inv_cdf
    quantiles = np.array([inverse(level) for level in levels])
    columns = [budget, *(knobs[knob] for knob in ddr_map.knobs)]
    columns = [np.broadcast_to(np.asarray(c, float), (cells,)) for c in columns]
    table = np.stack(columns, axis=-1)
    noise = np.empty((2, draws, cells))
    for cell in range(cells):
        rng = np.random.default_rng(zlib.crc32(table[cell].tobytes()))
        noise[0, :, cell] = rng.permutation(quantiles)
        noise[1, :, cell] = rng.permutation(quantiles)
    return noise
