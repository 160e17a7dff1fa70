"""From runs to verdicts: an effect per seed, its interval, and the predicted range.

With C effects in a study the levels are 1 − .01/C and 1 − .1/C (Bonferroni):

- **falsified**: the wider interval lies wholly outside the predicted range. If every
  prediction is right (the truth lies in its range) some effect is falsified with
  probability 1 % at most, where seeds are normal.
- **survived**: the narrower interval lies wholly inside. If the truth is outside, that
  happens with probability .05/C at most.
- **inconclusive**: otherwise, and wherever a run diverged or a number does not exist.

The study is falsified if an effect is, and survived if all of them are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.rule import FALSIFIED, INCONCLUSIVE, SURVIVED
from bridge.studies.measures import MEASURES
from bridge.studies.study import Effect
from fullscale.storage import RunRecord
from theory.unit_mean import unit_mean

FALSIFY, SURVIVE = 0.99, 0.9

Runs = Mapping[tuple[str, str], RunRecord]  # (task, arm) → finished run


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An effect as it was seen.

    Attributes:
        effect: what was predicted.
        verdict: "survived", "falsified" or "inconclusive".
        seen: the number; None if it does not exist.
        low: of the interval by which it may survive; None likewise.
        high: likewise.
        seeds: independent numbers behind it.
        reason: why there is no number; else empty.
    """

    effect: Effect
    verdict: str
    seen: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    reason: str = ""


def judge(effect: Effect, runs: Runs, number: int) -> Finding:
    """One effect's verdict.

    Args:
        effect: the prediction.
        runs: finished runs; an arm that diverged is missing.
        number: effects that are judged together.
    """
    missing = [arm for arm in effect.arms if (effect.task, arm) not in runs]
    if missing:
        reason = f"{', '.join(missing)} diverged"
        return Finding(effect=effect, verdict=INCONCLUSIVE, reason=reason)
    values = per_seed(effect, [runs[effect.task, arm] for arm in effect.arms])
    if not np.isfinite(values).all():
        reason = f"{effect.measure} is not a positive finite number in every seed"
        return Finding(effect=effect, verdict=INCONCLUSIVE, reason=reason)
    mean, back = unit_mean(values), _back(effect)
    narrow = [back(x) for x in mean.interval(1 - (1 - SURVIVE) / number)]
    wide = [back(x) for x in mean.interval(1 - (1 - FALSIFY) / number)]
    verdict = INCONCLUSIVE
    if wide[1] < effect.low or wide[0] > effect.high:
        verdict = FALSIFIED
    elif effect.low <= narrow[0] and narrow[1] <= effect.high:
        verdict = SURVIVED
    return Finding(
        effect=effect,
        verdict=verdict,
        seen=back(mean.value),
        low=narrow[0],
        high=narrow[1],
        seeds=mean.units,
    )


def per_seed(effect: Effect, records: Sequence[RunRecord]) -> np.ndarray:
    """The effect in every seed, [seed]: seeds of the same rank are compared.

    A ratio is given as its logarithm; NaN where there is none.
    """
    seen = np.array([MEASURES[effect.measure](record) for record in records])
    if effect.comparison == "value":
        return seen[0]
    if effect.comparison == "difference":
        return seen[0] - seen[1]
    logs = _log(seen)
    if effect.comparison == "ratio":
        return logs[0] - logs[1]
    x = _log(np.array([_x(effect.x, record) for record in records]))
    away = x - x.mean(axis=0)
    return (away * logs).sum(axis=0) / np.square(away).sum(axis=0)


def _x(name: str, record: RunRecord) -> np.ndarray:
    if name in MEASURES:
        return MEASURES[name](record)
    return np.full(record.config.num_seeds, float(getattr(record.config, name)))


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.where(values > 0, values, np.nan))


def _back(effect: Effect):  # type: ignore[no-untyped-def]
    """From the scale on which seeds are averaged to the one that is shown."""
    return math.exp if effect.comparison == "ratio" else float


def overall(findings: Sequence[Finding]) -> str:
    """The study's verdict."""
    verdicts = {finding.verdict for finding in findings}
    if FALSIFIED in verdicts:
        return FALSIFIED
    return SURVIVED if verdicts == {SURVIVED} else INCONCLUSIVE
