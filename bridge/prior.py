"""`kinetix-sfl` before any run of ours: a prior over its best number of environments.

    ln N*(B) = ln N₀ + p·ln(B/10¹⁰),   p = 2·p_u/κ

*Exponent.* The best step per sample falls as B^(−p_u), p_u = s/(1 + s), s the source
exponent. Theory allows any s > 0, so p_u is uniform on (0, 1). The map N → DDR ∝ N^κ
has κ = 2 where the step per update is fixed and κ = 1 where the KL per update is; real
PPO on `lqr` lies in between (about 1.2 from 64 to 256 environments), so κ is uniform on
[1, 2].

*Scale.* Two reported plateaus, and nothing else. A run that stagnates has a step too
large for its noise: more environments would have helped, so N* was above what it used.
(a) The baseline, probably 2,048 environments, stagnates before 10¹⁰ transitions:
N*(10¹⁰) > 2,048. (b) 8,192 environments plateau too, at a budget B₂ that is not
reported and is taken log-uniform in [10¹⁰, 10¹²]: N*(B₂) > 8,192. Both bound N* from
below only. **How far above the bound N* lies is not known from data**: the excess is
half-normal in decades with scale one, which puts the median at 4.7 times the bound and
5 % of the mass more than two decades above it. It is a judgement, and the upper end of
every interval is made of it.

*Regret.* With ρ = (N/N*)^κ, L(ρ)/L* = (1 − p_u)·ρ^(s/2) + p_u·ρ^(−1/2), the flatness
formula of the joint law. It grows without bound in N where a real run can be no worse
than an untrained policy; the ratio is therefore cut at `WORST_GAP_RATIO`.

The two known runs with 1,048,576 environments are outside checks, never inputs.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from bridge.draws import quantile
from theory.shapes import Float

DOMAIN, ENVIRONMENT = "kinetix-sfl", "kinetix-sfl-m"
SEED, NUM_DRAWS = 20260306, 4096
REFERENCE_BUDGET = 1e10  # transitions
BASELINE_NUM_ENVS = 2048
SECOND_NUM_ENVS = 8192
SECOND_BUDGETS = (1e10, 1e12)  # transitions; log-uniform in between
MAP_EXPONENTS = (1.0, 2.0)
EXCESS_DECADES = 1.0
WORST_GAP_RATIO = 10.0  # an untrained policy's gap over the best one's, at most

# Environments, budget and source of the known large runs.
LARGE_RUNS = (
    (1_048_576, 1e12, "paper: still improving with 1,048,576 environments at 1e12"),
    (1_048_576, 376e9, "public checkpoint sfl-1m-envs: 1,048,576 environments, 376e9"),
)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Draws of what decides N*.

    Attributes:
        step_exponent: p_u, of the best step per sample in the budget.
        map_exponent: κ of DDR in the number of environments.
        log_scale: ln N* at the reference budget.
    """

    step_exponent: Float[np.ndarray, "draw"]
    map_exponent: Float[np.ndarray, "draw"]
    log_scale: Float[np.ndarray, "draw"]

    @property
    def exponent(self) -> Float[np.ndarray, "draw"]:
        """The p in N* ∝ B^p."""
        return 2.0 * self.step_exponent / self.map_exponent

    def log_best(self, budget: float) -> Float[np.ndarray, "draw"]:
        """The log of N*(B), B in transitions."""
        return self.log_scale + self.exponent * np.log(budget / REFERENCE_BUDGET)

    def relative_gap(
        self, budget: float, num_envs: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "draw cell"]:
        """L(N)/L(N*), at least 1 and at most `WORST_GAP_RATIO`.

        Args:
            budget: transitions.
            num_envs: candidates.
        """
        p = self.step_exponent[:, None]
        distance = np.log(num_envs) - self.log_best(budget)[:, None]
        log_ratio = self.map_exponent[:, None] * distance
        source = p / (1.0 - p)
        # Exponents past 50 are far beyond the cut.
        bias = (1.0 - p) * np.exp(np.minimum(source * log_ratio / 2.0, 50.0))
        noise = p * np.exp(np.minimum(-log_ratio / 2.0, 50.0))
        return np.minimum(bias + noise, WORST_GAP_RATIO)


@dataclass(frozen=True, kw_only=True)
class OutsideCheck:
    """A known run beside what the prior says at its budget.

    Attributes:
        source: where it is reported.
        num_envs: what it used.
        budget: transitions.
        best_num_envs_interval: the prior's 80 % interval of N* there.
        inside: whether the run's N lies inside.
    """

    source: str
    num_envs: int
    budget: float
    best_num_envs_interval: tuple[float, float]
    inside: bool


def sample(num_draws: int = NUM_DRAWS, seed: int = SEED) -> Prior:
    """The prior as draws; the same ones at every call."""
    rng = np.random.default_rng(seed)
    step_exponent = rng.uniform(0.0, 1.0, num_draws)
    map_exponent = rng.uniform(*MAP_EXPONENTS, num_draws)
    low, high = np.log(SECOND_BUDGETS)
    log_second = rng.uniform(low, high, num_draws)
    excess = np.log(10.0) * np.abs(rng.normal(0.0, EXCESS_DECADES, num_draws))
    bound = lower_bound(2.0 * step_exponent / map_exponent, log_second)
    return Prior(
        step_exponent=step_exponent,
        map_exponent=map_exponent,
        log_scale=bound + excess,
    )


def lower_bound(
    exponent: Float[np.ndarray, "draw"], log_second_budget: Float[np.ndarray, "draw"]
) -> Float[np.ndarray, "draw"]:
    """The log of the largest N₀ that both reported plateaus exclude.

    Args:
        exponent: p in N* ∝ B^p.
        log_second_budget: ln B₂, B₂ in transitions.
    """
    distance = log_second_budget - np.log(REFERENCE_BUDGET)
    second = np.log(SECOND_NUM_ENVS) - exponent * distance
    return np.maximum(np.log(BASELINE_NUM_ENVS), second)


def best_interval(prior: Prior, budget: float, level: float) -> tuple[float, float]:
    """The central interval of N*(B) at a level, in environments."""
    drawn = prior.log_best(budget)
    low, high = (
        quantile(drawn, (1.0 - level) / 2.0),
        quantile(drawn, (1.0 + level) / 2.0),
    )
    return math.exp(low), math.exp(high)


def outside_checks(prior: Prior) -> tuple[OutsideCheck, ...]:
    """The known large runs, which the prior does not use, beside its 80 % interval."""
    checks = []
    for num_envs, budget, source in LARGE_RUNS:
        low, high = best_interval(prior, budget, 0.8)
        checks.append(
            OutsideCheck(
                source=source,
                num_envs=num_envs,
                budget=budget,
                best_num_envs_interval=(low, high),
                inside=low <= num_envs <= high,
            )
        )
    return tuple(checks)


def content_hash() -> str:
    """SHA-256 of every number that the prior is made of."""
    numbers = (
        SEED, NUM_DRAWS, REFERENCE_BUDGET, BASELINE_NUM_ENVS, SECOND_NUM_ENVS,
        SECOND_BUDGETS, MAP_EXPONENTS, EXCESS_DECADES, WORST_GAP_RATIO,
    )  # fmt: skip
    return hashlib.sha256(repr(numbers).encode()).hexdigest()
