"""The constant of gap ∝ DDR^(−½) from samples of one policy: scores and advantages.

The samples are of a policy near its optimum; nothing is fitted and no second policy is
needed. What the constant is, and when it holds, is told in `theory.plateau_constant`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import (
    Number,
    check_finite,
    check_positive,
    floats,
    one_number,
    whole_number,
)
from theory.jackknife import standard_error
from theory.plateau_constant import Array, Preconditioner, natural, plateau_constant


@dataclass(frozen=True)
class PlateauPrediction:
    """A predicted constant of gap ∝ DDR^(−½).

    Attributes:
        constant: gap·√DDR, as estimated from the whole sample.
        standard_error: of the constant (delete-a-group jackknife).
        bias: of the constant, by the same jackknife; about +d/(2·samples) of it for
            natural steps, through the inverse of an estimated F.
        units: number of independent units behind it.
    """

    constant: float
    standard_error: float
    bias: float
    units: int

    def plateau(self, ddr: Number) -> Number:
        """The gap at a DDR: constant·DDR^(−½).

        Raises:
            ValueError: if the DDR is not finite and positive.
        """
        check_positive("ddr", ddr)
        return self.constant / np.sqrt(np.asarray(ddr, dtype=np.float64))[()]


def predict_plateau_constant(
    scores: ArrayLike,
    advantages: ArrayLike,
    units: ArrayLike | None = None,
    preconditioner: Preconditioner = natural,
    groups: int = 40,
) -> PlateauPrediction:
    """The constant of the plateau law, from samples of one policy near its optimum.

    F is the mean of ∇log π ∇log πᵀ and Σ/n the covariance of the mean of A·∇log π,
    estimated from sums over units, so that correlation within a unit counts. A singular
    F is inverted on its range. The loss is the mean advantage per transition; for
    undiscounted returns multiply by the mean number of transitions of an episode.

    Args:
        scores: ∇log π of the sampled actions, shape [sample, parameter].
        advantages: A, shape [sample], unnormalised, in units of the loss.
        units: which samples belong together (trajectories, environments), shape
            [sample]; every sample alone if not given.
        preconditioner: see `plateau_constant`.
        groups: into how many the units are dealt for the jackknife; at most `units`.

    Returns:
        Constant, standard error and bias.

    Raises:
        ValueError: if shapes do not match, a value is not finite, there are no more
            samples than parameters, or fewer than two units or groups.
    """
    values, worth, owner = _checked_samples(scores, advantages, units)
    count, groups = (
        len(np.unique(owner)),
        int(whole_number("groups", one_number("groups", groups))),
    )
    for name, number in (("units", count), ("groups", groups)):
        if number < 2:
            msg = f"{name} is {number}; the noise between units needs at least 2."
            raise ValueError(msg)
    parts = _sums_of_groups(values, worth, owner, min(groups, count))
    whole = _added(parts)
    constant = plateau_constant(*_moments(whole), preconditioner)
    without = np.array(
        [
            plateau_constant(*_moments(_left_out(whole, p)), preconditioner)
            for p in parts
        ]
    )
    spread = len(parts) - 1
    return PlateauPrediction(
        constant=constant,
        standard_error=standard_error(without),
        bias=float(spread * (without.mean() - constant)),
        units=count,
    )


class _Sums(NamedTuple):
    """Sums over units u, of s_u samples and summed gradient G_u; they add up.

    Attributes:
        units: Σ1.
        samples: Σs.
        squares: Σs².
        fisher: Σ∇log π ∇log πᵀ, over samples.
        gradient: ΣG.
        weighted: ΣsG.
        outer: ΣGGᵀ.
    """

    units: Number
    samples: Number
    squares: Number
    fisher: Array
    gradient: Array
    weighted: Array
    outer: Array


def _sums_of_groups(
    scores: Array, advantages: Array, owner: NDArray, groups: int
) -> list[_Sums]:
    """The sums of each group; units are dealt to groups one by one."""
    _, unit, sizes = np.unique(owner, return_inverse=True, return_counts=True)
    gradients = np.zeros((len(sizes), scores.shape[1]))
    np.add.at(gradients, unit, scores * advantages[:, None])
    parts = []
    for group in range(groups):
        own = gradients[group::groups]
        s = sizes[group::groups].astype(np.float64)
        moved = scores[unit % groups == group]
        sums = (len(s), s.sum(), s @ s, moved.T @ moved, own.sum(0), s @ own)
        parts.append(_Sums(*sums, own.T @ own))
    return parts


def _added(parts: list[_Sums]) -> _Sums:
    return _Sums(*(sum(values) for values in zip(*parts, strict=True)))


def _left_out(whole: _Sums, part: _Sums) -> _Sums:
    return _Sums(*(all_ - own for all_, own in zip(whole, part, strict=True)))


def _moments(sums: _Sums) -> tuple[Array, Array]:
    """F, and Σ = n·Cov(mean gradient), a ratio estimate over units of any size."""
    n = sums.samples
    mean = sums.gradient / n
    cross = np.outer(mean, sums.weighted)
    rest = sums.outer - cross - cross.T + sums.squares * np.outer(mean, mean)
    unbiased = sums.units / max(sums.units - 1, 1)
    return sums.fisher / n, rest / n * unbiased


def _checked_samples(
    scores: ArrayLike, advantages: ArrayLike, units: ArrayLike | None
) -> tuple[Array, Array, NDArray]:
    values = floats("scores", scores)
    if values.ndim != 2 or not values.size:
        msg = f"scores has shape {values.shape}; it must be [sample, parameter]."
        raise ValueError(msg)
    check_finite("scores", values)
    number, parameters = values.shape
    worth = floats("advantages", advantages)
    owner = np.arange(number) if units is None else np.asarray(units)
    for name, array in (("advantages", worth), ("units", owner)):
        if array.shape != (number,):
            msg = f"{name} has shape {array.shape}; {number} scores need ({number},)."
            raise ValueError(msg)
    check_finite("advantages", worth)
    if number <= parameters:
        msg = f"scores holds {number} samples; {parameters} parameters need more."
        raise ValueError(msg)
    return values, worth, owner
