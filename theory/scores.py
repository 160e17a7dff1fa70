"""How good forecasts were: CRPS, coverage, skill against a null, regret of the choice.

The outcome that is scored is stated once, here: log gap where the optimum is known (a
gap spans decades, and its scatter is proportional to it), the raw score otherwise.
Cells of one configuration are dependent, so intervals come from a bootstrap over
held-out configurations, paired between the two models compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from theory.jackknife import standard_error

LOG_GAP, SCORE = "log gap", "score"
LEVELS = (0.5, 0.8, 0.9)
SKILL_LEVEL = 0.9
BINS = 10


@dataclass(frozen=True)
class Skill:
    """1 − CRPS/CRPS_null with a bootstrap interval; positive is better than the null.

    Attributes:
        value: over all cells.
        low: lower end of the interval.
        high: upper end of the interval.
        level: of the interval.
    """

    value: float
    low: float
    high: float
    level: float = SKILL_LEVEL


def outcome_name(asymptote: float | None) -> str:
    """Which outcome is scored, for a known asymptote or None."""
    return SCORE if asymptote is None else LOG_GAP


def outcome(
    score: Float[np.ndarray, "*shape"], asymptote: float | None
) -> Float[np.ndarray, "*shape"]:
    """Scores as the outcome that is scored.

    Args:
        score: in score units.
        asymptote: the known optimum, or None.

    Raises:
        ValueError: a score is not below a known optimum.
    """
    if asymptote is None:
        return score
    if not np.all(score < asymptote):
        raise ValueError(f"a score is not below the optimum {asymptote:.6g}")
    return np.log(asymptote - score)


def crps(
    observed: Float[np.ndarray, "cell"], draws: Float[np.ndarray, "draw cell"]
) -> Float[np.ndarray, "cell"]:
    """Continuous ranked probability score E|X − y| − ½E|X − X'|; less is better.

    Args:
        observed: y, the outcomes.
        draws: samples of X, the forecast distribution.

    Raises:
        ValueError: a value is not finite, or there are no draws.
    """
    import scoringrules

    _check(observed, draws)
    return np.asarray(scoringrules.crps_ensemble(observed, draws, m_axis=0))


def coverage(
    observed: Float[np.ndarray, "cell"],
    draws: Float[np.ndarray, "draw cell"],
    levels: Sequence[float] = LEVELS,
) -> Mapping[float, float]:
    """Share of outcomes inside each central interval.

    Args:
        observed: the outcomes.
        draws: samples of the forecast distribution.
        levels: nominal coverages.

    Raises:
        ValueError: a value is not finite, or there are no draws.
    """
    _check(observed, draws)
    result = {}
    for level in levels:
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        result[level] = float(np.mean((low <= observed) & (observed <= high)))
    return result


def coverage_band(
    cells: int, level: float, probability: float = 0.9
) -> tuple[float, float]:
    """Shares that an honest interval covers with a given probability.

    The central binomial range for independent cells; cells that share a configuration
    scatter more.

    Args:
        cells: how many outcomes.
        level: nominal coverage.
        probability: that the share lies within the band.

    Returns:
        Least and greatest share.

    Raises:
        ValueError: no cells, or a level or probability outside (0, 1).
    """
    if cells < 1:
        raise ValueError(f"cells is {cells}; it should be at least 1")
    for name, value in (("level", level), ("probability", probability)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it should lie between 0 and 1")
    ends = [(1 - probability) / 2, (1 + probability) / 2]
    low, high = scipy.stats.binom.ppf(ends, cells, level) / cells
    return float(low), float(high)


def pit(
    observed: Float[np.ndarray, "cell"], draws: Float[np.ndarray, "draw cell"]
) -> Float[np.ndarray, "cell"]:
    """Probability integral transform: share of draws below the outcome, ties halved.

    Uniform on (0, 1) where forecasts are honest.

    Args:
        observed: the outcomes.
        draws: samples of the forecast distribution.

    Raises:
        ValueError: a value is not finite, or there are no draws.
    """
    _check(observed, draws)
    return np.mean(draws < observed, axis=0) + np.mean(draws == observed, axis=0) / 2


def pit_histogram(
    values: Float[np.ndarray, "cell"], bins: int = BINS
) -> Int[np.ndarray, "bin"]:
    """Counts of `pit` in equal bins: a ∪ is too narrow, a ∩ too wide, a slope a bias.

    Args:
        values: of `pit`.
        bins: how many.

    Raises:
        ValueError: a value outside [0, 1], or no bins.
    """
    if bins < 1:
        raise ValueError(f"bins is {bins}; it should be at least 1")
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError("values of a PIT should lie between 0 and 1")
    return np.histogram(values, bins=bins, range=(0.0, 1.0))[0]


def log_score(
    observed: Float[np.ndarray, "cell"], draws: Float[np.ndarray, "draw cell"]
) -> Float[np.ndarray, "cell"]:
    """−log of the forecast density at the outcome; less is better, in nats.

    The density is a mixture of normals around the draws, of Silverman's width
    1.06·min(sd, IQR/1.34)·m^(−1/5). Unlike CRPS it is merciless to an outcome that
    was called impossible.

    Args:
        observed: the outcomes.
        draws: samples of the forecast distribution.

    Returns:
        Per cell; inf where the draws have no spread and miss the outcome.

    Raises:
        ValueError: a value is not finite, or there are fewer than two draws.
    """
    _check(observed, draws)
    count = len(draws)
    if count < 2:
        raise ValueError("a log score needs at least two draws")
    quarter, three = np.quantile(draws, [0.25, 0.75], axis=0)
    spread = np.minimum(np.std(draws, axis=0, ddof=1), (three - quarter) / 1.34)
    width = 1.06 * spread * count**-0.2
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = -0.5 * ((observed - draws) / width) ** 2
        top = np.max(exponents, axis=0)
        mixed = np.log(np.mean(np.exp(exponents - top), axis=0))
        density = top + mixed - np.log(width) - 0.5 * math.log(2 * math.pi)
    return np.where(np.isnan(density), np.inf, -density)


def skill(
    model: Float[np.ndarray, "cell"],
    null: Float[np.ndarray, "cell"],
    configs: Int[np.ndarray, "cell"],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> Skill:
    """Skill of a model's CRPS against a null's, paired by cell.

    The interval comes from a paired bootstrap over blocks, a configuration with all its
    cells being one: random weights, percentiles of the logarithm of the CRPS ratio,
    widened to Student's t times the jackknife's standard error, as percentiles of few
    blocks are too narrow (6 blocks: 80 % of what should be 90; 87 to 90 so). It is of
    the two fits as they are: another training table is not in it. A single
    configuration gives an interval without width, which means nothing.

    Args:
        model: CRPS of the model.
        null: CRPS of the null at the same cells.
        configs: configuration of each cell, the unit of the bootstrap.
        draws: random weightings of configurations.
        seed: of the weights.

    Raises:
        ValueError: no cells, or the null's CRPS is 0 throughout.
    """
    if model.size == 0 or np.sum(null) <= 0:
        raise ValueError("skill needs cells and a null with a positive CRPS")
    _, index = np.unique(configs, return_inverse=True)
    sums = np.stack([np.bincount(index, model), np.bincount(index, null)])
    ratio = float(np.sum(model) / np.sum(null))
    if ratio == 0 or sums.shape[1] == 1:
        return Skill(1 - ratio, 1 - ratio, 1 - ratio)
    low, high = np.exp(_log_ratio_reach(sums, np.random.default_rng(seed), draws))
    return Skill(1 - ratio, 1 - ratio * float(high), 1 - ratio * float(low))


def _log_ratio_reach(
    sums: Float[np.ndarray, "two block"], rng: np.random.Generator, draws: int
) -> Float[np.ndarray, "two"]:
    """Ends of the interval of log ratio, less the log ratio."""
    blocks = sums.shape[1]

    def log_ratios(weights: Float[np.ndarray, "row block"]) -> np.ndarray:
        floor = 1e-12 * np.sum(sums, axis=-1)
        top, bottom = np.maximum(weights @ sums.T, floor).T
        return np.log(top / bottom)

    centre = log_ratios(np.ones((1, blocks)))
    without = log_ratios(1 - np.eye(blocks)) - centre
    error = standard_error(without, centre=0.0)
    drawn = log_ratios(rng.exponential(size=(draws, blocks))) - centre
    spread = float(np.std(drawn))
    if spread == 0:
        return np.zeros(2)
    tails = (1 - SKILL_LEVEL) / 2, (1 + SKILL_LEVEL) / 2
    student = scipy.stats.t.ppf(tails[1], blocks - 1) / scipy.stats.norm.ppf(tails[1])
    return np.quantile(drawn, tails) * (student * error / spread)


def regret_share(measured: Float[np.ndarray, "choice"], chosen: int) -> float:
    """(best − chosen)/(best − worst) over the choices that were run.

    0 is the best choice and 1 the worst. 0 if all are equal.

    Args:
        measured: mean score of each choice.
        chosen: index of the choice made.

    Raises:
        ValueError: a score is not finite, or the index is outside.
    """
    if not np.all(np.isfinite(measured)):
        raise ValueError("measured scores should be finite")
    if not 0 <= chosen < measured.size:
        raise ValueError(f"choice {chosen} is not one of {measured.size}")
    best, worst = float(np.max(measured)), float(np.min(measured))
    if best == worst:
        return 0.0
    return (best - float(measured[chosen])) / (best - worst)


def _check(observed: np.ndarray, draws: np.ndarray) -> None:
    if draws.shape[0] == 0:
        raise ValueError("a forecast needs at least one draw")
    if not (np.all(np.isfinite(observed)) and np.all(np.isfinite(draws))):
        raise ValueError("outcomes and draws should be finite")
