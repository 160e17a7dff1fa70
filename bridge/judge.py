"""`python -m bridge.judge PREDICTION RUN…`: did the prediction survive?

The rule is the one inside the prediction. Runs of the same number of environments are
pooled over their seeds; several numbers of environments are judged together.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bridge import cli, prediction, verdict
from bridge.errors import UsageError
from bridge.observation import Observation, observe
from bridge.prediction import Cell, Prediction
from bridge.rule import Trial
from bridge.verdict import Verdict

COMMAND = "python -m bridge.judge"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Judge a prediction by the runs that tested it, by the rule inside it."""

    prediction: Annotated[Positional[str], arg(metavar="PREDICTION")]
    """The prediction.json that was written before the runs."""
    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN")]
    """Run folders; runs of the same configuration are pooled over seeds."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return cli.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    if not arguments.runs:
        raise UsageError(
            f"no run was given; say {COMMAND} {arguments.prediction} RUN, RUN a run "
            "folder"
        )
    made = prediction.load(Path(arguments.prediction))
    observations = observe(made, [Path(run) for run in arguments.runs])
    decided = verdict.decide(made, observations)
    if arguments.json:
        cli.write(json.dumps(to_json(made, decided), allow_nan=False))
    else:
        cli.write(in_words(made, decided))
    return cli.DONE


def to_json(made: Prediction, decided: Verdict) -> dict[str, object]:
    """The JSON object of `judge --json`."""
    rule = made.rule.to_json()
    return {
        "verdict": decided.verdict,
        "reason": decided.reason,
        "prediction": made.sha256,
        "date": made.date,
        "domain": made.domain,
        "basis": made.basis,
        "cells": [
            _cell_to_json(made, seen, cell)
            for seen, cell in zip(decided.observations, decided.cells, strict=True)
        ],
        "rule": rule["words"],
        "false_falsification_rate": rule["false_falsification_rate"],
        "false_survival_rate": rule["false_survival_rate"],
        "survival_rate_if_right": made.survival_rate_if_right,
    }


def in_words(made: Prediction, decided: Verdict) -> str:
    """The verdict as a person reads it: first the word, then why."""
    lines = [f"{decided.verdict}: {decided.reason}."]
    for seen, cell in zip(decided.observations, decided.cells, strict=True):
        lines.append(f"N = {seen.num_envs:,}: {_seen(seen)}; {_said(made, cell)}")
    lines += [
        f"Rule, in the prediction of {made.date}: {made.rule.words}",
        f"Null model: {made.null}.",
    ]
    return "\n".join(lines)


def _seen(seen: Observation) -> str:
    if not seen.scores:
        return "no finished run"
    error = "" if seen.standard_error is None else f" ± {seen.standard_error:.2g}"
    ddr = f", DDR {_mean(seen.ddr):.3g}" if _mean(seen.ddr) is not None else ""
    return f"observed {seen.mean:.6g}{error} over {len(seen.scores)} seeds{ddr}"


def _said(made: Prediction, cell: Cell) -> str:
    if cell.predictive is None or cell.null is None:
        low, high = made.best_num_envs
        return f"predicted the best N between {low:,.0f} and {high:,.0f}, no score"
    inner, outer = made.rule.survive_level, made.rule.falsify_level
    return (
        f"predicted {cell.mean:.6g}, {inner:.0%} {_range(cell, inner)}, "
        f"{outer:.0%} {_range(cell, outer)}, DDR {cell.ddr:.3g}; null model "
        f"{cell.null.quantile(0.5):.6g}"
    )


def _range(cell: Cell, level: float) -> str:
    assert cell.predictive is not None, "only scored cells have a range"
    low, high = cell.predictive.interval(level)
    return f"[{low:.6g}, {high:.6g}]"


def _cell_to_json(made: Prediction, seen: Observation, cell: Cell) -> dict[str, object]:
    content: dict[str, object] = {
        "num_envs": seen.num_envs,
        "seeds": len(seen.scores),
        "score": _finite(seen.mean),
        "score_standard_error": seen.standard_error,
        "ddr": _mean(seen.ddr),
        "unfinished": list(seen.unfinished),
        "predicted_score": cell.mean,
        "predicted_ddr": cell.ddr,
        "predicted_best_num_envs": list(made.best_num_envs) or None,
    }
    if cell.predictive is None or cell.null is None:
        return content
    trial = Trial(predictive=cell.predictive, null=cell.null, score=seen.mean)
    return content | {
        "survive_interval": list(cell.predictive.interval(made.rule.survive_level)),
        "falsify_interval": list(cell.predictive.interval(made.rule.falsify_level)),
        "null_score": cell.null.quantile(0.5),
        "deviation": _finite(cell.predictive.deviation(seen.mean)),
        "log_score_advantage": _finite(trial.advantage),
    }


def _mean(values: Sequence[float]) -> float | None:
    """The harmonic mean: DDR of all seeds together; None without finite values."""
    finite = [value for value in values if 0 < value < math.inf]
    return len(finite) / sum(1.0 / value for value in finite) if finite else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    sys.exit(main())
