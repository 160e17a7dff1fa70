"""`theory.critical_batch`: the best step by search, by averaging, in fractions."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import positive_fractions, positive_matrices
from theory.critical_batch import BestStep, best_step, samples_needed

GRADIENT = np.array([1.0, -2.0, 0.5])
METRICS = positive_matrices(3)


@given(METRICS, METRICS, st.integers(1, 10**6), st.floats(0.5, 2))
def test_best_step_is_the_minimum(
    curvature: np.ndarray, noise: np.ndarray, n: int, other: float
) -> None:
    def change(step: float) -> float:
        """Mean over ĝ = g ± each scaled axis of Σ: the second moment is exact."""
        axes = np.linalg.cholesky(noise).T * np.sqrt(3 / n)
        ends = [GRADIENT + sign * axis for axis in axes for sign in (1, -1)]
        losses = [
            -step * GRADIENT @ end + step**2 * end @ curvature @ end / 2 for end in ends
        ]
        return float(np.mean(losses))

    best = best_step(GRADIENT, curvature, noise)
    assert best.gain(n) == pytest.approx(-change(best.step(n)))
    assert change(other * best.step(n)) >= change(best.step(n)) - 1e-12
    assert best.gain(n) <= best.gain(2 * n) <= best.largest_gain
    assert best.gain(best.noise_scale) == pytest.approx(best.largest_gain / 2)


def test_noise_scale_is_simple_for_isotropic_curvature() -> None:
    best = best_step(GRADIENT, 3 * np.eye(3), np.diag([1.0, 2.0, 3.0]))
    assert best.noise_scale == pytest.approx(6 / (GRADIENT @ GRADIENT))
    assert best.largest_step == pytest.approx(1 / 3)


@given(positive_fractions(), positive_fractions(), positive_fractions())
def test_trade_of_updates_for_samples(extra: F, least: F, samples: F) -> None:
    """(S/S_min − 1)(E/E_min − 1) = 1, from S updates of n = E/S at the best step."""
    needed = samples_needed(least + extra, least, samples)
    assert (extra / least) * (needed / samples - 1) == 1
    # The same gain per update in all: S·n/(n + B) is what S_min of infinite n are.
    best = BestStep(F(1), F(1), samples / least)
    updates = least + extra
    assert updates * best.gain(needed / updates) == least


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: best_step([np.nan], [[1.0]], [[1.0]]), "gradient"),
        (lambda: best_step([1.0], [[-1.0]], [[1.0]]), "curvature"),
        (lambda: best_step([1.0], [[0.0]], [[1.0]]), "curve along"),
        (lambda: best_step([1.0], [[1.0]], np.eye(2)), "noise_covariance"),
        (lambda: BestStep(1, 1, 1).gain(0), "samples_per_update"),
        (lambda: samples_needed(1, 1, 1), "updates"),
        (lambda: samples_needed(-1, 1, 1), "updates"),
        (lambda: samples_needed(2, 0, 1), "least_updates"),
        (lambda: samples_needed(2, 1, float("inf")), "least_samples"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
