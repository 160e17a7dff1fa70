"""Many updates of a linear loop as one: the law of the state, and of its KL.

The state z is (r, x − r, …), every variable relative to the reference: in these
coordinates a loop without a reference keeps an exact zero, and a slow loop differs from
the identity by little. Everything is built from the increment M − I, evaluated in
decimals and rounded once, because 1 − a forgets a small a: so a step of 10⁻⁹ decays at
its own rate for 10¹² updates.
"""

import dataclasses
import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from theory.outer.loop import Loop
from theory.outer.moments import LinearMap

DIGITS = 60


class Jump(NamedTuple):
    """k updates of z' = Mz + gξ with Gaussian ξ: z ← M^k z + N(0, S_k).

    Attributes:
        increment: M^k − I, shape [..., state, state].
        covariance: S_k = Σ_{i<k} M^i ggᵀ(M^i)ᵀ·E ξ², shape [..., state, state].
        kl_form: Q_k, shape [..., state, state].
        kl_offset: c_k, shape [..., 1, 1]. Given z before the jump, the KL summed over
            its updates, Σ ½(x'−x)², has the expectation zᵀQ_k z + c_k.
    """

    increment: np.ndarray
    covariance: np.ndarray
    kl_form: np.ndarray
    kl_offset: np.ndarray

    @property
    def power(self) -> np.ndarray:
        """M^k."""
        return np.eye(self.increment.shape[-1]) + self.increment

    def after(self, earlier: "Jump") -> "Jump":
        """The jump that makes `earlier` first and this one second (derived here).

            M^(j+k) − I = (M^j − I) + (M^k − I) + (M^k − I)(M^j − I)
            S_(j+k) = M^k S_j (M^k)ᵀ + S_k
            Q_(j+k) = Q_j + (M^j)ᵀ Q_k M^j
            c_(j+k) = c_j + c_k + tr(Q_k S_j)

        Sums of positive semidefinite matrices only, so no digits cancel.
        """
        before, then = earlier.power, self.power
        return Jump(
            earlier.increment + self.increment + self.increment @ earlier.increment,
            then @ earlier.covariance @ transposed(then) + self.covariance,
            earlier.kl_form + transposed(before) @ self.kl_form @ before,
            earlier.kl_offset
            + self.kl_offset
            + (self.kl_form * earlier.covariance).sum((-2, -1), keepdims=True),
        )

    def repeated(self, counts: np.ndarray) -> "Jump":
        """The jump made `counts` times, by repeated squaring.

        Args:
            counts: integers ≥ 0, shape [..., count] with the jump's [...].

        Returns:
            The jumps, of shapes [..., count, state, state].
        """
        square = Jump(*(np.expand_dims(part, -3) for part in self))
        shape = np.broadcast_shapes(square.kl_offset.shape[:-2], counts.shape)
        result = Jump(
            *(np.zeros(shape + part.shape[-2:], part.dtype) for part in square)
        )
        while True:
            odd = counts % 2 == 1
            result = _selected(odd, square.after(result), result)
            counts = counts // 2
            if not counts.any():
                return result
            square = square.after(square)


def one_update(loop: Loop, noise: np.ndarray) -> Jump:
    """The jump of one update.

    Args:
        loop: a linear loop, of numbers or arrays that broadcast to [*knob].
        noise: E ξ², the variance of the update's gradient, shape [*knob].

    Returns:
        The jump, of shapes [*knob, state, state].

    Raises:
        ValueError: if a number of the loop is a symbol.
    """
    with decimal.localcontext(prec=DIGITS):
        matrix, gain = _arrays(_in_decimals(loop).linear_map(), noise.shape)
        order = [1, 0, *range(2, gain.shape[-2])]
        matrix, gain = matrix[..., order, :][..., order], gain[..., order, :]
        identity = np.eye(len(order), dtype=int).astype(object)
        relative = identity.copy()
        relative[1:, 0] = -1
        increment = relative @ (matrix - identity) @ (2 * identity - relative)
        load, moved = relative @ gain, increment[..., :1, :] + increment[..., 1:2, :]
        increment, load, moved, gain = (
            part.astype(np.float64)
            for part in (increment, load, moved, gain[..., 1, :])
        )
    variance = noise[..., None, None]
    return Jump(
        increment,
        variance * load * transposed(load),
        transposed(moved) * moved / 2,
        variance * gain[..., None] ** 2 / 2,
    )


def _in_decimals(loop: Loop) -> Loop:
    """The loop with arrays of exact decimals for its floats and fractions."""

    def exact(value: Any) -> Any:
        if isinstance(value, Loop):
            return _in_decimals(value)
        cells = np.asarray(value)
        if cells.dtype == object and not isinstance(cells.flat[0], Fraction):
            msg = f"{loop} holds {value}; a simulation needs numbers."
            raise ValueError(msg)
        if np.issubdtype(cells.dtype, np.integer):
            return value
        ratios = (cell.as_integer_ratio() for cell in cells.flat)
        numbers = [Decimal(over) / under for over, under in ratios]
        return np.array(numbers, dtype=object).reshape(cells.shape)

    values = {f.name: exact(getattr(loop, f.name)) for f in dataclasses.fields(loop)}
    return dataclasses.replace(loop, **values)


def _arrays(update: LinearMap, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """M of shape [*knob, state, state] and g of shape [*knob, state, 1]."""

    def stacked(row: tuple[Any, ...]) -> np.ndarray:
        cells = [np.broadcast_to(np.asarray(v, dtype=object), shape) for v in row]
        return np.stack(cells, axis=-1)

    rows = [stacked(row) for row in update.matrix]
    return np.stack(rows, axis=-2), stacked(update.gain)[..., None]


def transposed(matrix: np.ndarray) -> np.ndarray:
    """Matrices [..., row, column] with rows and columns exchanged."""
    return np.swapaxes(matrix, -1, -2)


def _selected(condition: np.ndarray, one: Jump, two: Jump) -> Jump:
    cells = condition[..., None, None]
    return Jump(*(np.where(cells, x, y) for x, y in zip(one, two, strict=True)))
