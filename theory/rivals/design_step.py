"""The law without DDR: the step per sample as the design of a run has it.

DDR_noise is u^(−2) up to a constant, u = η/n the outer step per sample. Where the
regulariser binds, η is proportional to the clip range ε and to the outer learning rate
σ, divided by 1 + COM for a slow reference, and n = N·T, so that knobs alone say

    u ∝ σ·ε/(N·T·(1 + COM))

(derived here). This rival is the same law with u^(−2) in place of the measured DDR;
what the law is better by is what measuring DDR is worth. Knobs that u does not know are
as if they had no effect.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from theory.ddr_map import KnobValues
from theory.fit.result import Fit
from theory.fit.two_stage import fit_cells
from theory.rivals.other_law import Refitted

EXPONENTS: Mapping[str, float] = {
    "outer_learning_rate": 1.0,
    "clip_epsilon": 1.0,
    "num_envs": -1.0,
    "rollout_length": -1.0,
}
SLOW = "com"


def log_step_per_sample(knobs: KnobValues) -> Float[np.ndarray, "cell"]:
    """Logarithm of u as the design has it, up to a constant.

    Args:
        knobs: values per cell in the knobs' own units; others than those of u are
            ignored.

    Raises:
        ValueError: a knob of u is not positive and finite, or there are no knobs.
    """
    if not knobs:
        raise ValueError("knobs is empty; a design needs at least one")
    values = {
        name: np.atleast_1d(np.asarray(v, dtype=float)) for name, v in knobs.items()
    }
    total = np.zeros(np.broadcast_shapes(*(v.shape for v in values.values())))
    for name, value in values.items():
        if name not in EXPONENTS and name != SLOW:
            continue
        if not np.all(np.isfinite(value) & (value > 0)):
            raise ValueError(f"{name} = {knobs[name]!r} should be positive and finite")
        slow = name == SLOW
        total = (
            total - np.log1p(value) if slow else total + EXPONENTS[name] * np.log(value)
        )
    return total


def design_step(fit: Fit) -> Refitted:
    """Fit the law to cells whose DDR is that of the design.

    Args:
        fit: the fit whose cells and options are taken.

    Raises:
        NotConverged: stage 1 has no answer.
    """
    cells = fit.cells
    log_ddr = -2 * log_step_per_sample(cells.knobs)
    log_ddr = log_ddr - np.mean(log_ddr) + np.mean(np.log(cells.ddr))
    designed = dataclasses.replace(cells, ddr=np.exp(log_ddr))
    return Refitted(fit=fit_cells(designed, fit.options))
