"""A study's report: the verdict first, then the figure, the tables and the command.

It holds no date and no speed: the same runs give the same bytes.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from bridge.studies.effects import FALSIFY, SURVIVE, Finding, Runs, overall
from bridge.studies.measures import MEASURES, optimum
from bridge.studies.study import Cell, Study
from fullscale.config import changes
from fullscale.presets import preset
from theory.unit_mean import unit_mean

_HIDDEN = ("seed", "num_seeds", "prediction", "budget", "meter_interval")


def to_json(study: Study, findings: Sequence[Finding], runs: Runs) -> dict[str, object]:
    """The JSON object of `study --json` and of the report's `.json`."""
    return {
        "study": study.name,
        "scale": study.scale,
        "verdict": overall(findings),
        "prediction": study.record()["sha256"],
        "effects": [_finding(f) for f in findings],
        "cells": [_cell(cell, runs) for cell in study.cells],
    }


def in_words(study: Study, findings: Sequence[Finding], runs: Runs) -> str:
    """The report as Markdown, beside a figure of its name."""
    verdict = overall(findings)
    counts = ", ".join(
        f"{sum(f.verdict == v for f in findings)} {v}"
        for v in ("survived", "falsified", "inconclusive")
    )
    file = f"{study.name}-{study.scale}"
    lines = [
        f"# {study.name}: {verdict}",
        "",
        f"{study.question} Of {len(findings)} predictions: {counts}.",
        "",
        f"The claim: {study.claim}",
        "",
        f"![effects and predicted ranges]({file}.svg)",
        "",
        "| prediction | on | predicted | range | seen | interval | verdict |",
        "|---|---|---|---|---|---|---|",
        *(_effect_row(f) for f in findings),
        "",
        *(
            f"- {f.effect.name} ({f.effect.task}): {_how(f)} Source: {f.effect.source}"
            for f in findings
        ),
        "",
        "| task | arm | knobs | transitions | "
        + " | ".join(["gap or return", "score", "DDR"])
        + " |",
        "|---|---|---|---|---|---|---|",
        *(_cell_row(cell, runs) for cell in study.cells),
        "",
        "Gap: optimum less exact return where the optimum is known, else training "
        "return (no sign); both, and DDR, of the second half of the updates; ± is one "
        "standard error over seeds.",
        "",
        f"Varied: {', '.join(study.scientific)}. Averaged over: "
        f"{', '.join(study.nuisance)}. Everything else is fixed: the presets of the "
        "tasks and what the table says.",
        "",
        *([study.notes, ""] if study.notes else []),
        f"Intervals hold {SURVIVE:.0%} over all predictions of the study together "
        "(Student's t over seeds, Bonferroni). Falsified: the interval of "
        f"{FALSIFY:.0%} lies outside the range; survived: that of {SURVIVE:.0%} "
        "inside.",
        "",
        f"    python -m bridge.study {study.name} --scale {study.scale}",
        "",
        f"Prediction {str(study.record()['sha256'])[:16]}, in "
        f"`bridge/studies/{study.name}.toml`, whose history says when it was made.",
    ]
    return "\n".join(lines) + "\n"


