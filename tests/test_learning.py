"""Slow tier: what the trainer must learn, and the law that its plateaus must obey."""

import itertools
from pathlib import Path

import numpy as np
import pytest

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


def test_bandit_reaches_its_optimum(tmp_path: Path) -> None:
    train(preset("bandit", 1_000_000, num_seeds=4), tmp_path / "run")
    record = storage.read(tmp_path / "run")
    _, best = bandit.standard().optimum()
    untrained = float(bandit.standard().value(np.zeros(10)))
    assert record.evaluation["score"].min() >= untrained + 0.99 * (best - untrained)
