"""The meters of whole updates against theory: split halves, noise scale, outer KL.

Statistical claims are "within 4 standard errors", at a false-failure rate of 6.4e-5
each; over the grid, the bias seen is below 5 % besides. What happens where the
conditions do not hold is measured by `tests.benchmarks.meter_bias` and published in
docs/meters.md.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from fullscale import instruments
from fullscale.config import RunConfig
from fullscale.state import Batch
from tests.support.meter_readings import GRID, SIGMAS, Measured, measured, small
from tests.support.statistical import assert_mean
from theory import bandit

FOUR = 6.4e-5  # two-sided rate of 4 standard errors


def assert_one(ratios: np.ndarray, effect: float) -> None:
    """Within 4 standard errors of 1; `effect` must have been seen."""
    assert_mean(ratios, 1.0, effect=effect, false_failure_rate=FOUR)


# Readings against theory: an inner loop of SGD, one θ_k, thousands of updates.


class Cell(NamedTuple):
    """What the default tier measures; gradients on `lqr` have heavy tails."""

    config: RunConfig
    rounds: int
    effect: float

    def measured(self, sigma: float = 0.5) -> Measured:
        return measured(self.config, sigma, self.rounds)


BANDIT = Cell(small("bandit", 128), 3, 0.08)
LQR = Cell(small("lqr", 32, 8), 6, 0.25)
CASES = pytest.mark.parametrize("cell", [BANDIT, LQR], ids=["bandit", "lqr"])


@CASES
def test_split_halves_read_what_theory_says(cell: Cell) -> None:
    found = cell.measured()
    assert_one(found.noise, cell.effect)
    assert_one(found.signal, cell.effect)


@CASES
def test_a_wrong_factor_is_noticed(cell: Cell) -> None:
    """Negative control: ½·KL(1‖2), and parts that are off by the effect to be seen."""
    found, off = cell.measured(), cell.effect
    for wrong in (0.5 + 0.5 * found.noise + off, found.noise - off, found.signal + off):
        with pytest.raises(AssertionError, match="mean deviates"):
            assert_one(wrong, cell.effect)
    with pytest.raises(AssertionError):
        assert_one(2.0 * found.noise, 2.0 * cell.effect)


@CASES
def test_noise_and_signal_add_up_to_the_outer_kl(cell: Cell) -> None:
    """On average; nearly so at each update, where minibatches hardly matter."""
    metrics = cell.measured().draws.metrics
    parts = metrics["outer_noise_kl"] + metrics["outer_signal_kl"]
    np.testing.assert_allclose(parts, metrics["outer_kl"], rtol=0.05)
    np.testing.assert_allclose(parts.mean(), metrics["outer_kl"].mean(), rtol=2e-3)


@CASES
def test_noise_scale_reads_what_theory_says(cell: Cell) -> None:
    found = cell.measured()
    assert_one(found.trace, cell.effect)
    assert_one(found.square, cell.effect)
    metrics = found.draws.metrics
    ratio = metrics["noise_trace"] / metrics["gradient_square"]
    np.testing.assert_allclose(metrics["noise_scale"], ratio, rtol=1e-5)


def test_outer_kl_is_exact() -> None:
    """Of every update of the bandit, down to 1e-8 nats, against double precision."""
    found = BANDIT.measured()
    before = np.asarray(found.before["Dense_0"]["kernel"], np.float64)[0]
    after = found.draws.policy["Dense_0"]["kernel"][:, 0].astype(np.float64)
    exact = bandit.kl(before, after)
    metrics = found.draws.metrics
    np.testing.assert_allclose(metrics["outer_kl"], exact, rtol=0.02)
    np.testing.assert_allclose(metrics["outer_kl"].mean(), exact.mean(), rtol=1e-4)
    assert (metrics["kl_to_update_1"] == 0.0).all()  # it is the policy of update 1
    assert np.isnan(metrics["kl_to_update_10"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["bandit", "lqr"])
def test_split_halves_over_a_grid(environment: str) -> None:
    """N × σ: noise goes as σ²/N, signal as σ², and the bias over all is below 5 %."""
    cells = [
        measured(config, sigma, rounds, envs)
        for config, rounds, envs in GRID[environment]
        for sigma in SIGMAS
    ]
    for part in ("noise", "signal"):
        found = [getattr(cell, part) for cell in cells]
        for ratios in found:
            assert_one(ratios, 0.45)
        together = np.mean(found, axis=0)
        assert_one(together, 0.125)
        assert abs(together.mean() - 1.0) < 0.05


@pytest.mark.slow
def test_halves_that_share_environments_read_too_little_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: every fourth row of the second half is one of the first's."""
    plain = instruments.split

    def sharing(config: RunConfig, batch: Batch, blocks: int) -> Batch:
        def mix(x: Any) -> Any:
            return x.at[1, ::4].set(x[0, ::4])

        return jax.tree.map(mix, plain(config, batch, blocks))

    monkeypatch.setattr(instruments, "split", sharing)
    config = small("bandit", 64)
    found = measured(config, 1.0, 3)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_one(found.noise, 0.1)
    assert_mean(found.noise, 0.75, effect=0.1, false_failure_rate=FOUR)
