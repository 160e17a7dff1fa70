"""How good forecasts were: CRPS, coverage, skill against a null, regret of the choice.

The outcome that is scored is stated once, here: log gap where the optimum is known (a
gap spans decades, and its scatter is proportional to it), the raw score otherwise.
Cells of one configuration are dependent, so intervals come from a bootstrap over
held-out configurations, paired between the two models compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

LOG_GAP, SCORE = "log gap", "score"
LEVELS = (0.5, 0.8, 0.9)


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
    level: float = 0.9


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


def skill(
    model: Float[np.ndarray, "cell"],
    null: Float[np.ndarray, "cell"],
    configs: Int[np.ndarray, "cell"],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> Skill:
    """Skill of a model's CRPS against a null's, paired by cell.

    Args:
        model: CRPS of the model.
        null: CRPS of the null at the same cells.
        configs: configuration of each cell, the unit of the bootstrap.
        draws: resamples of configurations.
        seed: of the resampling.

    Raises:
        ValueError: no cells, or the null's CRPS is 0 throughout.
    """
    if model.size == 0 or np.sum(null) <= 0:
        raise ValueError("skill needs cells and a null with a positive CRPS")
    _, index = np.unique(configs, return_inverse=True)
    count = int(index.max()) + 1
    sums = np.stack([np.bincount(index, model), np.bincount(index, null)])
    rng = np.random.default_rng(seed)
    chosen = rng.multinomial(count, np.full(count, 1 / count), size=draws)
    top, bottom = sums @ chosen.T
    values = 1 - top / np.maximum(bottom, 1e-300)
    low, high = np.quantile(values, [0.05, 0.95])
    return Skill(1 - float(np.sum(model) / np.sum(null)), float(low), float(high))


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
