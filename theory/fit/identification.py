"""What the data identify: profiles, 95 % sets, and a status per parameter.

The profile deviance of a parameter ψ is compared with its minimum in units of the
dispersion: {ψ : [Δ(ψ) − min Δ]/φ ≤ F₀.₉₅(1, n − p)}, φ = min Δ/(n − p). A set that
reaches the searched bound on one side is open there, and then only the other end is
reported: near a strongly convex optimum the transient decays exponentially, faster
than any power, and the source s has no upper end.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float

from theory.fit import direct, intervals, law_fit
from theory.fit.intervals import LEVEL, Interval, Kind
from theory.fit.law_fit import LawFit
from theory.fit.named import OPTIMUM_EXPONENT, named, scale
from theory.fit.problem import SEARCHED, Problem
from theory.fit.status import Estimate, Status
from theory.forecast import Model, Parameters

GRID, COARSE = 41, 15
FAR = 1e12
REACH = 30.0  # how far from the estimate a profile without a searched range looks


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile deviance of one parameter.

    Attributes:
        values: of the parameter, increasing.
        deviance: excess over the minimum, in units of the dispersion.
        freedom: degrees of freedom of the dispersion.
    """

    values: Float[np.ndarray, "grid"]
    deviance: Float[np.ndarray, "grid"]
    freedom: int

    def interval(self, level: float = LEVEL) -> Interval:
        """Where the excess is at most the F quantile; an end is None if open."""
        threshold = float(scipy.stats.f.ppf(level, 1, self.freedom))
        low = _end(self.values, self.deviance, threshold)
        high = _end(self.values[::-1], self.deviance[::-1], threshold)
        return Interval(low, high, level, Kind.PROFILE)


def _end(values: np.ndarray, excess: np.ndarray, threshold: float) -> float | None:
    """First crossing of the threshold, in √excess linear in log ψ; None if inside."""
    inside = excess <= threshold
    if inside[0] or not np.any(inside):
        return None
    index = int(np.argmax(inside))
    far, near = np.sqrt(np.maximum(excess[[index - 1, index]], 0.0))
    share = (far - np.sqrt(threshold)) / (far - near)
    log_out, log_in = np.log(values[[index - 1, index]])
    return float(np.exp(log_out + share * (log_in - log_out)))


def profile(problem: Problem, fitted: LawFit, name: str = "source") -> Profile:
    """The profile of one positive parameter of the law.

    Args:
        problem: one row of weights.
        fitted: its fit.
        name: "source", "rate", "bias", "noise", or an exponent of the free law.

    Raises:
        ValueError: the law has no such parameter, or it is not positive by nature.
    """
    known = direct.coordinates(problem.family)[1:]
    if name not in known:
        msg = f"name is {name!r}; this law has profiles of {', '.join(known)}."
        raise ValueError(msg)
    values = _grid(problem, fitted, name)
    if name == "source":
        deviance = law_fit.profile_deviance(problem, fitted, values)
    else:
        deviance = direct.held_deviance(problem, fitted, name, values)
    return _profile(fitted, values, deviance)


def profiles(problem: Problem, fitted: LawFit) -> Mapping[str, Interval]:
    """Of the source, which may be open, and of a floor that was left out.

    Args:
        problem: one row of weights.
        fitted: its fit.
    """
    found = {}
    if "source" in SEARCHED[problem.family]:
        found["source"] = profile(problem, fitted).interval()
    if not np.any(problem.level):
        found["floor"] = floor_interval(problem, fitted)
    return found


def floor_interval(problem: Problem, fitted: LawFit) -> Interval:
    """From 0 to what the profile of the floor allows, where the fit left it out.

    Args:
        problem: one row of weights.
        fitted: its fit, with a floor of 0.
    """
    allowed = dataclasses.replace(problem, level=np.ones_like(problem.level))
    least, most = float(np.min(problem.target)), float(np.max(problem.target))
    values = np.geomspace(least / 100, most, COARSE)
    deviance = direct.held_deviance(allowed, fitted, "level", values)
    seen = _profile(fitted, values, deviance).interval()
    return Interval(0.0, seen.high, seen.level, Kind.PROFILE)


