"""An optimiser whose momentum is carried from one update into the next.

Within an update the K gradient steps see one batch, m' = μm + (1−μ)g, x' = x − αm',
as Adam does apart from its scaling; m is not reset when the next batch comes. Where
μ^K is small the carried share is too, and the inner loop is one step; where it is not,
the optimiser adds outer momentum that no configuration key names.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    where,
    whole_number,
)
from theory.kl import check_momentum
from theory.outer.loop import Loop, Moments
from theory.outer.moments import AffineMap, LinearMap, Row, moment_map


def carried_momentum_factor(momentum: Number, gradient_steps: Number) -> Number:
    """What carried momentum does to gap·√DDR of small steps: a factor of at least 1.

    With S = μ(1−μ^K)/(1−μ) and ρ = μ^K, a batch moves x by α(K−S) in its own update and
    by αS in later ones, in all by αK; the plateau is that of the step αK, while the KL
    of one update sees only part of the move (derived here):

        factor = K/√((K−S)² + S²(1−ρ)/(1+ρ))

    K = 1 gives √((1+μ)/(1−μ)), large K gives 1. The limit α → 0 of
    `ddr_factor(carried_momentum(…))`.

    Args:
        momentum: 0 ≤ μ < 1, per gradient step.
        gradient_steps: K ≥ 1 per update, whole.

    Returns:
        The factor; a float.

    Raises:
        ValueError: if μ or K is out of range.
    """
    mu, steps = _checked(momentum, gradient_steps)
    kept = mu**steps
    later = mu * (1 - kept) / (1 - mu)
    seen = (steps - later) ** 2 + later**2 * (1 - kept) / (1 + kept)
    return steps / np.sqrt(np.asarray(seen, dtype=np.float64))[()]


def carried_momentum(
    learning_rate: Number, curvature: Number, momentum: Number, gradient_steps: Number
) -> "CarriedMomentum":
    """The loop of K gradient steps with momentum that is never reset.

    Each gradient step is m' = μm + (1−μ)(hx + ξ), x' = x − αm', with ξ shared by the K
    steps of an update. K = 1 is `heavy_ball` with η = α(1−μ); μ = 0 is `sgd` with
    `effective_step(inf, α, h, K)`. Stable where both eigenvalues of the update's matrix
    are inside the unit circle; stationary moments from its 2×2 Lyapunov equation
    (derived here).

    Args:
        learning_rate: α ≥ 0.
        curvature: h ≥ 0.
        momentum: 0 ≤ μ < 1.
        gradient_steps: K ≥ 1.

    Returns:
        The loop, one update of which is K gradient steps; m starts at 0.

    Raises:
        ValueError: if an argument is out of range.
    """
    check_nonnegative("learning_rate", learning_rate)
    check_nonnegative("curvature", curvature)
    mu, steps = _checked(momentum, gradient_steps)
    alpha, h, mu = align(learning_rate, curvature, mu)
    return CarriedMomentum(
        learning_rate=alpha, curvature=h, momentum=mu, gradient_steps=int(steps)
    )


@dataclass(frozen=True, kw_only=True)
class CarriedMomentum(Loop):
    """See `carried_momentum`, which builds it.

    Attributes:
        learning_rate: α.
        momentum: μ.
        gradient_steps: K.
    """

    learning_rate: Number
    momentum: Number
    gradient_steps: Number

    @property
    def stability_limit(self) -> Number:
        """2(1+μ)/((1−μ)h), of the learning rate, whatever K: that of one step of it."""
        h, mu = self.curvature, self.momentum
        return where(h > 0, lambda: 2 * (1 + mu) / ((1 - mu) * h), 0)

    @property
    def stable(self) -> Any:
        """0 < (1−μ)αh < 2(1+μ)."""
        b, mu = self._pull(), self.momentum
        return (b > 0) & (2 * (1 + mu) - b > 0)

    def moments(self) -> Moments:
        """From the stationary covariance of (x, αm)."""
        (a, b), (c, d), (e, f) = self._update()
        xx, xm, mm = _stationary(moment_map(((a, b), (c, d)), (e, f), 1))
        step = (a - 1) ** 2 * xx + 2 * (a - 1) * b * xm + b * b * mm + e * e
        return Moments(acting=xx, reference=xx, cross=xx, step=step)

    def linear_map(self) -> LinearMap:
        """State (x, x − αm): the two are alike at rest."""
        (a, b), (c, d), (e, f) = self._update()
        matrix = ((a + b, -b), (a + b - c - d, d - b))
        return LinearMap(matrix, (e, e - f))

    def _pull(self) -> Number:
        return (1 - self.momentum) * self.learning_rate * self.curvature

    def _update(self) -> tuple[Row, Row, Row]:
        """Rows and noise loading of K gradient steps of (x, αm) on one batch."""
        mu, b = self.momentum, self._pull()
        gain = (1 - mu) * self.learning_rate
        x, m, noise = (b * 0 + 1, b * 0, b * 0), (b * 0, b * 0 + 1, b * 0), gain
        for _ in range(int(self.gradient_steps)):
            m = (
                mu * m[0] + b * x[0],
                mu * m[1] + b * x[1],
                mu * m[2] + b * x[2] + noise,
            )
            x = (x[0] - m[0], x[1] - m[1], x[2] - m[2])
        return (x[0], x[1]), (m[0], m[1]), (x[2], m[2])


def _stationary(update: AffineMap) -> Row:
    """The fixed point of a moment map, by Cramer's rule."""
    rows = [
        [(i == j) - entry for j, entry in enumerate(row)]
        for i, row in enumerate(update.linear)
    ]
    columns = list(zip(*rows, strict=True))
    whole = _determinant(*columns)
    shift = update.offset
    return (
        _determinant(shift, columns[1], columns[2]) / whole,
        _determinant(columns[0], shift, columns[2]) / whole,
        _determinant(columns[0], columns[1], shift) / whole,
    )


def _determinant(one: Row, two: Row, three: Row) -> Number:
    return (
        one[0] * (two[1] * three[2] - two[2] * three[1])
        + one[1] * (two[2] * three[0] - two[0] * three[2])
        + one[2] * (two[0] * three[1] - two[1] * three[0])
    )


def _checked(momentum: Number, gradient_steps: Number) -> tuple[Number, Number]:
    check_nonnegative("momentum", momentum)
    check_momentum(momentum)
    steps = whole_number("gradient_steps", gradient_steps)
    if np.any(steps == 0):
        msg = f"gradient_steps is {gradient_steps}; an update takes at least 1."
        raise ValueError(msg)
    return align(momentum, steps)
