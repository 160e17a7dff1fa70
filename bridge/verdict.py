"""From a prediction and observations to a verdict, by the rule on record alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.bracket import judge_best
from bridge.observation import Observation
from bridge.prediction import Cell, Prediction
from bridge.rule import INCONCLUSIVE, SCORES, Trial, judge_scores


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict and what it rests on.

    Attributes:
        verdict: "survived", "falsified" or "inconclusive".
        reason: one sentence.
        observations: what was seen, by increasing N.
        cells: what was said of the same N.
    """

    verdict: str
    reason: str
    observations: tuple[Observation, ...]
    cells: tuple[Cell, ...]


def decide(prediction: Prediction, observations: Sequence[Observation]) -> Verdict:
    """Apply the prediction's rule.

    Args:
        prediction: on record.
        observations: of one or more of its cells.
    """
    verdict, reason = _too_early(prediction, observations) or _apply(
        prediction, observations
    )
    return Verdict(
        verdict=verdict,
        reason=reason,
        observations=tuple(observations),
        cells=tuple(prediction.cell(o.num_envs) for o in observations),
    )


def _too_early(
    prediction: Prediction, observations: Sequence[Observation]
) -> tuple[str, str] | None:
    """Why the rule cannot be applied yet, if it cannot."""
    for seen in observations:
        if seen.unfinished:
            return INCONCLUSIVE, f"the run {seen.unfinished[0]!r} is not finished"
        if len(seen.scores) < prediction.rule.min_seeds:
            return INCONCLUSIVE, (
                f"num_envs = {seen.num_envs} has {len(seen.scores)} seeds; the "
                f"prediction is about the mean over {prediction.rule.min_seeds}"
            )
    return None


def _apply(
    prediction: Prediction, observations: Sequence[Observation]
) -> tuple[str, str]:
    rule = prediction.rule
    if rule.kind != SCORES:
        low, high = prediction.best_num_envs
        scores = {seen.num_envs: seen.scores for seen in observations}
        return judge_best(rule, scores, (low, high))
    return judge_scores(rule, [_tested(prediction, seen) for seen in observations])


def _tested(prediction: Prediction, seen: Observation) -> Trial:
    cell = prediction.cell(seen.num_envs)
    assert cell.predictive is not None, "a scored prediction scores every cell"
    assert cell.null is not None, "a scored prediction has a null for every cell"
    score = seen.mean if math.isfinite(seen.mean) else math.nan
    return Trial(predictive=cell.predictive, null=cell.null, score=score)
