"""Simulators of outer loops near a local optimum.

What to use when:

- `simulate_linear`: linear loops with Gaussian noise, exact in distribution, however
  many updates; it jumps between `checkpoints`.
- `simulate_stepwise`: any rule of a gradient and a state, update by update, on JAX
  (imported when it runs): noise that grows away from the optimum, steps of bounded
  length, adaptive steps, a rule of your own.
"""

from theory.simulate.checkpoints import checkpoints
from theory.simulate.linear import LinearPaths, simulate_linear
from theory.simulate.rules import (
    Rule,
    clipped_rule,
    gradient_rule,
    rmsprop_rule,
    sign_rule,
    trust_region_rule,
)
from theory.simulate.stepwise import Quadratic, StepwisePaths, simulate_stepwise

__all__ = [
    "LinearPaths",
    "Quadratic",
    "Rule",
    "StepwisePaths",
    "checkpoints",
    "clipped_rule",
    "gradient_rule",
    "rmsprop_rule",
    "sign_rule",
    "simulate_linear",
    "simulate_stepwise",
    "trust_region_rule",
]