def draw(findings: Sequence[Finding], file: BinaryIO) -> None:
    """Seen effects with intervals over the predicted ranges, one row each."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "ppo-outer-loop"  # the same file every time
    from matplotlib import pyplot as plt

    height = 1.0 + 0.45 * len(findings)
    figure, axes = plt.subplots(
        len(findings), 1, figsize=(8, max(height, 2.0)), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for finding, axis in zip(findings, axes[:, 0], strict=True):
        _row(axis, finding)
    figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)


def _row(axis, finding: Finding) -> None:  # type: ignore[no-untyped-def]
    effect = finding.effect
    ends = [x for x in (effect.low, effect.high, effect.predicted) if math.isfinite(x)]
    if finding.seen is not None:
        assert finding.low is not None
        assert finding.high is not None
        ends += [finding.low, finding.high]
    away = 0.1 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - away, max(ends) + away
    axis.axvspan(max(effect.low, low), min(effect.high, high), color="0.85")
    axis.plot([effect.predicted], [0], "k|", ms=14)
    if finding.seen is not None:
        axis.plot([finding.low, finding.high], [0, 0], "-", color="C0")
        axis.plot([finding.seen], [0], "o", color="C0")
    axis.set(xlim=(low, high), ylim=(-1, 1), yticks=[])
    axis.tick_params(labelsize=7)
    axis.set_title(
        f"{effect.task}: {effect.name} ({finding.verdict})", fontsize=7, loc="left"
    )


def _finding(finding: Finding) -> dict[str, object]:
    values = dataclasses.asdict(finding)
    effect = values.pop("effect")
    ends = {k: v if math.isfinite(v) else None for k, v in effect.items() if k in (
        "low", "high", "predicted")}  # fmt: skip
    return {**effect, **{f"predicted_{k}": ends[k] for k in ("low", "high")},
            **values}  # fmt: skip


def _effect_row(finding: Finding) -> str:
    effect = finding.effect
    seen = "–" if finding.seen is None else f"{finding.seen:.3g}"
    interval = "–"
    if finding.low is not None and finding.high is not None:
        interval = f"{finding.low:.3g} … {finding.high:.3g}"
    bounds = f"{effect.low:.3g} … {effect.high:.3g}"
    return (
        f"| {effect.name} | {effect.task} | {effect.predicted:.3g} | {bounds} | {seen} "
        f"| {interval} | {finding.verdict} |"
    )


def _how(finding: Finding) -> str:
    effect = finding.effect
    text = {
        "ratio": "ratio of {m}, {a} over {b}.",
        "difference": "{m} of {a} less that of {b}.",
        "slope": "slope of log {m} over log {x}, arms {all}.",
        "value": "{m} of {a}.",
    }[effect.comparison]
    said = text.format(
        m=effect.measure, a=effect.arms[0], b=effect.arms[-1], x=effect.x,
        all=", ".join(effect.arms),
    )  # fmt: skip
    return said + (f" No number: {finding.reason}." if finding.reason else "")


def _knobs(cell: Cell) -> str:
    plain = preset(cell.task, cell.config.budget)
    own = [
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, (_, value) in changes(plain, cell.config).items()
        if key not in _HIDDEN
    ]
    start = f"from {cell.parent}" if cell.parent else ""
    fresh = "fresh optimiser" if cell.fresh_optimiser else ""
    return "; ".join(x for x in (start, fresh, *own) if x) or "the preset"


def _values(cell: Cell, runs: Runs) -> dict[str, np.ndarray]:
    record = runs[cell.task, cell.arm]
    level = "gap" if optimum(cell.task) is not None else "plateau"
    names = (level, "score", "ddr")
    found = {name: MEASURES[name](record) for name in names}
    if "score_anchor" in record.evaluation:
        found["score_anchor"] = MEASURES["score_anchor"](record)
    return found


def _cell_row(cell: Cell, runs: Runs) -> str:
    head = f"| {cell.task} | {cell.arm} | {_knobs(cell)} | {cell.config.transitions:,} "
    if (cell.task, cell.arm) not in runs:
        return head + "| diverged | – | – |"
    values = _values(cell, runs)
    level, score, ddr = list(values.values())[:3]
    return head + f"| {_mean(level)} | {_mean(score)} | {np.mean(ddr):.3g} |"


def _mean(values: np.ndarray) -> str:
    mean = unit_mean(values)
    error = f" ± {mean.standard_error:.2g}" if mean.units > 1 else ""
    return f"{mean.value:.4g}{error}"


def _cell(cell: Cell, runs: Runs) -> dict[str, object]:
    about: dict[str, object] = {
        "task": cell.task,
        "arm": cell.arm,
        "parent": cell.parent,
        "config_hash": cell.config.content_hash(),
        "transitions": cell.config.transitions,
        "gradient_steps": cell.config.gradient_steps,
    }
    if (cell.task, cell.arm) not in runs:
        return {**about, "diverged": True}
    return about | {
        name: [x if math.isfinite(x) else None for x in map(float, values)]
        for name, values in _values(cell, runs).items()
    }


def dumps(content: dict[str, object]) -> str:
    """The report's JSON file."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
