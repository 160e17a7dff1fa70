"""The study's log, summed up: as JSON values and as a table in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from theory.design_study.one_table import FREE, GUARDED, LAW, NULL
from theory.design_study.scenarios import FACTORS, SCENARIOS

Record = Mapping[str, Any]


def aggregate(records: Sequence[Record]) -> dict[str, object]:
    """Per scenario: regrets, coverages and skills over tables.

    Args:
        records: of all tables.

    Returns:
        JSON values; a coverage is [share of tables or cells, its standard error].

    Raises:
        ValueError: no table of any scenario could be fitted.
    """
    result: dict[str, object] = {}
    for name in SCENARIOS:
        here = [record for record in records if record["scenario"] == name]
        fitted = [record for record in here if "error" not in record]
        if fitted:
            result[name] = {
                "tables": len(here),
                "not_fitted": len(here) - len(fitted),
                "law_on_record": _mean([r["law_on_record"] for r in fitted]),
                "regret": _regrets(fitted),
                "coverage": _coverages(fitted),
                "skill": _skills(fitted),
            }
    if not result:
        raise ValueError("records holds no fitted table; run the study first.")
    return result


def _regrets(records: Sequence[Record]) -> dict[str, object]:
    """Model → factor → median and 90 % quantile; no entry without a choice."""
    found: dict[str, object] = {}
    for model in records[0]["regret"]:
        chosen = [r["regret"][model] for r in records if None not in r["regret"][model]]
        if chosen:
            quantiles = np.quantile(chosen, [0.5, 0.9], axis=0).T
            found[model] = {
                str(factor): dict(zip(("median", "q90"), _rounded(pair), strict=True))
                for factor, pair in zip(FACTORS, quantiles, strict=True)
            }
    return found


def _coverages(records: Sequence[Record]) -> dict[str, object]:
    """What → how the interval was made → share that held, standard error."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, kinds in records[0]["parameters"].items():
        found[name] = {
            kind: _mean([_holds(r["parameters"][name], kind) for r in records])
            for kind in kinds
            if kind != "truth"
        }
    for factor, kinds in records[0]["expected"].items():
        found[f"expected gap at {factor}×"] = {
            kind: _mean([r["expected"][factor][kind] for r in records])
            for kind in kinds
        }
    for i, factor in enumerate(FACTORS):
        found[f"fresh run at {factor}×"] = {
            model: _mean([r["predictive"][model][i] for r in records])
            for model in records[0]["predictive"]
        }
    return dict(found)


def _holds(parameter: Mapping[str, Any], kind: str) -> bool:
    low, high = parameter[kind]
    truth = parameter["truth"]
    return (low is None or low <= truth) and (high is None or truth <= high)


def _skills(records: Sequence[Record]) -> dict[str, object]:
    """Model → null → median, and where the interval lies."""
    return {
        model: {
            null: _skill([r["skill"][model][null] for r in records]) for null in nulls
        }
        for model, nulls in records[0]["skill"].items()
    }


def _skill(found: Sequence[Mapping[str, float]]) -> dict[str, object]:
    return {
        "median": _rounded([np.median([skill["value"] for skill in found])])[0],
        "holds_0": _mean([skill["low"] <= 0 <= skill["high"] for skill in found])[0],
        "above_0": _mean([skill["low"] > 0 for skill in found])[0],
        "below_0": _mean([skill["high"] < 0 for skill in found])[0],
    }


def _mean(values: Sequence[float] | Sequence[bool]) -> list[float]:
    array = np.asarray(values, dtype=float)
    return _rounded([np.mean(array), np.std(array) / np.sqrt(len(array))])


def _rounded(values: Sequence[float] | np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def markdown(study: Mapping[str, Any]) -> str:
    """The report as text.

    Args:
        study: "command", "tables", "draws", "seed", "versions", and "scenarios", as of
            `aggregate`.
    """
    parts = [HEAD.format(**study)]
    for name, found in study["scenarios"].items():
        lost = found["not_fitted"]
        parts.append(
            f"## {name}\n\n{found['tables']} tables, {lost} without a fit; the law "
            f"earned its place in {found['law_on_record'][0]:.1%}.\n"
        )
        parts += [_regret_table(found), _coverage_table(found), _skill_table(found)]
    return "\n".join(parts)


HEAD = """# Design study

What a fit of 24 small cells can promise, on tables whose truth is known. Scenarios,
scatter and held-out runs are described in `theory/design_study/scenarios.py`, "law" and
"guarded" in `theory/design_study/one_table.py`, rivals in `theory/nulls.py`. Regret is
the true gap of the step size that a model picks over the least possible, less 1.
Intervals are nominal 90 %; coverages carry their standard error over tables. Made by

    {command}

with {tables} tables per scenario, {draws} bootstrap draws per fit, seed {seed}
({versions}). Figures are of this version and are not edited.
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _regret_table(found: Mapping[str, Any]) -> str:
    head = ["regret: median (90 % quantile)", *(f"{f}× budget" for f in FACTORS)]
    rows = [
        [model, *(f"{v['median']:.3f} ({v['q90']:.3f})" for v in values.values())]
        for model, values in found["regret"].items()
    ]
    return _table(head, rows)


def _coverage_table(found: Mapping[str, Any]) -> str:
    rows = []
    for what, kinds in found["coverage"].items():
        shown = kinds
        if what.startswith("fresh"):
            shown = {model: kinds[model] for model in (LAW, GUARDED, NULL)}
        for kind, (share, error) in shown.items():
            rows.append([what, kind, f"{share:.3f} ± {error:.3f}"])
    return _table(["90 % interval of", "made by", "coverage"], rows)


def _skill_table(found: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{model} over {null}",
            f"{value['median']:.2f}",
            *(f"{value[k]:.3f}" for k in ("above_0", "holds_0", "below_0")),
        ]
        for model in (LAW, GUARDED, FREE)
        for null, value in found["skill"][model].items()
        if model == LAW or null == NULL
    ]
    head = ["skill", "median", "interval above 0", "holds 0", "below 0"]
    return _table(head, rows)
