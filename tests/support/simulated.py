"""Simulated run tables with a known truth, each fitted in a fraction of a second."""

import dataclasses
import functools

import numpy as np

from theory import laws
from theory.simulate_table import Design, Noise, Truth, from_law
from theory.table import RunTable

OPTIMUM = -1.94
SLOPES = {"num_envs": 1.2, "outer_learning_rate": -2.0}
QUIET = Noise(config=0.0, seed=0.0, ddr_config=0.0, ddr_seed=0.0)
TRUTH = Truth(
    law=laws.JointLaw(floor=0.0, bias=2000.0, noise=12.0, source=2.0),
    slopes=SLOPES,
    transient=3e5,
    transient_slopes={"num_envs": 0.3},
    asymptote=OPTIMUM,
)
DESIGN = Design()
SMALL = Design(num_envs=(16, 64, 256), outer_learning_rate=(0.25, 1.0), seeds=2)


def simulate(
    seed: int = 0,
    *,
    design: Design = DESIGN,
    noise: Noise | None = None,
    **truth: object,
) -> RunTable:
    """A table from `TRUTH`, with any of its fields replaced."""
    changed = dataclasses.replace(TRUTH, **truth)  # type: ignore[arg-type]
    return from_law(changed, design, noise or Noise(), np.random.default_rng(seed))


@functools.cache
def noisy_table() -> RunTable:
    """One table with noise, for tests that only read it."""
    return simulate(1)


@functools.cache
def exact_table() -> RunTable:
    """One table without noise, for tests that only read it."""
    return simulate(0, noise=QUIET)
