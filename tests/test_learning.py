"""Slow tier: what the trainer must learn, and the law that its plateaus must obey."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fullscale import storage
from fullscale.presets import preset
from fullscale.run import train
from fullscale.storage import RunRecord
from theory import bandit, lqr

pytestmark = pytest.mark.slow

SEEDS, UPDATES = 6, 1200
CELLS = list(itertools.product((64, 256), (1.0, 0.5, 0.25)))


@pytest.fixture(scope="module")
def plateaus(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple, RunRecord]:
    """PPO on `lqr` over N × σ, 1,200 updates each."""
    records = {}
    for envs, sigma in CELLS:
        config = preset(
            "lqr",
            envs * 32 * UPDATES,
            num_envs=envs,
            outer_learning_rate=sigma,
            num_seeds=SEEDS,
        )
        folder = tmp_path_factory.mktemp("lqr") / "run"
        train(config, folder)
        records[envs, sigma] = storage.read(folder)
    return records


def gap_and_ddr(record: RunRecord) -> tuple[float, float]:
    """Plateau gap and DDR over the second half of the updates, means over seeds."""
    half = record.updates // 2
    _, best = lqr.standard().optimum()
    gap = best - record.metrics["exact_return"][half:].mean()
    kl = record.metrics["outer_kl"][half:].mean()
    return float(gap), float(record.config.samples_per_update / kl)


def test_lqr_reaches_99_percent_of_the_way(plateaus: dict[tuple, RunRecord]) -> None:
    system = lqr.standard()
    start, (_, best) = system.value(np.zeros((2, 4))), system.optimum()
    for record in plateaus.values():
        share = (record.evaluation["score"] - start) / (best - start)
        assert share.min() >= 0.99


def test_gap_times_root_ddr_is_constant_while_the_gap_is_not(
    plateaus: dict[tuple, RunRecord],
) -> None:
    """±20 % over σ × N, with standard errors of 2–6 % a cell; the gap moves sixfold."""
    gaps, ddrs = np.array([gap_and_ddr(record) for record in plateaus.values()]).T
    constant = gaps * np.sqrt(ddrs)
    middle = (constant.max() + constant.min()) / 2
    assert constant.max() <= 1.2 * middle, dict(zip(CELLS, constant, strict=True))
    assert constant.min() >= 0.8 * middle, dict(zip(CELLS, constant, strict=True))
    assert gaps.max() >= 6 * gaps.min()


COMS = ("reset", 2, 1024)


@pytest.fixture(scope="module")
def reachers(tmp_path_factory: pytest.TempPathFactory) -> dict[object, np.ndarray]:
    """Reacher, 128 environments, 4M transitions: returns of the last fifth [seed]."""
    returns: dict[object, np.ndarray] = {}
    for com in COMS:
        config = preset("reacher", 4_000_000, num_seeds=8, com=com, meter_interval=0)
        folder = tmp_path_factory.mktemp("reacher") / "run"
        train(config, folder)
        record = storage.read(folder)
        last = record.metrics["episode_return"][-record.updates // 5 :]
        returns[com] = np.nanmean(last, axis=0)
    return returns


def test_reacher_learns(reachers: dict[object, np.ndarray]) -> None:
    """45.2 was seen with 2 seeds and a seed sd of 4; the mean of 8 has an s.e. of 1.4.

    With the reference's own error, 2.8, nine points are 2.9 standard errors: this
    fails falsely in 4 of 1,000 sets of 8 seeds, and sees a loss of 18 surely.
    """
    assert abs(reachers["reset"].mean() - 45.2) <= 9


def test_an_old_anchor_beats_a_young_one(reachers: dict[object, np.ndarray]) -> None:
    """PPO-EWMA: centre of mass 1024 gradient steps against 2, seeds paired by none."""
    old, young = reachers[1024], reachers[2]
    assert stats.ttest_ind(old, young, alternative="greater").pvalue < 1e-3


def test_bandit_reaches_its_optimum(tmp_path: Path) -> None:
    train(preset("bandit", 1_000_000, num_seeds=4), tmp_path / "run")
    record = storage.read(tmp_path / "run")
    _, best = bandit.standard().optimum()
    untrained = float(bandit.standard().value(np.zeros(10)))
    assert record.evaluation["score"].min() >= untrained + 0.99 * (best - untrained)
