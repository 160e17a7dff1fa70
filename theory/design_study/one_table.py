"""One table of the design study: fit it, forecast fresh runs, compare with the truth.

"law" is the joint law as fitted, "guarded" the same where it has earned its claim on
the training data and `constant_ddr` elsewhere (`theory.rivals.guarded`); all others are
the rivals of `theory.nulls`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float

from theory import cells as cells_module
from theory import nulls, scores
from theory.cells import Cells
from theory.design_study.scenarios import (
    FACTORS,
    HELD_OUT,
    SCATTER,
    SCENARIOS,
    TRAINING,
    Scenario,
)
from theory.fit import Fit, Options, fit, intervals
from theory.fit.identification import degrees_of_freedom
from theory.fit.intervals import Interval, Kind, Scale
from theory.fit.named import OPTIMUM_EXPONENT
from theory.fit.status import NotConverged
from theory.null_data import Forecaster
from theory.rivals.guarded import guarded
from theory.rivals.other_law import Refitted

LEVEL = 0.9
LAW, GUARDED, FREE, NULL = "law", "guarded", "free", "constant_ddr"
# Choices offered: 120 rates from a 16th of the least tried to 4 times the largest.
RATES = np.geomspace(1 / 512, 4, 120)
Forecast = Callable[[int | np.ndarray, Mapping[str, np.ndarray], int], np.ndarray]
Record = dict[str, object]


def study(scenario: Scenario, seed: int, number: int, draws: int) -> Record:
    """Make a table, fit it, and compare with the truth.

    Args:
        scenario: the truth.
        seed: of the study.
        number: of the table; tables of different numbers are independent.
        draws: of the bootstrap.

    Returns:
        JSON values; "error" alone tells a table that cannot be fitted.
    """
    rng = np.random.default_rng([seed, list(SCENARIOS).index(scenario.name), number])
    table = scenario.runs(TRAINING, SCATTER, rng)
    fresh = cells_module.from_table(scenario.runs(HELD_OUT, SCATTER, rng))
    options = Options(asymptote=0.0, draws=draws, seed=number)
    try:
        found = fit(table, options)
        guard = guarded(found)
        rivals = nulls.fit_all(found)
    except NotConverged as error:
        return {"error": error.status.name}
    made: dict[str, Forecaster] = {LAW: Refitted(fit=found), GUARDED: guard, **rivals}
    models = {name: model.forecast for name, model in made.items()}
    return {
        "law_on_record": guard.is_law,
        "status": found.status.name,
        "parameters": _parameters(found, scenario),
        "expected": _expected(found, scenario),
        **_held_out(fresh, models),
        "regret": {name: _regrets(f, scenario) for name, f in models.items()},
    }


def _crps(
    cells: Cells, models: Mapping[str, Forecast]
) -> dict[str, Float[np.ndarray, "cell"]]:
    observed, seeds = scores.outcome(cells.score, 0.0), int(cells.num_seeds[0])
    return {
        name: scores.crps(
            observed,
            scores.outcome(forecast(cells.transitions, cells.knobs, seeds), 0.0),
        )
        for name, forecast in models.items()
    }


def _held_out(fresh: Cells, models: Mapping[str, Forecast]) -> Record:
    """CRPS and predictive coverage of fresh runs, and skill over each null."""
    crps = _crps(fresh, models)
    covered = {
        name: [
            _covered(fresh.select(fresh.budget == budget), forecast)
            for budget in HELD_OUT.budgets
        ]
        for name, forecast in models.items()
    }
    skills = {
        name: {
            null: dataclasses.asdict(scores.skill(crps[name], crps[null], fresh.config))
            for null in models
            if null not in (LAW, GUARDED, name)
        }
        for name in (LAW, GUARDED, FREE)
    }
    means = {name: float(np.mean(values)) for name, values in crps.items()}
    return {"crps": means, "predictive": covered, "skill": skills}


def _covered(cells: Cells, forecast: Forecast) -> float:
    draws = forecast(cells.transitions, cells.knobs, 1)
    return scores.coverage(cells.score, draws, [LEVEL])[LEVEL]


def _parameters(found: Fit, scenario: Scenario) -> Record:
    """Estimate and intervals of p_DDR and of the noise constant, with their truth."""
    truths = {OPTIMUM_EXPONENT: scenario.exponent, "noise": scenario.noise}
    result: dict[str, dict] = {
        name: {
            "truth": truth,
            "studentised": _ends(found.interval(name, Kind.STUDENTISED, LEVEL)),
            "percentile": _ends(found.interval(name, Kind.PERCENTILE, LEVEL)),
        }
        for name, truth in truths.items()
        if truth is not None
    }
    if OPTIMUM_EXPONENT in result:
        result[OPTIMUM_EXPONENT] |= {"wider": _ends(_wider(found))}
    return dict(result)


def _wider(found: Fit) -> Interval:
    """Of p_DDR = 2s/(1 + s), as `Fit.estimates` has it at 95 %."""
    seen = found.profile("source").interval(LEVEL)
    student = found.interval(OPTIMUM_EXPONENT, Kind.STUDENTISED, LEVEL)
    return intervals.wider(intervals.mapped(seen, lambda s: 2 * s / (1 + s)), student)


def _expected(found: Fit, scenario: Scenario) -> Record:
    """Per held-out factor and kind: shares of true expected gaps inside."""
    knobs = {"outer_learning_rate": np.asarray(HELD_OUT.outer_learning_rate)}
    freedom = degrees_of_freedom(found.model, found.left_out)
    result: Record = {}
    for factor, budget in zip(FACTORS, HELD_OUT.budgets, strict=True):
        truth = scenario.gap(budget, np.sort(knobs["outer_learning_rate"]))
        point, drawn, without = (
            found.model.expected(part, budget, knobs).gap
            for part in (found.point, found.draws, found.left_out)
        )
        student = [
            intervals.studentised(value, left, freedom, Scale.POSITIVE, LEVEL)
            for value, left in zip(point[0].tolist(), without.T, strict=True)
        ]
        spread = [intervals.percentile(column, LEVEL) for column in drawn.T]
        result[str(factor)] = {
            "studentised": _share(student, truth),
            "percentile": _share(spread, truth),
        }
    return result


def _regrets(forecast: Forecast, scenario: Scenario) -> list[float | None]:
    """Per factor, what the rate with the best mean log gap really loses.

    Relative to the best of `RATES`; None where a model holds all rates for equal.
    """
    regrets: list[float | None] = []
    for budget in HELD_OUT.budgets:
        draws = forecast(budget, {"outer_learning_rate": RATES}, 1)
        # Noise cancels over draws, but for rounding.
        outcome = np.round(np.mean(scores.outcome(draws, 0.0), axis=0), 9)
        truth = _offered(scenario, budget)
        lost = truth[np.argmin(outcome)] / np.min(truth) - 1
        regrets.append(float(lost) if np.ptp(outcome) > 0 else None)
    return regrets


@functools.cache
def _offered(scenario: Scenario, budget: int) -> Float[np.ndarray, "cell"]:
    """True gaps of all that may be chosen."""
    return scenario.gap(budget, RATES)


def _ends(interval: Interval) -> list[float | None]:
    return [interval.low, interval.high]


def _share(found: list[Interval], truth: np.ndarray) -> float:
    held = [i.holds(t) for i, t in zip(found, truth.tolist(), strict=True)]
    return float(np.mean(held))
