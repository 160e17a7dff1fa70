"""Numbers of any exact kind: how they are checked, mixed and masked.

The closed forms of this package are plain arithmetic, so that `fractions.Fraction`
and sympy expressions pass through them exactly and numpy arrays broadcast. This file
holds the few places where the kinds differ.
"""

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

# int, float, Fraction, a sympy expression or a numpy array. No narrower type fits:
# sympy is not a dependency, and a union of these has no arithmetic of its own.
Number: TypeAlias = Any


def align(*values: Number) -> tuple[Number, ...]:
    """Bring numbers to one kind, so that their arithmetic loses nothing.

    Arrays make everything a float array or float; a float makes every number a float;
    a sympy expression makes every exact number a sympy one; integers otherwise become
    `Fraction`, so that a quotient of integers stays exact.

    Args:
        values: numbers of any mixture of kinds; lists count as arrays.

    Returns:
        The same numbers in the same order, of compatible kinds.
    """
    numbers = [_number("a number", value) for value in values]
    if any(isinstance(number, np.ndarray) for number in numbers):
        return tuple(floats("a number", number) for number in numbers)
    whole: Callable[[Any], Any] = Fraction
    if any(isinstance(number, float) for number in numbers):
        whole = _float
    elif is_symbolic(*numbers):
        whole = sys.modules["sympy"].sympify  # Fraction**symbol would be a float
    return tuple(whole(v) if isinstance(v, int | Fraction) else v for v in numbers)


def is_symbolic(*values: Number) -> bool:
    """Whether any of the numbers is a sympy expression."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and any(isinstance(v, sympy.Basic) for v in values)


def logarithm(value: Number) -> Number:
    """Natural logarithm of a positive float, array or sympy expression."""
    if is_symbolic(value):
        return sys.modules["sympy"].log(value)
    return np.log(np.asarray(value, dtype=np.float64))[()]


def decided(condition: Any) -> bool | None:
    """The truth of a condition (in every cell); None while a symbol leaves it open."""
    if isinstance(condition, np.ndarray):
        return bool(condition.all())
    try:
        return bool(condition)
    except TypeError:
        return None


def where(condition: Any, value: Callable[[], Number], otherwise: Number) -> Number:
    """The value where a condition holds or is undecided, else the alternative.

    Args:
        condition: a truth value, a sympy relation or an array of truth values.
        value: computes the value; not called for a scalar condition that is false.
        otherwise: the alternative, per cell for arrays.

    Returns:
        A number, or an array of the broadcast shape.
    """
    if isinstance(condition, np.ndarray):
        with np.errstate(all="ignore"):
            return np.where(condition, value(), otherwise)
    return otherwise if decided(condition) is False else value()


def check_finite(name: str, value: Number) -> None:
    """Refuse a number that is not finite, by name.

    Raises:
        ValueError: if any cell is infinite or not a number.
    """
    _refuse(name, value, lambda v: v == v, "a finite number")


def check_positive(name: str, value: Number) -> None:
    """Refuse a number that is not finite and above zero, by name.

    Raises:
        ValueError: if any cell is infinite, not a number, zero or negative.
    """
    _refuse(name, value, lambda v: v > 0, "finite and above 0")


def check_nonnegative(name: str, value: Number) -> None:
    """Refuse a number that is not finite or is below zero, by name.

    Raises:
        ValueError: if any cell is infinite, not a number or negative.
    """
    _refuse(name, value, lambda v: v >= 0, "finite and not below 0")


def whole_number(name: str, value: Number) -> Any:
    """Return a count as int (or integer array), refusing what is not a count.

    Args:
        name: what to call the number in the error.
        value: an integer, or a float, fraction or array of integral value.

    Returns:
        An int, or an int64 array.

    Raises:
        ValueError: if any cell is negative or not a whole number.
    """
    value = _number(name, value)
    if isinstance(value, np.ndarray):
        right = "whole, at least 0 and below 2⁶³"
        _refuse(name, value, _counts, right)
        return value.astype(np.int64)
    counted = decided(value >= 0) and decided(value < math.inf) and value == int(value)
    if not counted:
        msg = f"{name} is {value}; it must be a whole number that is not below 0."
        raise ValueError(msg)
    return int(value)


def floats(name: str, value: Number) -> np.ndarray:
    """A number, an array or a list of numbers as a float array.

    Args:
        name: what to call it in the error.
        value: numbers that are not symbols.

    Returns:
        Of the shape that the value has.

    Raises:
        ValueError: if it holds anything else, or is a list of lists of unlike length.
    """
    try:
        array = np.asarray(value)
        missing = array.dtype.kind == "O" and any(v is None for v in array.flat)
        if array.dtype.kind not in "biufO" or missing:  # numpy makes None a nan
            raise TypeError
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        shown = value if isinstance(value, str) else type(value).__name__
        msg = f"{name} is {shown!r}; it must be a number or an array of numbers."
        raise ValueError(msg) from None


def one_number(name: str, value: Number) -> float:
    """A number that may not be an array, as a float.

    Args:
        name: what to call it in the error.
        value: a number that is not a symbol.

    Returns:
        The number; finite or not.

    Raises:
        ValueError: if it is anything else.
    """
    array = floats(name, value)
    if array.ndim:
        msg = f"{name} has shape {array.shape}; it must be a single number."
        raise ValueError(msg)
    return float(array)


def _number(name: str, value: Number) -> Number:
    """A plain scalar or expression as it is; anything else as a float array."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float | Fraction) or is_symbolic(value):
        return value
    return floats(name, value)


def _counts(value: np.ndarray) -> Any:
    return (value >= 0) & (value < 2**63) & (value == np.floor(value))


def _float(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        msg = "a number is beyond 1.8e308; no number may be where others are floats."
        raise ValueError(msg) from None


def _refuse(
    name: str, value: Number, valid: Callable[[Number], Any], right: str
) -> None:
    value = _number(name, value)
    if isinstance(value, np.ndarray):
        if not value.size:
            raise ValueError(f"{name} is empty; it must hold at least one number.")
        bad = value[~(np.isfinite(value) & valid(value))]
        if bad.size:
            msg = f"{name} holds {bad[0]}; every cell must be {right}."
            raise ValueError(msg)
        return
    if decided(abs(value) < math.inf) is False or decided(valid(value)) is False:
        msg = f"{name} is {value}; it must be {right}."
        raise ValueError(msg)
