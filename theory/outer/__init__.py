"""Outer loops near a local optimum: stability, plateau and transient in closed form.

Assumptions, of every loop here: quadratic loss ½hx² (x one eigen-direction, relative
to the optimum), fresh samples each update, noise of constant per-sample variance (or,
in `multiplicative`, one that grows with x²), Fisher metric constant near the optimum.
Visitation shift and importance-ratio error are left out.

What to use when:

- `sgd`: PPO without an averaged anchor; map its inner loop to one outer step with
  `effective_step` first.
- `heavy_ball`: outer momentum, or an optimiser whose memory reaches across updates.
- `ewma_linear`: the anchor is an average of past policies, and the step taken from it
  is linear in the gradient at the acting policy.
- `ewma_proximal`: the same anchor, with the penalised surrogate solved exactly.
- `ewma_gradient`: the same anchor, one fresh minibatch per gradient step.
- `multiplicative`: noise that grows away from the optimum.
"""

from theory.outer.inner import EwmaGradient, effective_step, ewma_gradient
from theory.outer.loop import Loop, Stationary
from theory.outer.momentum import HeavyBall, heavy_ball
from theory.outer.plain import Multiplicative, Sgd, multiplicative, sgd
from theory.outer.reference import (
    EwmaLinear,
    EwmaProximal,
    ewma_linear,
    ewma_proximal,
)

__all__ = [
    "EwmaGradient",
    "EwmaLinear",
    "EwmaProximal",
    "HeavyBall",
    "Loop",
    "Multiplicative",
    "Sgd",
    "Stationary",
    "effective_step",
    "ewma_gradient",
    "ewma_linear",
    "ewma_proximal",
    "heavy_ball",
    "multiplicative",
    "sgd",
]
