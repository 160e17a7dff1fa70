"""The jackknife and the mean over units: by hand, against the textbook, their edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from theory.jackknife import standard_error
from theory.unit_mean import unit_mean

samples = hnp.arrays(float, st.integers(2, 20), elements=st.floats(-1e3, 1e3))


@given(samples)
def test_of_a_mean_it_is_the_textbook_error(values: np.ndarray) -> None:
    left_out = (values.sum() - values) / (len(values) - 1)
    textbook = unit_mean(values).standard_error
    assert standard_error(left_out) == pytest.approx(textbook, abs=1e-9)
    about = standard_error(left_out, centre=float(values.mean()))
    assert about == pytest.approx(textbook, abs=1e-9)


def test_about_another_centre_it_is_larger() -> None:
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert standard_error(np.array([1.0, 3.0]), centre=3.0) == pytest.approx(2**0.5)


@pytest.mark.parametrize("left_out", [[1.0], [1.0, math.inf], [1.0, math.nan]])
def test_no_error_can_be_told(left_out: list[float]) -> None:
    assert standard_error(np.array(left_out)) == math.inf


@given(samples.filter(lambda x: np.ptp(x) > 1e-3), st.floats(0.5, 0.99))
def test_interval_and_tails_are_those_of_a_t_test(
    values: np.ndarray, level: float
) -> None:
    found = unit_mean(values)
    test = stats.ttest_1samp(values, 1.5, alternative="greater")
    assert found.p_above(1.5) == pytest.approx(test.pvalue, abs=1e-12)
    assert found.p_above(1.5) + found.p_below(1.5) == pytest.approx(1)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(level)
    assert found.interval(level) == pytest.approx((expected.low, expected.high))


def test_one_unit_says_nothing() -> None:
    found = unit_mean(np.array([2.0]))
    assert (found.value, found.standard_error) == (2.0, math.inf)
    assert found.interval(0.9) == (-math.inf, math.inf)
    assert found.p_above(-1e9) == found.p_below(1e9) == 1.0
