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
- `ewma_inner`: the same anchor, averaged within an inner loop on one batch: closest to
  PPO-EWMA.
- `multiplicative`: noise that grows away from the optimum.
- `damped`: any of these behind an outer learning rate and outer momentum.
- `matrix_sgd`: plain descent in all directions at once, preconditioned or not.
- `ema_variance`, `window_variance`: averages of iterates that are not fed back.
- `lyapunov`: the stationary covariance of any other linear loop.
"""

from theory.outer.averaging import ema_variance, window_variance
from theory.outer.damped import Damped, damped
from theory.outer.inner import EwmaGradient, effective_step, ewma_gradient
from theory.outer.inner_ewma import EwmaInner, ewma_inner
from theory.outer.loop import Loop, Stationary
from theory.outer.lyapunov import stationary_covariance
from theory.outer.matrix import MatrixSgd, MatrixStationary, matrix_sgd
from theory.outer.momentum import (
    HeavyBall,
    Nesterov,
    averaged_gradient,
    heavy_ball,
    nesterov,
)
from theory.outer.plain import Multiplicative, Sgd, multiplicative, sgd
from theory.outer.reference import (
    EwmaLinear,
    EwmaProximal,
    ewma_linear,
    ewma_proximal,
)

__all__ = [
    "Damped",
    "EwmaGradient",
    "EwmaInner",
    "EwmaLinear",
    "EwmaProximal",
    "HeavyBall",
    "Loop",
    "MatrixSgd",
    "MatrixStationary",
    "Multiplicative",
    "Nesterov",
    "Sgd",
    "Stationary",
    "averaged_gradient",
    "damped",
    "effective_step",
    "ema_variance",
    "ewma_gradient",
    "ewma_inner",
    "ewma_linear",
    "ewma_proximal",
    "heavy_ball",
    "matrix_sgd",
    "multiplicative",
    "nesterov",
    "sgd",
    "stationary_covariance",
    "window_variance",
]
