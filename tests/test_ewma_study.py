"""Slow tier: what the age of the anchor does on Reacher, beside plain PPO."""

import numpy as np
import pytest
from scipy import stats

from fullscale import storage
from fullscale.presets import preset
from fullscale.run import train

pytestmark = pytest.mark.slow

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
