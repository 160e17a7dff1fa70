"""What the data identify: profiles, 95 % sets, and a status per parameter.

The profile deviance of the source s is compared with its minimum in units
of the dispersion: {s : [Δ(s) − min Δ]/φ ≤ F₀.₉₅(1, n − p)}, φ = min Δ/(n − p). A set
that reaches the searched bound on one side is open there, and then only the other end
is reported: near a strongly convex optimum the transient decays exponentially, faster
than any power, and s has no upper end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float

from theory.fit import law_fit, projection
from theory.fit.law_fit import LawFit
from theory.fit.projection import Problem
from theory.fit.status import Estimate, Status
from theory.forecast import FREE, LAW_PARAMETERS, Model, Parameters

GRID = 41
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile deviance of the source.

    Attributes:
        source: values of s.
        deviance: excess over the minimum, in units of the dispersion.
        threshold: the 95 % set is where the excess is at most this.
    """

    source: Float[np.ndarray, "grid"]
    deviance: Float[np.ndarray, "grid"]
    threshold: float

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % set; None if open below."""
        return _end(self.source, self.deviance, self.threshold)

    @property
    def high(self) -> float | None:
        """Upper end of the 95 % set; None if open above."""
        return _end(self.source[::-1], self.deviance[::-1], self.threshold)


def _end(source: np.ndarray, excess: np.ndarray, threshold: float) -> float | None:
    """First crossing of the threshold, linear in log s; None if already inside."""
    if len(source) == 0 or excess[0] <= threshold:
        return None
    index = int(np.argmax(excess <= threshold))
    share = (excess[index - 1] - threshold) / (excess[index - 1] - excess[index])
    log_low, log_high = np.log(source[index - 1]), np.log(source[index])
    return float(np.exp(log_low + share * (log_high - log_low)))


def profile(problem: Problem, fitted: LawFit) -> Profile:
    """The profile of the source; empty for the free law, which has none.

    Args:
        problem: one row of weights.
        fitted: its fit.
    """
    cells = problem.target.size
    freedom = max(cells - 3 - len(fitted.theta[0]), 1)
    threshold = float(scipy.stats.f.ppf(LEVEL, 1, freedom))
    names = projection.SEARCHED[problem.family]
    if "source" not in names:
        empty = np.zeros(0)
        return Profile(source=empty, deviance=empty, threshold=threshold)
    best = np.exp(fitted.theta[:, names.index("source")])
    grid = law_fit.source_grid(problem.family, GRID)
    source = np.sort(np.concatenate([grid, best]))
    values = law_fit.profile_deviance(problem, fitted, source)
    least = min(np.min(values), fitted.solution.deviance[0])
    dispersion = max(least / freedom, 1e-300)
    return Profile(
        source=source, deviance=(values - least) / dispersion, threshold=threshold
    )


def estimates(
    model: Model, point: Parameters, draws: Parameters, source_profile: Profile
) -> Mapping[str, Estimate]:
    """Every parameter with its 95 % set and status.

    Sets are percentiles of the bootstrap; the source's is its profile's.
    """
    names = model.ddr_map.coefficient_names
    result = {
        name: _percentiles(point.ddr_map[0, i], draws.ddr_map[:, i])
        for i, name in enumerate(names)
    }
    for i, name in enumerate(LAW_PARAMETERS[model.family]):
        result[name] = _percentiles(point.law[0, i], draws.law[:, i])
    for name in ("floor", "bias", "noise"):
        if result[name].value == 0:
            low, high = result[name].low, result[name].high
            result[name] = Estimate(0.0, low, high, Status.AT_BOUND)
    for i, term in enumerate(model.pace_terms):
        result[f"pace/{term}"] = _percentiles(point.pace[0, i], draws.pace[:, i])
    if "source" in result:
        result["source"] = _source(result["source"], source_profile)
    if model.asymptote == FREE:
        result["asymptote"] = _percentiles(point.asymptote[0], draws.asymptote)
    return result


def _percentiles(value: float, draws: np.ndarray) -> Estimate:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high), Status.CONVERGED)


def _source(bootstrap: Estimate, source_profile: Profile) -> Estimate:
    """The wider of profile and bootstrap; the profile decides what is open.

    The profile knows the scatter around the law but takes the map as given; the
    bootstrap knows the map's uncertainty but cannot see beyond the searched range.
    """
    low, high = source_profile.low, source_profile.high
    status = {
        (False, False): Status.CONVERGED,
        (False, True): Status.OPEN_ABOVE,
        (True, False): Status.OPEN_BELOW,
        (True, True): Status.OPEN,
    }[low is None, high is None]
    return Estimate(
        value=bootstrap.value if status is Status.CONVERGED else None,
        low=_wider(min, low, bootstrap.low),
        high=_wider(max, high, bootstrap.high),
        status=status,
    )


def _wider(
    choose: Callable[[float, float], float], end: float | None, other: float | None
) -> float | None:
    return None if end is None or other is None else choose(end, other)
