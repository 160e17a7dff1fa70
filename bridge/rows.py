"""From a run folder to rows of the run table: one row per seed."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from fullscale.storage import RunRecord


def rows(record: RunRecord) -> list[dict[str, object]]:
    """Rows of a finished run; what was not measured is None.

    Metrics are means over the last quarter of the updates, named `last_quarter_…`;
    `plateau_score` is the mean exact return over the second half, where it is known.
    """
    config = dataclasses.asdict(record.config)
    ddr, quarter = record.ddr(), record.updates - max(1, record.updates // 4)
    half = record.updates // 2
    plateau = record.metrics.get("exact_return")
    result = []
    for index in range(record.config.num_seeds):
        result.append(
            {
                **config,
                "seed": record.config.seed + index,
                "transitions": int(record.transitions[-1]),
                "updates": record.updates,
                "gradient_steps": record.config.gradient_steps,
                "ddr": float(ddr[index]),
                "ddr_second_half": float(record.ddr(skip=half)[index]),
                "ddr_noise": None,
                "score": float(record.evaluation["score"][index]),
                "score_standard_error": float(
                    record.evaluation["score_standard_error"][index]
                ),
                "score_anchor": None,
                "plateau_score": (
                    None if plateau is None else float(plateau[half:, index].mean())
                ),
                **_last_quarter(record.metrics, quarter, index),
                "code_version": record.code_version,
            }
        )
    return result


LAST_QUARTER = ("clip_fraction", "approx_kl", "entropy", "explained_variance")


def _last_quarter(
    metrics: Mapping[str, np.ndarray], first: int, index: int
) -> dict[str, float]:
    return {
        f"last_quarter_{name}": float(metrics[name][first:, index].mean())
        for name in LAST_QUARTER
        if name in metrics
    }
