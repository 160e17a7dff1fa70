"""`theory.arithmetic`: kinds of numbers kept apart, checks that name the value."""

import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import positive_floats, positive_fractions
from theory import arithmetic


@given(positive_fractions(), st.integers(-9, 9))
def test_align_keeps_exact_numbers_exact(fraction: F, integer: int) -> None:
    assert arithmetic.align(fraction, integer) == (fraction, integer)
    assert all(isinstance(v, F) for v in arithmetic.align(fraction, integer))


@given(positive_fractions(), positive_floats())
def test_align_follows_the_least_exact(fraction: F, real: float) -> None:
    assert arithmetic.align(fraction, real) == (float(fraction), real)
    one, two = arithmetic.align(fraction, np.array([real, 1.0]))
    assert one.dtype == two.dtype == np.float64
    assert float(one) == float(fraction)


def test_align_knows_numpy_scalars_and_symbols() -> None:
    x = sympy.Symbol("x")
    assert arithmetic.align(np.int64(3), 2) == (F(3), F(2))
    assert isinstance(arithmetic.align(np.int64(3), 2)[0], F)
    assert arithmetic.align(np.float32(0.5), 2) == (0.5, 2.0)
    assert arithmetic.align(x, 2, F(1, 3)) == (x, 2, sympy.Rational(1, 3))
    assert isinstance(arithmetic.align(x, F(1, 3))[1], sympy.Rational)
    with pytest.raises(ValueError, match="'Symbol'; it must be a number"):
        arithmetic.align(x, np.array([1.0]))
    assert arithmetic.align([1, 2], 3)[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match="a number is 'many'"):
        arithmetic.align("many")


def test_is_symbolic() -> None:
    assert arithmetic.is_symbolic(1, sympy.Symbol("x"))
    assert not arithmetic.is_symbolic(1, 2.0, F(1), np.ones(2), np.float64(1), [1])


@given(positive_floats())
def test_logarithm(value: float) -> None:
    assert arithmetic.logarithm(value) == pytest.approx(math.log(value), abs=1e-12)
    assert arithmetic.logarithm(sympy.Symbol("x")) == sympy.log(sympy.Symbol("x"))


def test_decided() -> None:
    x = sympy.Symbol("x")
    assert arithmetic.decided(sympy.Integer(2) > 1) is True
    assert arithmetic.decided(np.array([True, False])) is False
    assert arithmetic.decided(x > 1) is None


def test_where_does_not_evaluate_what_it_refuses() -> None:
    assert arithmetic.where(False, lambda: 1 / 0, 7) == 7  # noqa: FBT003
    assert arithmetic.where(sympy.Symbol("x") > 1, lambda: 1, 7) == 1
    cells = arithmetic.where(np.array([True, False]), lambda: np.array([1.0, 2.0]), 7)
    assert cells.tolist() == [1, 7]


@pytest.mark.parametrize("value", [3, 3.0, F(3), np.int64(3), sympy.Integer(3), 1e9])
def test_whole_number_takes_counts_of_any_kind(value: object) -> None:
    assert arithmetic.whole_number("count", value) == value
    assert isinstance(arithmetic.whole_number("count", value), int)


@pytest.mark.parametrize("value", [-1, 0.5, math.inf, math.nan, F(1, 2)])
def test_whole_number_refuses(value: object) -> None:
    with pytest.raises(ValueError, match=r"count is .*; it must be a whole number"):
        arithmetic.whole_number("count", value)
    with pytest.raises(ValueError, match="count holds"):
        arithmetic.whole_number("count", np.array([1.0, float(value)]))  # type: ignore[arg-type]


def test_checks_let_valid_and_open_numbers_pass() -> None:
    x = sympy.Symbol("x")
    for value in (1, 1.5, F(1), x, np.ones(2), [1, 2], sympy.Integer(2)):
        arithmetic.check_finite("number", value)
        arithmetic.check_positive("number", value)
        arithmetic.check_nonnegative("number", value)
    arithmetic.check_nonnegative("number", 0)
    arithmetic.check_finite("number", -1)


@pytest.mark.parametrize("bad", [math.inf, math.nan, sympy.oo, np.array([1, np.nan])])
def test_checks_refuse_what_is_not_finite(bad: object) -> None:
    for check in (
        arithmetic.check_finite,
        arithmetic.check_positive,
        arithmetic.check_nonnegative,
    ):
        with pytest.raises(
            ValueError, match=r"number (is|holds) (inf|nan|oo); .*finite"
        ):
            check("number", bad)


@pytest.mark.parametrize("bad", [-1, -0.5, F(-1, 2), sympy.Integer(-1), -np.ones(2)])
def test_checks_refuse_the_wrong_sign(bad: object) -> None:
    with pytest.raises(ValueError, match="not below 0"):
        arithmetic.check_nonnegative("number", bad)
    with pytest.raises(ValueError, match="above 0"):
        arithmetic.check_positive("number", bad)
    with pytest.raises(ValueError, match="number is 0; it must be finite and above 0"):
        arithmetic.check_positive("number", 0)


@pytest.mark.parametrize("value", [2, 2.0, F(2), np.int64(2), np.array(2)])
def test_one_number(value: Any) -> None:
    assert arithmetic.one_number("it", value) == 2.0
    assert isinstance(arithmetic.one_number("it", value), float)


@pytest.mark.parametrize("value", [[2.0], np.ones(1), [], "2", None, 2j, 10**400])
def test_one_number_refuses(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        arithmetic.one_number("it", value)
