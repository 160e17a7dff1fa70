"""The statistical assertions themselves: false failures, power, refusals."""

import numpy as np
import pytest
from scipy import stats

from tests.support import statistical


def failures(shift: float, rate: float, runs: int) -> int:
    """How many of some runs `assert_mean` fails on normal samples off by a shift."""
    generator = np.random.default_rng(19)
    failed = 0
    for _ in range(runs):
        samples = generator.normal(shift, 1, size=200)
        try:
            statistical.assert_mean(samples, 0, effect=10, false_failure_rate=rate)
        except AssertionError:
            failed += 1
    return failed


@pytest.fixture(autouse=True)
def _forget_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistical, "DECLARED", [])


def test_false_failures_come_at_the_declared_rate() -> None:
    failed = failures(shift=0, rate=0.1, runs=2000)
    statistical.assert_proportion(failed, 2000, 0.1, effect=0.07)
    with pytest.raises(AssertionError, match="succeeded"):  # negative control
        statistical.assert_proportion(failed, 2000, 0.2, effect=0.09)


def test_the_detectable_effect_is_detected() -> None:
    samples = np.random.default_rng(23).normal(size=200)
    effect = statistical.smallest_detectable_effect(samples, false_failure_rate=0.01)
    assert effect == pytest.approx(2 * stats.t.isf(0.005, 199) / 200**0.5, rel=0.2)
    assert failures(shift=float(effect) * 1.1, rate=0.01, runs=300) >= 290


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(AssertionError, match="too few samples"):
        statistical.assert_mean(np.arange(5.0), 2, effect=0.01)
    with pytest.raises(AssertionError, match="too few samples"):
        statistical.assert_proportion(5, 10, 0.5, effect=0.1)


def test_components_share_the_rate() -> None:
    values = np.random.default_rng(29).normal(size=(500, 3, 4))
    alone = statistical.smallest_detectable_effect(values[:, :1, :1])
    shared = statistical.smallest_detectable_effect(values)
    assert shared.shape == (3, 4)
    assert shared[0, 0] > 1.05 * alone[0, 0]
    statistical.assert_mean(values, np.zeros((3, 4)), effect=0.6)
    with pytest.raises(AssertionError, match="mean deviates by 1"):
        statistical.assert_mean(values, np.eye(3, 4), effect=0.6)


def test_declared_rates_add_up() -> None:
    values = np.random.default_rng(31).normal(size=500)
    statistical.assert_mean(values, 0, effect=1)
    detectable = statistical.assert_mean(values, 0, effect=1, false_failure_rate=1e-3)
    assert statistical.total_declared_rate() == pytest.approx(1e-6 + 1e-3)
    assert statistical.DECLARED[1].smallest_detectable_effect == detectable


def test_batch_means() -> None:
    series = np.arange(14.0).reshape(7, 2)
    assert statistical.batch_means(series, 3).tolist() == [[3, 4], [7, 8], [11, 12]]
    with pytest.raises(ValueError, match="batches is 8"):
        statistical.batch_means(series, 8)
