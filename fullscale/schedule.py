"""The knobs at every update: from their first to their final values, exactly.

At update k of K (k = 0 … K−1) a scheduled knob has gone the share s of its way, with
s = k/(K−1) ("linear"; "exponential" in the logarithm) or s = ½(1 − cos πk/(K−1))
("cosine"): the first update has the configured value and the last one the final value,
both exactly. A run of one update has the configured value. Computed on the host in
double precision, so that the log shows what was used.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fullscale.config import CONSTANT, RESET, RunConfig
from fullscale.config.checks import SCHEDULED
from fullscale.state import Rates


def values(
    config: RunConfig, name: str, updates: Sequence[int] | np.ndarray
) -> Float[np.ndarray, " update"]:
    """A scheduled knob at the given updates, counted from 0.

    Args:
        config: the run.
        name: one of "learning_rate", "clip_epsilon", "outer_learning_rate", "com".
        updates: which updates; those past the end keep the final value.

    Raises:
        ValueError: not a scheduled knob, or `com` of plain PPO, which has no number.
    """
    if name not in SCHEDULED:
        raise ValueError(f"{name!r} has no schedule; {', '.join(SCHEDULED)} have one")
    first, final = getattr(config, name), getattr(config, f"final_{name}")
    if first == RESET:
        raise ValueError('com = "reset" has no number to schedule')
    at = np.asarray(updates, dtype=float)
    if final == CONSTANT:
        return np.full(at.shape, first)
    last = config.updates - 1
    share = np.clip(at / last, 0.0, 1.0) if last else np.zeros(at.shape)
    return _between(config.schedule, first, final, share)


def rates(config: RunConfig, updates: Sequence[int] | np.ndarray) -> Rates:
    """All traced knobs at the given updates, arrays [update] of the default float."""
    columns = {name: _column(config, name, updates) for name in Rates._fields}
    dtype = jnp.result_type(float)
    return Rates(**{name: jnp.asarray(v, dtype) for name, v in columns.items()})


def _column(
    config: RunConfig, name: str, updates: Sequence[int] | np.ndarray
) -> np.ndarray:
    if name == "ewma_decay":
        if config.com == RESET:
            return np.ones(len(updates))
        com = values(config, "com", updates)
        return com / (1.0 + com)
    if name in SCHEDULED:
        return values(config, name, updates)
    return np.full(len(updates), getattr(config, name))


def _between(shape: str, first: float, final: float, share: np.ndarray) -> np.ndarray:
    if shape == "cosine":
        share = 0.5 * (1.0 - np.cos(np.pi * share))
    if shape == "exponential":
        between = first * (final / first) ** share
    else:
        between = first + (final - first) * share
    ends = np.where(share == 0.0, first, np.where(share == 1.0, final, between))
    return np.clip(ends, min(first, final), max(first, final))
