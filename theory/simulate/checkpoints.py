"""When to record: evenly in the logarithm of the transitions."""

import math
from typing import Any

import numpy as np

from theory.arithmetic import Number, check_positive, whole_number


def checkpoints(
    budget: Number, samples_per_update: Number, per_decade: int = 12
) -> np.ndarray:
    """Counts of updates, log-spaced in transitions from one update to the budget.

    They lie at B·10^(−j/per_decade) transitions, j = 0, 1, …, rounded down to whole
    updates, and at the first update of the largest n. Runs of different n stop at the
    same transitions, to within one update.

    Args:
        budget: B, transitions of a whole run.
        samples_per_update: n, shape [*knob]; a whole number of transitions.
        per_decade: how many checkpoints per factor of 10.

    Returns:
        int64 updates of shape [*knob, checkpoint], increasing; the last is ⌊B/n⌋.

    Raises:
        ValueError: if a number is not positive and whole, or B is less than an update.
    """
    total, samples = (
        _counts("budget", budget),
        _counts("samples_per_update", samples_per_update),
    )
    spacing = _counts("per_decade", per_decade)
    largest = np.max(samples)
    if not largest <= total:
        msg = f"budget is {total}; it must be at least one update, {largest}."
        raise ValueError(msg)
    back = np.arange(math.floor(spacing * math.log10(total / largest)) + 1)[::-1]
    transitions = np.floor(total * 10.0 ** (-back / spacing)).astype(np.int64)
    transitions = np.unique(np.maximum(np.append(transitions, largest), largest))
    updates = transitions // np.asarray(samples)[..., None]
    columns = np.unique(updates.reshape(-1, updates.shape[-1]), axis=-1)
    return columns.reshape(*np.shape(samples), -1)


def recorded_updates(updates: Number) -> np.ndarray:
    """Counts of updates to record at, checked.

    Args:
        updates: shape [..., checkpoint], or one count.

    Returns:
        int64, shape [..., checkpoint].

    Raises:
        ValueError: if there is none, one is not a count, or they decrease.
    """
    when = np.asarray(whole_number("updates", np.atleast_1d(updates)))
    if not when.size:
        msg = "updates is empty; it must name at least one checkpoint."
        raise ValueError(msg)
    if np.any(np.diff(when, axis=-1) < 0):
        msg = f"updates is {updates}; it must not decrease."
        raise ValueError(msg)
    return when


def positive_count(name: str, value: Number) -> int:
    """Return a count as int, refusing by name what is not whole and above 0."""
    check_positive(name, value)
    return int(whole_number(name, value))


def _counts(name: str, value: Number) -> Any:
    check_positive(name, value)
    return whole_number(name, value)