def _profile(fitted: LawFit, values: np.ndarray, deviance: np.ndarray) -> Profile:
    """Deviances as excess over the least one, in units of the dispersion."""
    least = min(np.min(deviance), fitted.solution.deviance[0])
    freedom = max(fitted.solution.mean.shape[1] - 3 - len(fitted.theta[0]), 1)
    dispersion = max(least / freedom, 1e-300)
    return Profile(
        values=values, deviance=(deviance - least) / dispersion, freedom=freedom
    )


def _grid(problem: Problem, fitted: LawFit, name: str) -> np.ndarray:
    """Values to try, in the searched range or around the estimate, and this itself."""
    searched = SEARCHED[problem.family]
    if name in searched:
        index = searched.index(name)
        lower, upper = law_fit.search_range(problem)
        best = fitted.theta[0, index]
        logs = np.linspace(lower[index], upper[index], GRID)
    else:
        found = fitted.solution
        best = float((found.log_bias if name == "bias" else found.log_noise)[0])
        if not np.isfinite(best):  # none of it: up to what explains a typical gap alone
            highest = direct.typical(problem, fitted, name)
            return np.exp(highest + np.linspace(-1, 0, GRID) * np.log(FAR))
        logs = best + np.linspace(-1, 1, GRID) * np.log(REACH)
    return np.exp(np.unique(np.append(logs, best)))


def estimates(
    model: Model,
    point: Parameters,
    draws: Parameters,
    left_out: Parameters,
    seen: Mapping[str, Interval],
) -> Mapping[str, Estimate]:
    """Every parameter with its 95 % set and status.

    Args:
        model: what was fitted.
        point: the estimate.
        draws: the bootstrap.
        left_out: refits without one configuration each.
        seen: what `profiles` shows.
    """
    values, drawn = named(model, point), named(model, draws)
    without = named(model, left_out)
    freedom = degrees_of_freedom(model, left_out)
    result = {}
    for name, value in values.items():
        spread = intervals.percentile(drawn[name])
        student = intervals.studentised(
            value[0], without[name], freedom, scale(model, name)
        )
        usable = name != "floor" and student.low is not None
        chosen = student if usable else spread
        bound = name in ("floor", "bias", "noise") and value[0] == 0
        status = Status.AT_BOUND if bound else Status.CONVERGED
        result[name] = Estimate.of(float(value[0]), chosen, status)
    if "floor" in seen:
        result["floor"] = Estimate.of(0.0, seen["floor"], Status.AT_BOUND)
    if "source" in seen:
        result["source"] = _source(result["source"], seen["source"])
        result[OPTIMUM_EXPONENT] = _follows(result["source"])
    return result


def degrees_of_freedom(model: Model, left_out: Parameters) -> int:
    """Configurations less the coefficients of the limit map that they pay for."""
    return max(len(left_out.law) - 1 - len(model.ddr_map.terms), 1)


def _source(found: Estimate, seen: Interval) -> Estimate:
    """The wider of profile and refits; the profile decides what is open.

    The profile knows the scatter around the law but takes the map as given; refits
    know the map's uncertainty but cannot see beyond the searched range.
    """
    status = {
        (False, False): Status.CONVERGED,
        (False, True): Status.OPEN_ABOVE,
        (True, False): Status.OPEN_BELOW,
        (True, True): Status.OPEN,
    }[seen.low is None, seen.high is None]
    value = found.value if status is Status.CONVERGED else None
    return Estimate.of(value, intervals.wider(seen, found.interval), status)


def _follows(source: Estimate) -> Estimate:
    """The optimum exponent 2s/(1 + s), with all that is known of s."""

    def exponent(s: float) -> float:
        return 2 * s / (1 + s)

    value = None if source.value is None else exponent(source.value)
    return Estimate.of(
        value, intervals.mapped(source.interval, exponent), source.status
    )
