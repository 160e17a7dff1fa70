"""The plateau constant of real PPO on `theory.lqr`, from samples of the optimum alone.

Training runs of an earlier prototype (clipped PPO, Adam with momentum .9, 6–8 seeds,
one run per cell, standard errors 2–6 %) gave gap·√DDR = 22.5, 24.4 and 22.5 with 4
gradient steps per update, 12.8 with 16 and 12.8, 12.2 and 12.0 with 64.
"""

import numpy as np
import pytest

from theory import lqr
from theory.carried_momentum import carried_momentum_factor
from theory.exact_loops import Rollouts, predicted_constant
from theory.plateau_constant import adaptive, natural

MOMENTUM, SAMPLES = 0.9, 128_000


def test_constant_of_real_ppo_is_predicted() -> None:
    """Within 15 % for 4 and 64 gradient steps; for 16 it is missed by more.

    There the model lies between what carried momentum gives and what no momentum
    would, and 12.8 was seen between the two. Why is not known.
    """
    task = Rollouts(lqr.standard())
    found, largest = (
        predicted_constant(task, SAMPLES, np.random.default_rng(0), preconditioner)
        for preconditioner in (adaptive, natural)
    )
    assert found.standard_error < 0.04 * found.constant
    factors = carried_momentum_factor(MOMENTUM, np.array([4, 16, 64]))
    predicted = found.constant * factors
    for seen in (22.5, 24.4, 22.5):
        assert predicted[0] == pytest.approx(seen, rel=0.15)
    for seen in (12.8, 12.2, 12.0):
        assert predicted[2] == pytest.approx(seen, rel=0.15)
    assert found.constant < 12.8 < predicted[1]
    assert largest.constant > found.constant
