"""Simulators of outer loops near a local optimum.

What to use when:

- `simulate_linear`: linear loops with Gaussian noise, exact in distribution, however
  many updates; it jumps between `checkpoints`.
"""

from theory.simulate.checkpoints import checkpoints
from theory.simulate.linear import LinearPaths, simulate_linear

__all__ = ["LinearPaths", "checkpoints", "simulate_linear"]
