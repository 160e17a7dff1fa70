"""Plateau levels and budget laws of an outer stochastic-optimisation loop.

One update of PPO (collect, then learn) is treated as one step of stochastic
optimisation. `outer` holds the loops in closed form, near a local optimum of a
quadratic loss; `laws` holds what follows from them for a finite budget.

Importing this package loads numpy and nothing heavier. The two exactly known tasks,
`theory.bandit` and `theory.lqr`, and everything that needs scipy or xarray are
imported by their own names.
"""

from theory import laws, outer

__all__ = ["laws", "outer"]
