"""Slow tier: a smaller outer step mends no plateau that it did not make."""

from pathlib import Path

import numpy as np
import pytest

from fullscale import storage
from fullscale.presets import preset
from fullscale.run import train
from theory import controls

pytestmark = pytest.mark.slow

UPDATES = 600
CHANGES = {
    "bandit-sparse": {"learning_rate": 0.02},
    "bandit-rank1": {"learning_rate": 0.02},
    "lqr-sparse": {},
    "lqr-rank1": {},
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_smaller_outer_step_does_not_mend_it(name: str, tmp_path: Path) -> None:
    """At σ = 1 and ¼ runs come within 2 % of what can be reached, and not beyond.

    So the gap to the optimum stays what capacity or exploration make it. 1 % was seen.
    """
    levels = controls.levels(name)
    missing = levels.optimum - levels.reachable
    scale = max(levels.reachable - levels.untrained, 1e-6 * missing)
    for sigma in (1.0, 0.25):
        config = preset(
            name,
            preset(name, 10**9).samples_per_update * UPDATES,
            outer_learning_rate=sigma,
            num_seeds=2,
            meter_interval=0,
            **CHANGES[name],
        )
        train(config, tmp_path / str(sigma))
        found = storage.read(tmp_path / str(sigma)).metrics["exact_return"]
        plateau = np.asarray(found)[UPDATES // 2 :].mean()
        assert abs(plateau - levels.reachable) <= 0.02 * scale, (sigma, plateau)
        assert np.max(found) <= levels.reachable + 1e-4 * scale
        assert levels.optimum - plateau >= 0.99 * missing
