"""The verdict rule: fixed in the prediction, applied by the judge, nothing else.

A prediction of scores, with the observed mean score y of each tested setting:

- **falsified** if some y lies outside the 99 % predictive interval of its setting;
- **survived** if every y lies inside the 80 % interval *and* the prediction was
  informative: its log density at the y exceeds, in sum, that of the stated null model
  by at least ln 20;
- **inconclusive** otherwise, and whenever a tested setting has fewer seeds than stated
  or a run is not finished.

With C settings tested at once the levels are 1 − 0.01/C and 1 − 0.2/C (Bonferroni).
If the prediction is right, it is falsified with probability at most 1 %. If the null
model is right (settings independent), the prediction survives with probability at most
1/20, because the density ratio has mean one under the null (Markov's inequality).

A prediction of the best N alone (basis "prior") is judged by `bridge.bracket`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bridge.predictive import NORMAL, Predictive

SURVIVED, FALSIFIED, INCONCLUSIVE = "survived", "falsified", "inconclusive"
SCORES, BEST_NUM_ENVS = "scores", "best_num_envs"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Numbers of the rule.

    Attributes:
        kind: "scores" or "best_num_envs".
        min_seeds: seeds that every tested setting needs.
        falsify_level: central level outside which an observation falsifies.
        survive_level: central level inside which it may survive.
        log_score_margin: nats by which the prediction must beat the null.
    """

    kind: str
    min_seeds: int
    falsify_level: float = 0.99
    survive_level: float = 0.8
    log_score_margin: float = math.log(20.0)

    @property
    def false_falsification_rate(self) -> float:
        """Largest probability of "falsified" if the prediction is right."""
        return round(1.0 - self.falsify_level, 12)

    @property
    def false_survival_rate(self) -> float:
        """Largest probability of "survived" if the null model is right."""
        return math.exp(-self.log_score_margin) if self.kind == SCORES else 0.0

    @property
    def words(self) -> str:
        """The rule as one paragraph, with its error rates."""
        words = _SCORES_IN_WORDS if self.kind == SCORES else _BEST_IN_WORDS
        return words.format(rule=self)

    def to_json(self) -> dict[str, object]:
        """Its numbers, error rates and words."""
        rates = {
            "false_falsification_rate": self.false_falsification_rate,
            "false_survival_rate": self.false_survival_rate,
        }
        return {**asdict(self), **rates, "words": self.words}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Rule":
        """The inverse of `to_json`. Raises KeyError or TypeError."""
        names = cls.__dataclass_fields__
        return cls(**{name: values[name] for name in names})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting: what was said, what the null says, what was seen.

    Attributes:
        predictive: of the mean score over the seeds.
        null: the null model's, on the same scale.
        score: observed mean score; NaN if a seed diverged.
    """

    predictive: Predictive
    null: Predictive
    score: float

    @property
    def advantage(self) -> float:
        """Nats by which the prediction's log density beats the null's; −inf if NaN."""
        gain = self.predictive.log_density(self.score) - self.null.log_density(
            self.score
        )
        return -math.inf if math.isnan(gain) else gain


def judge_scores(rule: Rule, tested: Sequence[Trial]) -> tuple[str, str]:
    """Verdict and reason for finished runs with enough seeds.

    Args:
        rule: of kind "scores".
        tested: at least one setting.
    """
    worst = max(abs(t.predictive.deviation(t.score)) for t in tested)
    where = f"an observed mean is {worst:.2f} predictive standard deviations away"
    inner, outer = rule.survive_level, rule.falsify_level
    if worst > half_width(outer, len(tested)):
        return FALSIFIED, f"{where}, outside the {outer:.0%} interval"
    if worst > half_width(inner, len(tested)):
        return INCONCLUSIVE, (
            f"{where}: inside the {outer:.0%} interval, outside the {inner:.0%} one"
        )
    gain = sum(t.advantage for t in tested)
    ahead = f"log score {gain:.2f} nats ahead of the null model"
    needed = f"{rule.log_score_margin:.2f} needed"
    if gain < rule.log_score_margin:
        return INCONCLUSIVE, (
            f"inside the {inner:.0%} interval, but not informative: {ahead} ({needed})"
        )
    return SURVIVED, f"inside the {inner:.0%} interval, {ahead} ({needed})"


def survival_rate_if_right(
    rule: Rule, predictive: Predictive, null: Predictive
) -> float:
    """Probability that a right prediction of one setting survives, to about 0.001.

    Args:
        rule: of kind "scores".
        predictive: of the setting.
        null: the null model's.
    """
    levels = [(i + 0.5) / 1000 for i in range(1000)]
    tested = [
        Trial(predictive=predictive, null=null, score=predictive.quantile(level))
        for level in levels
    ]
    return sum(judge_scores(rule, [t])[0] == SURVIVED for t in tested) / len(tested)


def half_width(level: float, settings: int) -> float:
    """Half the Bonferroni interval over all settings, in standard deviations."""
    return NORMAL.inv_cdf(1.0 - (1.0 - level) / (2.0 * settings))


_SCORES_IN_WORDS = (
    "falsified if the mean score over the seeds lies outside the "
    "{rule.falsify_level:.0%} predictive interval; survived if it lies inside the "
    "{rule.survive_level:.0%} interval and the log density of the prediction exceeds "
    "the null model's by {rule.log_score_margin:.3f} nats or more; inconclusive "
    "otherwise, with fewer than {rule.min_seeds} seeds, or if a run is unfinished. "
    "Several settings: Bonferroni levels, summed log densities. A seed without a "
    "finite score counts as minus infinity. If the prediction is right it is falsified "
    "with probability {rule.false_falsification_rate:.2g} at most; if the null model "
    "is right it survives with probability {rule.false_survival_rate:.2g} at most."
)
_BEST_IN_WORDS = (
    "falsified if, of two tested N on the same side of the predicted interval of the "
    "best N (or on its end), the one farther away scores higher with every seed than "
    "the nearer one with any, in enough seeds for an exact permutation test; "
    "inconclusive otherwise, with fewer than {rule.min_seeds} seeds per N, or if a run "
    "is unfinished. It cannot survive: no score was predicted. If the prior is right "
    "and the score has one peak in N, it is falsified with probability "
    "{rule.false_falsification_rate:.2g} at most."
)
