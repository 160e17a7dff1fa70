"""Knobs → DDR: a map fitted to runs, never assumed.

The KL that a whole run spends has two parts, a transient one that the budget does not
change and a stationary one that grows with it: ΣKL = rate·(τ + B). So, with
DDR = B/ΣKL,

    log D(knobs, B) = log D∞(knobs) − log(1 + τ(knobs)/B)
    log D∞ = a₀ + Σ_j a_j x_j,   log τ = t₀ + Σ_j t_j x_j,   x_j = log(knob_j/centre_j)

D∞ = 1/rate is the noise-only DDR that a raw DDR tends to as B grows. A term is a knob
(x_j), "knob^2" (x_j²) or "knob*other" (x_i·x_j). A map without transient terms has
τ = 0. Everything here is numpy, and a map is three short lists: terms, centres,
coefficients.

| symbol | meaning | unit | shape |
|---|---|---|---|
| D, D∞ | DDR of a run; its limit | transitions per nat | [..., cell] |
| τ | budget at which half the KL was transient | transitions | [..., cell] |
| B | budget | transitions | [cell] |
| x | logarithms of centred knobs | – | [cell, term] |
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from theory.shapes import Float

SQUARE, PRODUCT = "^2", "*"
Values = float | int | np.number | np.ndarray
KnobValues = Mapping[str, Values]


class MapError(ValueError):
    """Knobs that the map cannot take; the text names the knob and what is right."""


@dataclass(frozen=True, kw_only=True)
class DdrMap:
    """Shape of a fitted map; its coefficients are a separate vector (or many).

    Coefficients are ordered: a₀, one a_j per term, then, if `transient_terms` is not
    None, t₀ and one t_j per transient term.

    Attributes:
        terms: of log D∞: knobs, "knob^2" or "knob*other".
        transient_terms: the same for log τ; () is one τ for all knobs, None is τ = 0.
        centres: value of each knob at which x = 0, in the knob's unit.
    """

    terms: tuple[str, ...]
    transient_terms: tuple[str, ...] | None
    centres: Mapping[str, float]

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knobs that the map needs, in the order of first use."""
        used = (*self.terms, *(self.transient_terms or ()))
        return tuple(dict.fromkeys(knob for term in used for knob in factors(term)))

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the coefficients, in their order."""
        names = ("log_ddr", *(f"log_ddr/{term}" for term in self.terms))
        if self.transient_terms is None:
            return names
        slopes = (f"log_transient/{term}" for term in self.transient_terms)
        return (*names, "log_transient", *slopes)

    def log_limit(
        self, coefficients: Float[np.ndarray, "*draw k"], knobs: KnobValues
    ) -> Float[np.ndarray, "*draw cell"]:
        """Logarithm of the noise-only DDR D∞, in transitions per nat.

        Args:
            coefficients: one vector, or one per draw.
            knobs: values per cell in the knobs' own units; scalars broadcast.

        Raises:
            MapError: a knob is missing, not positive or not finite.
        """
        used = coefficients[..., : 1 + len(self.terms)]
        return used @ self.design(self.terms, knobs).T

    def log_transient(
        self, coefficients: Float[np.ndarray, "*draw k"], knobs: KnobValues
    ) -> Float[np.ndarray, "*draw cell"]:
        """Logarithm of τ in transitions; −∞ without a transient. Raises MapError."""
        if self.transient_terms is None:
            return np.full_like(self.log_limit(coefficients, knobs), -np.inf)
        used = coefficients[..., 1 + len(self.terms) :]
        return used @ self.design(self.transient_terms, knobs).T

    def log_ddr(
        self,
        coefficients: Float[np.ndarray, "*draw k"],
        budget: Values,
        knobs: KnobValues,
    ) -> Float[np.ndarray, "*draw cell"]:
        """Logarithm of the DDR of a whole run of `budget` transitions.

        Args:
            coefficients: one vector, or one per draw.
            budget: transitions, one for all cells or one per cell.
            knobs: values per cell in the knobs' own units; scalars broadcast.

        Raises:
            MapError: a knob is missing, not positive or not finite.
        """
        excess = self.log_transient(coefficients, knobs) - np.log(budget)
        return self.log_limit(coefficients, knobs) - np.logaddexp(0.0, excess)

    def slope(
        self, coefficients: Float[np.ndarray, "*draw k"], knob: str, at: KnobValues
    ) -> Float[np.ndarray, "*draw cell"]:
        """Slope d log D∞ / d log knob.

        Args:
            coefficients: one vector, or one per draw.
            knob: the knob to move.
            at: values of all knobs.

        Raises:
            MapError: the map does not use this knob, or a value is impossible.
        """
        if knob not in self.knobs:
            raise MapError(f"the map has no knob {knob!r}; it has {_list(self.knobs)}")
        x = self._logarithms(at)
        one = _one(x)
        columns = [0 * one]
        for term in self.terms:
            rest = list(factors(term))
            power = rest.count(knob)
            if power:
                rest.remove(knob)
            columns.append(power * np.prod([one, *(one * x[k] for k in rest)], axis=0))
        return coefficients[..., : len(columns)] @ np.stack(columns)

    def design(
        self, terms: tuple[str, ...], knobs: KnobValues
    ) -> Float[np.ndarray, "cell k"]:
        """The columns 1, x_j, x_j², x_i·x_j of `terms`. Raises MapError."""
        x = self._logarithms(knobs)
        one = _one(x)
        products = [
            np.prod([one, *(one * x[knob] for knob in factors(term))], axis=0)
            for term in terms
        ]
        return np.stack([one, *products], axis=-1)

    def _logarithms(self, knobs: KnobValues) -> dict[str, np.ndarray]:
        """Centred logarithms of the knobs' values, each of shape [1] or [cell]."""
        result = {}
        for knob in self.knobs:
            if knob not in knobs:
                raise MapError(f"the value of {knob!r} is missing")
            values = np.atleast_1d(np.asarray(knobs[knob], dtype=float))
            if not np.all(np.isfinite(values) & (values > 0)):
                raise MapError(
                    f"{knob} = {knobs[knob]!r} should be positive and finite"
                )
            result[knob] = np.log(values / self.centres[knob])
        return result


def _one(x: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.ones(np.broadcast_shapes((1,), *(value.shape for value in x.values())))


def factors(term: str) -> tuple[str, ...]:
    """The knobs whose centred logarithms a term multiplies."""
    if term.endswith(SQUARE):
        return (term.removesuffix(SQUARE),) * 2
    return tuple(term.split(PRODUCT))


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "none"
