"""A fit as data."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.cells import Cells
from theory.fit import identification, intervals
from theory.fit.intervals import LEVEL, Interval, Kind
from theory.fit.law_fit import LawFit
from theory.fit.map_fit import MapFit
from theory.fit.named import named, scale
from theory.fit.options import Options
from theory.fit.problem import Problem
from theory.fit.status import Estimate, Status
from theory.forecast import LAW_PARAMETERS, Model, Parameters


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A two-stage fit.

    Attributes:
        options: what was asked.
        cells: the data.
        model: its form.
        point: the estimate.
        draws: the bootstrap.
        left_out: the estimate without each configuration.
        covariance: of `parameter_names`, over draws.
        status: of the whole fit.
        map_fit: stage 1.
        law_fit: stage 2.
        problem: what stage 2 solved, with the reliability of each cell.
        bootstrap_weights: weight of each cell in each draw.
    """

    options: Options
    cells: Cells
    model: Model
    point: Parameters
    draws: Parameters
    left_out: Parameters
    covariance: Float[np.ndarray, "k k"]
    status: Status
    map_fit: MapFit
    law_fit: LawFit
    problem: Problem
    bootstrap_weights: Float[np.ndarray, "draw cell"]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names along the covariance: map, pace, law, asymptote."""
        names = self.model.ddr_map.coefficient_names
        pace_names = (f"pace/{term}" for term in self.model.pace_terms)
        law_names = LAW_PARAMETERS[self.model.family]
        return (*names, *pace_names, *law_names, "asymptote")

    @functools.cached_property
    def estimates(self) -> Mapping[str, Estimate]:
        """Parameter name → estimate with its 95 % set and status."""
        seen = identification.profiles(self.problem, self.law_fit)
        return identification.estimates(
            self.model, self.point, self.draws, self.left_out, seen
        )

    def profile(self, name: str = "source") -> identification.Profile:
        """The profile of a positive parameter of the law; raises ValueError."""
        return identification.profile(self.problem, self.law_fit, name)

    def interval(
        self, name: str, kind: Kind = Kind.STUDENTISED, level: float = LEVEL
    ) -> Interval:
        """An interval of one parameter.

        Args:
            name: a key of `estimates`.
            kind: "percentile", "studentised" or "profile", as `intervals.Kind`.
            level: nominal probability to hold the truth.

        Raises:
            ValueError: no such parameter, kind or level.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must lie between 0 and 1.")
        values = named(self.model, self.point)
        if name not in values:
            msg = f"name is {name!r}; the fit has {', '.join(values)}."
            raise ValueError(msg)
        if kind is Kind.PERCENTILE:
            return intervals.percentile(named(self.model, self.draws)[name], level)
        if kind is Kind.STUDENTISED:
            return intervals.studentised(
                float(values[name][0]),
                named(self.model, self.left_out)[name],
                identification.degrees_of_freedom(self.model, self.left_out),
                scale(self.model, name),
                level,
            )
        if kind is Kind.PROFILE:
            return self.profile(name).interval(level)
        raise ValueError(f"kind is {kind}; ask for its two parts.")
