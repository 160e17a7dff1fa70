"""A calibration in memory: a fitted model, its uncertainty, and where it is from.

`theory.calibration` reads and writes it. A synthetic one with exponents of your choice
(`Calibration.synthetic`) stands in for a fit in examples and tests.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from theory import sidecar, synthetic
from theory.ddr_map import KnobValues, Values
from theory.forecast import Forecast, Model, Parameters, Quantities
from theory.saturating import SaturatingLaw
from theory.shapes import Float
from theory.sidecar import CalibrationError

Real = float | int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted model with its uncertainty and the range of data behind it.

    Attributes:
        name: of the calibration; by convention the table's stem.
        domain: environment that it speaks of.
        created: UTC time of the fit, ISO 8601.
        ddr_column: "ddr" or "ddr_noise", the run-table column the map was fitted to.
        model: the form: DDR map, law family, asymptote known or free.
        point: the estimate, one row.
        draws: bootstrap over configurations, one row per draw.
        fixed: knobs that no run varied, and their values.
        varied: knobs that runs varied, and their levels in increasing order.
        budgets: training budgets in transitions, increasing.
        held_out: cells that were held out and their scores; empty if none.
        statuses: what was estimated → a sentence about how well.
        table_file: name of the run table.
        table_sha256: SHA-256 of that file.
    """

    name: str
    domain: str
    created: str
    ddr_column: str
    model: Model
    point: Parameters
    draws: Parameters
    fixed: Mapping[str, object]
    varied: Mapping[str, tuple[float, ...]]
    budgets: tuple[int, ...]
    held_out: Mapping[str, object] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    table_file: str = ""
    table_sha256: str = ""

    @property
    def num_draws(self) -> int:
        """Number of bootstrap draws."""
        return len(self.draws.asymptote)

    @property
    def content_hash(self) -> str:
        """SHA-256 of the sidecar without its hash."""
        content = {"format": sidecar.FORMAT, "version": sidecar.VERSION}
        return sidecar.content_hash({**content, **payload(self)})

    def forecast(self, budget: Values, knobs: KnobValues, num_seeds: int) -> Forecast:
        """Distributions of DDR, gap and score, arrays [draw, cell].

        Args:
            budget: transitions, for all cells or one per cell.
            knobs: every varied knob, per cell or for all; fixed knobs may be given, at
                their value.
            num_seeds: seeds that the forecast's mean score will be taken over.

        Raises:
            CalibrationError: a knob is missing, impossible, unknown, or set to another
                value than the one all runs had; or a budget is not positive.
        """
        self._check(budget, knobs)
        return self.model.forecast(self.draws, budget, knobs, num_seeds)

    def estimate(self, budget: Values, knobs: KnobValues) -> Quantities:
        """What the point estimate gives, arrays [1, cell]. Raises CalibrationError."""
        self._check(budget, knobs)
        return self.model.expected(self.point, budget, knobs)

    def optimum_exponent(
        self,
        knob: str = "num_envs",
        *,
        at: KnobValues | None = None,
        budget: Real | None = None,
    ) -> Float[np.ndarray, "draw"]:
        """Exponent d log knob* / d log B of a knob's best value, other knobs fixed.

        For a law without a pace it is p over the slope of log D∞ in log knob, where the
        law's best DDR grows as B^p (see `ddr_exponent`).

        Args:
            knob: a varied knob.
            at: the other knobs; the centres by default.
            budget: where to take the exponent; the largest training budget by default.

        Returns:
            Per draw; NaN where the best value is beyond any search.

        Raises:
            CalibrationError: the map does not use this knob.
        """
        middle = float(self.budgets[-1] if budget is None else budget)
        low, high = (
            self.best_value(knob, middle * math.exp(step), at=at)
            for step in (-0.5, 0.5)
        )
        return np.log(high) - np.log(low)

    def best_value(
        self, knob: str, budget: Real, *, at: KnobValues | None = None
    ) -> Float[np.ndarray, "draw"]:
        """The value of a knob with the least expected gap, other knobs fixed.

        Args:
            knob: a varied knob.
            budget: transitions.
            at: the other knobs; the centres by default.

        Returns:
            Per draw, to 10⁻³; NaN where it is beyond e^±20 times the knob's centre.

        Raises:
            CalibrationError: the map does not use this knob.
        """
        centres = self.model.ddr_map.centres
        if knob not in centres:
            raise CalibrationError(f"{self.name!r} has no fitted knob {knob!r}")
        step = 0.02
        offsets = np.arange(-20, 20 + step, step)
        knobs = {**centres, **(at or {}), knob: centres[knob] * np.exp(offsets)}
        gap = self.model.expected(self.draws, budget, knobs).gap
        return centres[knob] * np.exp(_minimum(offsets, gap))

    def ddr_exponent(self, budget: Real | None = None) -> Float[np.ndarray, "draw"]:
        """Exponent p in best DDR ∝ B^p, per draw.

        b/(d + γ) for the free law, 2s/(1 + s) for the joint law; for the saturating
        law it is local, at `budget` (the largest training budget by default).
        """
        law = self.model.law(self.draws)
        if isinstance(law, SaturatingLaw):
            exponent = law.optimum_exponent(
                self.budgets[-1] if budget is None else budget
            )
        else:
            exponent = law.optimum_exponent
        return np.asarray(exponent, dtype=float)[:, 0]

    def _check(self, budget: Values, knobs: KnobValues) -> None:
        if not _positive(budget):
            raise CalibrationError(f"budget = {budget!r} should be positive and finite")
        for knob in self.model.ddr_map.knobs:
            if knob not in knobs:
                raise CalibrationError(f"a forecast needs a value of {knob!r}")
        for knob, value in knobs.items():
            self._check_knob(knob, value)

    def _check_knob(self, knob: str, value: Values) -> None:
        if knob in self.varied:
            if not _positive(value):
                raise CalibrationError(
                    f"{knob} = {value!r} should be positive and finite"
                )
        elif knob not in self.fixed:
            raise CalibrationError(f"{self.name!r} knows no knob {knob!r}")
        elif not np.all(np.asarray(value) == self.fixed[knob]):
            raise CalibrationError(
                f"{self.name!r} knows {knob} = {self.fixed[knob]!r} only"
            )

    @classmethod
    def synthetic(  # noqa: PLR0913  (one keyword per number of the truth)
        cls,
        *,
        budget_exponent: Real = 1.0,
        ddr_exponent: Real = 0.5,
        noise_exponent: Real = 0.5,
        num_envs_exponent: Real = 1.0,
        best_num_envs: Real = 64.0,
        at_budget: Real = 1e6,
        best_gap: Real = 0.1,
        ddr: Real = 1e6,
        asymptote: Real = 0.0,
        config_sd: Real = 0.05,
        seed_sd: Real = 0.1,
        exponent_sd: Real = 0.0,
        num_draws: int = 400,
        fixed: Mapping[str, object] | None = None,
    ) -> "Calibration":
        """A calibration with a known truth: gap = bias·B^(−b)·D^d + noise·D^(−γ).

        Its best number of environments is `best_num_envs` at `at_budget` and grows as
        B^(b/((d + γ)·num_envs_exponent)); with budget_exponent 0 it does not move.

        Args:
            budget_exponent: b ≥ 0.
            ddr_exponent: d > 0.
            noise_exponent: γ > 0.
            num_envs_exponent: slope of log DDR in log num_envs.
            best_num_envs: the best N at `at_budget`.
            at_budget: a budget in transitions.
            best_gap: the gap there, in score units.
            ddr: the DDR there, in transitions per nat.
            asymptote: the known optimum, in score units.
            config_sd: sd of log gap between configurations.
            seed_sd: sd of log gap between seeds.
            exponent_sd: relative sd of b between draws, for forecasts that are unsure.
            num_draws: rows of `draws`.
            fixed: fixed knobs and their values.
        """
        model, parameters = synthetic.from_exponents(
            exponents=(budget_exponent, ddr_exponent, noise_exponent),
            num_envs_exponent=num_envs_exponent,
            optimum=(at_budget, best_num_envs, ddr, best_gap),
            asymptote=asymptote,
            sds=(config_sd, seed_sd, exponent_sd),
            num_draws=num_draws,
        )
        return cls(
            name="synthetic",
            domain="synthetic",
            created="1970-01-01T00:00:00+00:00",
            ddr_column="ddr",
            model=model,
            point=rows(parameters, slice(0, 1)),
            draws=rows(parameters, slice(1, None)),
            fixed=dict(fixed or {}),
            varied={"num_envs": tuple(best_num_envs * 4.0**k for k in range(-2, 3))},
            budgets=tuple(round(at_budget * 4.0**k) for k in range(-1, 2)),
        )  # fmt: skip


