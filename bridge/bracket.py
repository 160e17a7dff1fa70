"""A verdict on the best number of environments where no score was predicted.

The prediction is an interval [low, high] of N*. If the score has one peak in N, then a
tested N that beats another one *nearer to the interval* puts the peak outside: from
R < M ≤ low and score(R) > score(M) follows N* < M. "Beats" means that every seed of R
scores higher than every seed of M; for equal distributions that has probability
1/C(2K, K) with K seeds each, exactly (1/252 for five). Half of the error rate goes to
the interval, half to these tests, shared among all such pairs.
"""

import math
from collections.abc import Mapping, Sequence

from bridge.rule import FALSIFIED, INCONCLUSIVE, Rule

Scores = Mapping[int, Sequence[float]]


def interval_level(rule: Rule) -> float:
    """Central level of the interval of N* that the prediction states."""
    return 1.0 - rule.false_falsification_rate / 2.0


def judge_best(
    rule: Rule, scores: Scores, interval: tuple[float, float]
) -> tuple[str, str]:
    """Verdict and reason.

    Args:
        rule: of kind "best_num_envs".
        scores: N → score of each seed.
        interval: of N*, at `interval_level`.
    """
    low, high = interval
    stated = f"{low:,.0f} to {high:,.0f}"
    pairs = _pairs(sorted(scores), low, high)
    if not pairs:
        return INCONCLUSIVE, (
            f"the prior says that the best N is {stated}; to test it takes two N on "
            "the same side of that range (or on its end)"
        )
    allowed = rule.false_falsification_rate / 2.0 / len(pairs)
    for far, near in pairs:
        chance = 1.0 / math.comb(len(scores[far]) + len(scores[near]), len(scores[far]))
        if min(scores[far]) > max(scores[near]) and chance <= allowed:
            return FALSIFIED, (
                f"every seed of N = {far:,} scores higher than every seed of {near:,}, "
                f"so the best N is not in {stated} (chance {chance:.2g} if it were)"
            )
    return INCONCLUSIVE, (
        f"no tested N away from {stated} beats one nearer to it at an error rate of "
        f"{allowed:.2g}"
    )


def _pairs(tested: Sequence[int], low: float, high: float) -> list[tuple[int, int]]:
    """All (far, near) with far < near ≤ low or far > near ≥ high."""
    below = [(far, near) for near in tested for far in tested if far < near <= low]
    above = [(far, near) for near in tested for far in tested if far > near >= high]
    return below + above
