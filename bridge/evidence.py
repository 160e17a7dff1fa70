"""From settings to gaps, scores and nulls: what a calibration or a prior says.

`from_calibration` and `from_prior` give the same record, so that the choice, the table
and the prediction do not care where it came from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridge.errors import UsageError
from bridge.predictive import Predictive, envelope
from bridge.prior import Prior
from fullscale.config import RunConfig
from theory.calibration import Calibration
from theory.forecast import KNOWN, Forecast
from theory.shapes import Float

NOT_KNOBS = (
    "budget", "environment", "evaluation_episodes", "num_envs", "num_seeds",
    "prediction", "seed",
)  # fmt: skip
WIDEST_LEVEL = 0.9999  # what a verdict on many settings may ask for


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of each setting, by increasing N.

    Attributes:
        gap: per draw, or proportional to the gap within a draw.
        ddr: predicted DDR in transitions per nat; None from a prior.
        mean: of the mean score over the seeds; None from a prior.
        sd: its standard deviation; None from a prior.
        predictive: its distribution per setting; empty from a prior.
        null: the null model's, per setting; empty from a prior.
        null_budget: trained budget that the null persists at; 0 from a prior.
    """

    gap: Float[np.ndarray, "draw cell"]
    ddr: Float[np.ndarray, "cell"] | None = None
    mean: Float[np.ndarray, "cell"] | None = None
    sd: Float[np.ndarray, "cell"] | None = None
    predictive: tuple[Predictive, ...] = ()
    null: tuple[Predictive, ...] = ()
    null_budget: int = 0


def from_prior(prior: Prior, configs: Sequence[RunConfig]) -> Evidence:
    """Relative gaps of the settings under the prior."""
    sizes = np.array([config.num_envs for config in configs], dtype=float)
    return Evidence(gap=prior.relative_gap(float(configs[0].budget), sizes))


def from_calibration(
    calibration: Calibration, configs: Sequence[RunConfig]
) -> Evidence:
    """Forecasts of the settings, and of the null model: persistence.

    The budget of a forecast is what the run will use, whole updates. The null says that
    a setting scores as it would at the nearest trained budget.

    Raises:
        UsageError: the settings differ from the runs behind the calibration in a knob
            that those never varied, or it cannot forecast them.
    """
    knobs = _knobs(calibration, configs)
    num_seeds = configs[0].num_seeds
    used = np.array([config.transitions for config in configs], dtype=float)
    nearest = nearest_budget(calibration, float(configs[0].budget))
    try:
        forecast = calibration.forecast(used, knobs, num_seeds)
        persistence = calibration.forecast(float(nearest), knobs, num_seeds)
    except ValueError as error:
        raise UsageError(
            f"the calibration {calibration.name!r} cannot forecast here: {error}"
        ) from None
    optimum = _optimum(calibration)
    scores = forecast.predictive.score
    return Evidence(
        gap=forecast.expected.gap,
        ddr=np.exp(np.log(forecast.expected.ddr).mean(axis=0)),
        mean=scores.mean(axis=0),
        sd=scores.std(axis=0),
        predictive=_envelopes(forecast, optimum),
        null=_envelopes(persistence, optimum),
        null_budget=nearest,
    )


def nearest_budget(calibration: Calibration, budget: float) -> int:
    """The trained budget nearest in ratio."""
    return min(calibration.budgets, key=lambda b: abs(math.log(b / budget)))


def _knobs(
    calibration: Calibration, configs: Sequence[RunConfig]
) -> dict[str, np.ndarray]:
    if "num_envs" not in calibration.varied:
        raise UsageError(
            f"the calibration {calibration.name!r} has runs with one num_envs only; it "
            "takes one that varied it"
        )
    _check_fixed(calibration, configs[0])
    values = {k: [getattr(c, k, None) for c in configs] for k in calibration.varied}
    for knob, found in values.items():
        if not isinstance(found[0], int | float):
            raise UsageError(
                f"the calibration {calibration.name!r} varied {knob}, for which the "
                f"preset of {configs[0].environment!r} has no number: {found[0]!r}"
            )
    return {knob: np.array(found, dtype=float) for knob, found in values.items()}


def _check_fixed(calibration: Calibration, config: RunConfig) -> None:
    """Refuse a preset whose fixed knobs are not those of the calibration's runs."""
    for knob, value in calibration.fixed.items():
        if knob in NOT_KNOBS or not hasattr(config, knob):
            continue
        ours = getattr(config, knob)
        if not _same(ours, value):
            raise UsageError(
                f"the calibration {calibration.name!r} is of runs with {knob} = "
                f"{value!r}; the preset of {config.environment!r} has {ours!r}"
            )


def _same(ours: object, theirs: object) -> bool:
    """Equality of a configuration value and a table value of the same knob."""
    if isinstance(ours, tuple):
        theirs = tuple(int(width) for width in str(theirs).strip("[]() ").split(","))
    missing = theirs is None or (isinstance(theirs, float) and math.isnan(theirs))
    return ours in ("reset", "constant") if missing else ours == theirs


def _optimum(calibration: Calibration) -> float | None:
    if calibration.model.asymptote != KNOWN:
        return None
    return float(calibration.point.asymptote[0])


def _envelopes(forecast: Forecast, optimum: float | None) -> tuple[Predictive, ...]:
    runs = forecast.predictive
    with np.errstate(divide="ignore"):
        positions = runs.score if optimum is None else -np.log(runs.gap)
    try:
        made = tuple(envelope(column, optimum) for column in positions.T)
        for predictive in made:
            predictive.interval(WIDEST_LEVEL)
        return made
    except (ValueError, OverflowError) as error:
        raise UsageError(f"the calibration cannot forecast here: {error}") from None