def rows(parameters: Parameters, selection: slice | np.ndarray) -> Parameters:
    """The selected draws."""
    return Parameters(
        **{
            item.name: getattr(parameters, item.name)[selection]
            for item in dataclasses.fields(parameters)
        }
    )


def payload(calibration: Calibration) -> dict[str, object]:
    """The sidecar's content as JSON values."""
    values = {
        item.name: getattr(calibration, item.name)
        for item in dataclasses.fields(calibration)
    }
    values["model"] = dataclasses.asdict(calibration.model)
    for name in ("point", "draws"):
        parameters = dataclasses.asdict(values[name])
        values[name] = {key: array.tolist() for key, array in parameters.items()}
    values["fixed"] = {k: _encode(v) for k, v in calibration.fixed.items()}
    return json.loads(json.dumps(values))


def _encode(value: object) -> object:
    """An infinite knob (no gradient clipping) as the text "inf"."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _minimum(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Place of the least value per row of a grid, by a parabola; NaN at the ends."""
    best = np.clip(np.argmin(values, axis=-1), 1, len(x) - 2)
    row = np.arange(len(values))
    left, middle, right = (values[row, best + step] for step in (-1, 0, 1))
    bend = left - 2 * middle + right
    with np.errstate(divide="ignore", invalid="ignore"):
        place = x[best] + (x[1] - x[0]) * (left - right) / (2 * bend)
    return np.where((middle <= left) & (middle <= right) & (bend > 0), place, np.nan)


def _positive(value: Values) -> bool:
    values = np.asarray(value, dtype=float)
    return bool(np.all(np.isfinite(values) & (values > 0)))
