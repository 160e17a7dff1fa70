"""The design in which intervals are judged: few configurations, noisy endogenous DDR.

Four budgets over two decades, six step sizes, three seeds, 8 % scatter of runs and of
configurations (theory.md 4.1); the truth is a joint law with p_DDR = 8/9.
"""

import numpy as np

from theory import laws
from theory.simulate_table import Design, Noise, Truth, from_law
from theory.table import RunTable

SOURCE, NOISE = 0.8, 12.0
EXPONENT = 2 * SOURCE / (1 + SOURCE)
DESIGN = Design(
    num_envs=(64,),
    outer_learning_rate=tuple(np.geomspace(1 / 32, 1, 6)),
    budgets=(262_144, 1_216_786, 5_647_870, 26_214_400),
    seeds=3,
)
SCATTER = Noise(config=0.08, seed=0.08, ddr_config=0.1, ddr_seed=0.1, shared=-0.7)
TRUTH = Truth(
    law=laws.JointLaw(floor=0.0, bias=0.294, noise=NOISE, source=SOURCE),
    slopes={"outer_learning_rate": -2.0},
    transient=1e5,
    transient_slopes={},
)


def simulate(seed: int) -> RunTable:
    """One table; its optimum is a score of 0."""
    return from_law(TRUTH, DESIGN, SCATTER, np.random.default_rng(seed))
