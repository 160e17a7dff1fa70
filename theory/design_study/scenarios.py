"""Truths of the design study, and the runs that are made of each.

Four budgets over two decades, six step sizes over a factor of 32, three seeds, 8 %
scatter of cells and of seeds at a plateau, 10 % scatter of DDR per configuration and
per seed, the latter correlated by −0.7 with the seed's score: measured DDR is noisy
and endogenous. Held out: the same step sizes at 4 and 16 times the largest budget, one
fresh run each.

- `JOINT`: the law that is fitted holds exactly, p_DDR = 8/9.
- `QUADRATIC`: exact noisy descent on a power-law spectrum, of which the joint law with
  p_DDR = 1 is the limit of small steps and large budgets.
- `CONSTANT`: gap = B^(−0.4)·f(D): all budgets share one curve and one best DDR, which
  no law with a moving optimum can reproduce.
- `FLAT`: gap = f(D) at every budget, which the free law contains and the joint one
  does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from theory import laws
from theory.simulate_table import (
    Design,
    Noise,
    Truth,
    from_law,
    from_quadratic,
    power_law,
)
from theory.table import RunTable

TRAINING = Design(
    num_envs=(64,),
    outer_learning_rate=tuple(np.geomspace(1 / 32, 1, 6)),
    budgets=(262_144, 1_216_786, 5_647_870, 26_214_400),
    seeds=3,
)
FACTORS = (4, 16)
HELD_OUT = replace(
    TRAINING, budgets=tuple(TRAINING.budgets[-1] * k for k in FACTORS), seeds=1
)
SCATTER = Noise(config=0.08, seed=0.08, ddr_config=0.1, ddr_seed=0.1, shared=-0.7)
QUIET = Noise(config=0.0, seed=0.0, ddr_config=0.0, ddr_seed=0.0)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A truth.

    Attributes:
        name: of the scenario.
        runs: design, scatter and generator → table, whose optimum is a score of 0.
        exponent: p_DDR, growth of the best DDR with the budget; None if the joint law
            has no such parameter there.
        noise: C of a plateau C·D^(−½), in score units; None likewise.
    """

    name: str
    runs: Callable[[Design, Noise, np.random.Generator], RunTable]
    exponent: float | None
    noise: float | None

    def gap(
        self, budget: int, rates: Float[np.ndarray, "cell"]
    ) -> Float[np.ndarray, "cell"]:
        """The true gap at outer learning rates, all else as in training.

        Args:
            budget: transitions.
            rates: outer learning rates, increasing.
        """
        design = replace(
            TRAINING,
            outer_learning_rate=tuple(rates.tolist()),
            budgets=(budget,),
            seeds=1,
        )
        return -self.runs(design, QUIET, np.random.default_rng(0))["score"]


def _from_law(law: laws.JointLaw | laws.FreeLaw) -> Truth:
    """D∞ = 1.3e6·σ⁻², with a transient of 10⁵ transitions."""
    return Truth(
        law=law,
        slopes={"outer_learning_rate": -2.0},
        transient=1e5,
        transient_slopes={},
    )


def _joint(design: Design, noise: Noise, rng: np.random.Generator) -> RunTable:
    return from_law(_from_law(JOINT_LAW), design, noise, rng)


def _quadratic(design: Design, noise: Noise, rng: np.random.Generator) -> RunTable:
    return from_quadratic(power_law(), design, noise, rng)


def _flat(design: Design, noise: Noise, rng: np.random.Generator) -> RunTable:
    return from_law(_from_law(CURVE), design, noise, rng)


def _constant(design: Design, noise: Noise, rng: np.random.Generator) -> RunTable:
    table = _flat(design, noise, rng)
    shared = (table["budget"] / TRAINING.budgets[0]) ** -0.4
    return RunTable({**table.data, "score": table["score"] * shared})


JOINT_LAW = laws.JointLaw(floor=0.0, bias=0.294, noise=12.0, source=0.8)
# Least near D = 4·10⁷, the middle of the six.
CURVE = laws.FreeLaw(
    floor=0.0,
    bias=2.15e-6,
    noise=12.0,
    budget_exponent=0.0,
    ddr_exponent=0.4,
    noise_exponent=0.5,
)
JOINT = Scenario(
    name="joint",
    runs=_joint,
    exponent=float(JOINT_LAW.optimum_exponent),
    noise=12.0,
)
QUADRATIC = Scenario(
    name="quadratic",
    runs=_quadratic,
    exponent=1.0,
    noise=float(np.sqrt(np.sum(power_law().noise) / 8)),
)
CONSTANT = Scenario(name="constant", runs=_constant, exponent=None, noise=None)
FLAT = Scenario(name="flat", runs=_flat, exponent=None, noise=None)
SCENARIOS = {s.name: s for s in (JOINT, QUADRATIC, CONSTANT, FLAT)}
