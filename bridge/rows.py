"""From a run folder to rows of the run table: one row per seed."""

import dataclasses
import math

from fullscale.metrics import averages
from fullscale.storage import RunRecord


def rows(record: RunRecord) -> list[dict[str, object]]:
    """Rows of a finished run; what was not measured is None.

    Metrics are means over the last quarter of the updates, named `last_quarter_…`, over
    those of them that have a value, `noise_scale` being a ratio of means; `ddr` is that
    of the whole run, `ddr_noise` that of the updates where the meter ran,
    `ddr_second_half` and `plateau_score` (the mean exact return, where it is known) are
    of the second half of the updates.
    """
    return [_row(record, index) for index in range(record.config.num_seeds)]


def _row(record: RunRecord, index: int) -> dict[str, object]:
    half = record.updates // 2
    plateau = record.metrics.get("exact_return")
    score = {k: _measured(values[index]) for k, values in record.evaluation.items()}
    return {
        **dataclasses.asdict(record.config),
        "seed": record.config.seed + index,
        "transitions": int(record.transitions[-1]),
        "updates": record.updates,
        "gradient_steps": record.config.gradient_steps,
        "ddr": float(record.ddr()[index]),
        "ddr_second_half": float(record.ddr(skip=half)[index]),
        "ddr_noise": _measured(record.ddr_noise()[index]),
        "score_anchor": None,
        **score,
        "plateau_score": (
            None if plateau is None else float(plateau[half:, index].mean())
        ),
        **_last_quarter(record, index),
        "code_version": record.code_version,
    }


LAST_QUARTER = (
    "clip_fraction", "approx_kl", "entropy", "explained_variance", "grad_norm",
    "outer_kl", "outer_noise_kl", "outer_signal_kl", "anchor_age", "episode_return",
    "noise_trace", "gradient_square", "noise_scale",
)  # fmt: skip


def _last_quarter(record: RunRecord, index: int) -> dict[str, float]:
    first = record.updates - max(1, record.updates // 4)
    quarter = {
        name: values[first:, index]
        for name, values in record.metrics.items()
        if name in LAST_QUARTER
    }
    return {f"last_quarter_{name}": mean for name, mean in averages([quarter]).items()}


def _measured(value: float) -> float | None:
    """The number; None where it was not measured or is not finite."""
    return float(value) if math.isfinite(value) else None
