"""What a study compares: one number per seed of a finished run.

Plateau measures are means over the second half of the updates.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from bridge.errors import UsageError
from fullscale.storage import RunRecord
from theory import bandit, controls, lqr

Array = np.ndarray
Measure = Callable[[RunRecord], Array]


def optimum(task: str) -> float | None:
    """The greatest exact return on a task, if it is known."""
    if task == "lqr":
        return float(lqr.standard().optimum()[1])
    if task == "bandit":
        return float(bandit.standard().optimum()[1])
    try:
        return float(controls.levels(task).optimum)
    except ValueError:
        return None


def gap(record: RunRecord) -> Array:
    """Optimum minus exact return, a mean over the second half of the updates."""
    return _known(record) - _late(record, "exact_return")


def gap_end(record: RunRecord) -> Array:
    """The same of the final policy."""
    return _known(record) - record.metrics["exact_return"][-1]


def gap_anchor(record: RunRecord) -> Array:
    """The same of the final anchor (EWMA) policy."""
    return _known(record) - record.evaluation["score_anchor"]


def plateau(record: RunRecord) -> Array:
    """Mean training return of the second half of the updates."""
    return _late(record, "episode_return")


def ddr(record: RunRecord) -> Array:
    """Transitions per nat of the second half of the updates: a ratio of sums."""
    return record.ddr(skip=record.updates // 2)


def ddr_constant(record: RunRecord) -> Array:
    """gap·√DDR, which theory says no knob but the anchor's age moves."""
    return gap(record) * np.sqrt(ddr(record))


def outer_kl(record: RunRecord) -> Array:
    """Mean outer KL of the second half of the updates, nats."""
    return _late(record, "outer_kl")


def signal_share(record: RunRecord) -> Array:
    """Signal's share of the outer step, over readings of the second half."""
    half = record.updates // 2
    signal = np.nansum(record.metrics["outer_signal_kl"][half:], axis=0)
    noise = np.nansum(record.metrics["outer_noise_kl"][half:], axis=0)
    return signal / (signal + noise)


def steps(record: RunRecord) -> Array:
    """Sequential gradient steps of the run, alike for all seeds."""
    return np.full(record.config.num_seeds, float(record.config.gradient_steps))


def late_rise(record: RunRecord) -> Array:
    """Mean return of the last quarter of the updates less that of the one before."""
    quarter = record.updates // 4
    name = "exact_return" if "exact_return" in record.metrics else "episode_return"
    late, before = (
        np.nanmean(record.metrics[name][part], axis=0)
        for part in (slice(-quarter, None), slice(-2 * quarter, -quarter))
    )
    return late - before


def _late(record: RunRecord, name: str) -> Array:
    return np.nanmean(record.metrics[name][record.updates // 2 :], axis=0)


def _known(record: RunRecord) -> float:
    value = optimum(record.config.environment)
    assert value is not None, "`check` refuses gaps to an unknown optimum"
    return value


def _evaluated(name: str) -> Measure:
    return lambda record: record.evaluation[name]


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "gap": gap,
        "gap_end": gap_end,
        "gap_anchor": gap_anchor,
        "plateau": plateau,
        "late_rise": late_rise,
        "ddr": ddr,
        "ddr_constant": ddr_constant,
        "outer_kl": outer_kl,
        "signal_share": signal_share,
        "gradient_steps": steps,
        "score": _evaluated("score"),
        "score_anchor": _evaluated("score_anchor"),
    }
)


def check(name: str, task: str) -> None:
    """Refuse a measure that is unknown or not defined on a task. Raises UsageError."""
    if name not in MEASURES:
        raise UsageError(
            f"unknown measure {name!r}; there are {', '.join(sorted(MEASURES))}"
        )
    if name.startswith(("gap", "ddr_constant")) and optimum(task) is None:
        raise UsageError(
            f"measure {name!r} needs a known optimum, and {task!r} has none; use "
            "'score' or 'plateau'"
        )
