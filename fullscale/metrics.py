"""Every number that a run logs: its unit and what it means, once for all files.

`run.nc` takes its attrs from here and TensorBoard its descriptions; docs/metrics.md
says more about each (formula, over what it is averaged, when it is null), and a test
keeps the three and what runs really log together. Nothing heavier than numpy.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

DECADES = 10  # updates fit into 31 bits


class Metric(NamedTuple):
    """What a logged number is.

    Attributes:
        unit: of the number; "1" for a pure number.
        meaning: one line.
    """

    unit: str
    meaning: str


# One number per update, the same for all seeds.
PROGRESS: Mapping[str, Metric] = {
    "updates": Metric("count", "updates done"),
    "transitions": Metric("transitions", "transitions used for training so far"),
    "simulator_transitions": Metric(
        "transitions", "transitions simulated so far, curriculum rollouts included"
    ),
    "gradient_steps": Metric("count", "gradient steps so far, skipped ones included"),
    "learning_rate": Metric("1", "learning rate of the update"),
    "clip_epsilon": Metric("1", "ratio clip of the update, where it is scheduled"),
    "outer_learning_rate": Metric(
        "1", "outer learning rate of the update, where it is scheduled"
    ),
    "com": Metric(
        "gradient steps", "centre of mass of the anchor, where it is scheduled"
    ),
    "transitions_per_second": Metric(
        "transitions/s", "speed of the last dispatch, over all seeds"
    ),
    "meter_seconds": Metric("s", "time that the meters took at the update"),
}

# One number per update and seed.
OUTER: Mapping[str, Metric] = {
    "outer_kl": Metric("nats", "exact KL of the policies before and after the update"),
    "ddr": Metric("transitions/nat", "transitions of the update per outer_kl"),
    "outer_noise_kl": Metric("nats", "noise part of outer_kl, from two half batches"),
    "outer_signal_kl": Metric("nats", "signal part of outer_kl, from two half batches"),
    "noise_scale": Metric(
        "transitions", "B_simple, at which a batch's noise equals its signal"
    ),
    "noise_trace": Metric("1", "trace of the gradient's covariance per transition"),
    "gradient_square": Metric("1", "squared norm of the expected policy gradient"),
    "exact_return": Metric("return", "exact return of the policy after the update"),
}

LEARNING: Mapping[str, Metric] = {
    "policy_loss": Metric("1", "minus the surrogate objective"),
    "value_loss": Metric("return^2", "half the squared error of the critic"),
    "entropy": Metric("nats", "entropy of the policy"),
    "clip_fraction": Metric("1", "share of ratios to the anchor beyond the clip"),
    "approx_kl": Metric("nats", "estimated KL of behaviour policy and policy"),
    "importance_cap_fraction": Metric(
        "1", "share of anchor-to-behaviour ratios at their cap"
    ),
    "grad_norm": Metric("1", "norm of the whole gradient before clipping"),
    "anchor_age": Metric("gradient steps", "mean age of what the anchor averages"),
    "skipped_gradient_steps": Metric("count", "gradient steps not taken"),
    "explained_variance": Metric("1", "share of the targets' variance that V explains"),
}

EPISODES: Mapping[str, Metric] = {
    "episode_return": Metric("return", "mean return of the episodes that ended"),
    "episode_length": Metric("transitions", "mean length of the episodes that ended"),
    "solve_rate": Metric("1", "share of the ended episodes that reached the goal"),
}

NONFINITE: Mapping[str, Metric] = {
    "nonfinite_rewards": Metric("count", "rewards that were NaN or infinite"),
    "nonfinite_observations": Metric("count", "observations that were not finite"),
    "nonfinite_gradients": Metric("count", "gradients that were not finite"),
    "nonfinite_environment": Metric(
        "index", "first environment with a number that is not finite; -1 if none"
    ),
}

TRAVELLED: Mapping[str, Metric] = {
    f"kl_to_update_{10**i}": Metric(
        "nats", f"KL of the policies after update {10**i:,} and now"
    )
    for i in range(DECADES)
}

# One number per seed, once, when the run is over.
EVALUATION: Mapping[str, Metric] = {
    "score": Metric("return", "mean return of fresh episodes of the final policy"),
    "score_standard_error": Metric("return", "standard error of score over episodes"),
    "score_anchor": Metric("return", "score of the anchor (EWMA) policy"),
}

PER_SEED: Mapping[str, Metric] = MappingProxyType(
    {**OUTER, **LEARNING, **EPISODES, **NONFINITE, **TRAVELLED}
)
METRICS: Mapping[str, Metric] = MappingProxyType({**PROGRESS, **PER_SEED, **EVALUATION})


def attributes(name: str) -> dict[str, str]:
    """`units` and `long_name` of a metric, as netCDF wants them; empty if unknown."""
    metric = METRICS.get(name)
    if metric is None:
        return {}
    return {"units": metric.unit, "long_name": metric.meaning}


# Metrics that are ratios: their averages are ratios of averages.
RATIOS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"noise_scale": ("noise_trace", "gradient_square")}
)


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """One number per metric of some log rows: the mean over updates and seeds.

    Counts of the progress so far (Python integers) are the last row's. DDR is a ratio
    of sums (the harmonic mean), and so is B_simple. What is not finite or null does not
    count; metrics of which nothing is left are left out.

    Args:
        rows: name → number, or a list or array of them, one per seed.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    means = {n: _mean(n, [row[n] for row in rows if n in row]) for n in names}
    for name, (above, below) in RATIOS.items():
        if means.get(below):
            means[name] = means.get(above, math.nan) / means[below]
    return {name: float(x) for name, x in means.items() if math.isfinite(x)}


def _mean(name: str, values: Sequence[Any]) -> float | int:
    if isinstance(values[-1], int):
        return values[-1]
    numbers = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in values])
    if name == "ddr":  # infinite where the policy did not move
        with np.errstate(divide="ignore"):
            return _finite_mean(1.0 / np.atleast_1d(_finite_mean(1.0 / numbers)))
    return _finite_mean(numbers)


def _finite_mean(numbers: np.ndarray) -> float:
    """Mean of the finite ones; NaN if there is none."""
    finite = numbers[np.isfinite(numbers)]
    return finite.mean() if finite.size else math.nan
