"""Held-out cells: forecast them from their knobs alone, then score the forecasts."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from theory import cells as cells_module
from theory import nulls, scores
from theory.calibration import Calibration, CalibrationError
from theory.cells import Cells
from theory.fit.two_stage import Fit
from theory.null_data import draws_of
from theory.rivals.guarded import guarded
from theory.rivals.oracle import oracle
from theory.table import RunTable, TableError

LAW, GUARDED, ORACLE = "law", "guarded", "oracle"
NO_RIVALS = (LAW, GUARDED, ORACLE)
Draws = Float[np.ndarray, "draw cell"]


def evaluate(fit: Fit, calibration: Calibration, table: RunTable) -> dict[str, object]:
    """Forecast held-out runs and score the law against its rivals.

    Args:
        fit: the fit, which the rivals share.
        calibration: its calibration.
        table: held-out runs.

    Returns:
        JSON values: the outcome scored, the cells with forecast intervals, the bands
        of coverage for that many cells, and per model CRPS, coverage, regret share, log
        score, PIT histogram, and the skill over each rival of the law and of the
        guarded law (`guarded` and `oracle` are no rivals).

    Raises:
        TableError: the runs cannot be forecast by this calibration.
    """
    cells = cells_module.from_table(
        table, ddr_column=fit.options.ddr_column, knobs=calibration.model.ddr_map.knobs
    )
    _check_domain(calibration, table)
    try:
        models = _forecasts(fit, calibration, cells)
        return score_models(cells, models, fit.options.asymptote)
    except (CalibrationError, ValueError) as error:
        raise TableError(f"held-out runs: {error}") from None


def score_models(
    cells: Cells, models: Mapping[str, Draws], asymptote: float | None
) -> dict[str, object]:
    """Score forecasts, however they were made, against what was measured.

    Args:
        cells: held-out cells as measured.
        models: name → draws (or quantiles of equal weight) of the mean score; one is
            the law's, named `LAW`.
        asymptote: the known optimum in score units, or None.

    Returns:
        JSON values, as `evaluate`.

    Raises:
        ValueError: a measured score is at or above the known optimum.
    """
    observed = scores.outcome(cells.score, asymptote)
    outcomes = {
        name: scores.outcome(draws, asymptote) for name, draws in models.items()
    }
    crps = {name: scores.crps(observed, draws) for name, draws in outcomes.items()}
    regrets = {name: regret_shares(cells, draws) for name, draws in models.items()}
    summary = {
        name: {
            "crps": float(np.mean(crps[name])),
            "coverage": {
                f"{level:g}": share
                for level, share in scores.coverage(observed, outcomes[name]).items()
            },
            "regret_share": float(np.mean(regrets[name])) if regrets[name] else None,
            "log_score": _mean_or_none(scores.log_score(observed, outcomes[name])),
            "pit": scores.pit_histogram(scores.pit(observed, outcomes[name])).tolist(),
        }
        for name in models
    }
    for model in (LAW, GUARDED):
        for name in models if model in models else ():
            if name not in NO_RIVALS:
                skill = scores.skill(crps[model], crps[name], cells.config)
                summary[name][f"skill_of_{model}"] = dataclasses.asdict(skill)
    return {
        "outcome": scores.outcome_name(asymptote),
        "cells": _cell_rows(cells, models[LAW]),
        "coverage_bands": {
            f"{level:g}": scores.coverage_band(len(cells), level)
            for level in scores.LEVELS
        },
        "models": summary,
    }


def regret_shares(cells: Cells, draws: Draws) -> list[float]:
    """Regret share of the N with the best mean forecast, per grid of N.

    A grid is the cells that share everything but `num_envs`; one with a single N says
    nothing and is left out.
    """
    others = [v for k, v in cells.knobs.items() if k != "num_envs"]
    keys = np.stack([cells.budget.astype(float), *others])
    _, grid = np.unique(keys, axis=1, return_inverse=True)
    grid = grid.ravel()
    expected = np.mean(draws, axis=0)
    shares = []
    for number in np.unique(grid):
        here = grid == number
        if np.sum(here) > 1:
            chosen = int(np.argmax(expected[here]))
            shares.append(scores.regret_share(cells.score[here], chosen))
    return shares


def _forecasts(fit: Fit, calibration: Calibration, cells: Cells) -> Mapping[str, Draws]:
    """Draws of the score per model, each cell with its own number of seeds."""

    def law(budget: np.ndarray, knobs: Mapping[str, np.ndarray], seeds: int) -> Draws:
        return calibration.forecast(budget, knobs, seeds).predictive.score

    others = {
        GUARDED: guarded(fit),
        **nulls.fit_all(fit),
        ORACLE: oracle(fit, cells),
    }
    forecasts = {LAW: law, **{name: other.forecast for name, other in others.items()}}
    return {name: draws_of(make, cells) for name, make in forecasts.items()}


def _mean_or_none(values: Float[np.ndarray, "cell"]) -> float | None:
    """The mean; None where it is infinite, as JSON has no such number."""
    mean = float(np.mean(values))
    return mean if np.isfinite(mean) else None


def _check_domain(calibration: Calibration, table: RunTable) -> None:
    for name, value in calibration.fixed.items():
        column = "domain" if name == "environment" else name
        if name not in table:
            continue
        for found in set(table[name].tolist()):
            same = found == value or (value == "reset" and found != found)
            if not same:
                raise TableError(
                    f"held-out runs: {column} = {found!r}, but the calibration knows "
                    f"{value!r} only"
                )


def _cell_rows(cells: Cells, draws: Draws) -> list[dict[str, object]]:
    low, middle, high = np.quantile(draws, [0.1, 0.5, 0.9], axis=0)
    return [
        {
            **{knob: float(values[i]) for knob, values in cells.knobs.items()},
            "budget": int(cells.budget[i]),
            "num_seeds": int(cells.num_seeds[i]),
            "score": float(cells.score[i]),
            "forecast": float(middle[i]),
            "interval": [float(low[i]), float(high[i])],
        }
        for i in range(len(cells))
    ]
