"""Outer loops on the two tasks where return, gradient, Fisher and KL are exact.

`run_loop(task, rule, samples_per_update, updates, seeds, generator)` runs any rule on
any task and records the exact gap, the anchor's gap and the exact KL per update.

Tasks:

- `EveryArm`: the bandit, every arm tried: natural and proximal steps are exactly the
  linear loops of `theory.outer`.
- `SampledArms`: the bandit, arms drawn from the policy.
- `Rollouts`: the linear system, environments that run on, exact critic.

Rules:

- `gradient_ascent`, `natural_gradient`: steps whose coefficient is pinned.
- `hard_kl`: steps whose KL is pinned.
- `kl_proximal`, `from_average`: steps held to, or taken from, an averaged anchor.
- `ClippedSurrogate`: PPO's epochs and minibatches, with `Sgd` or `Adam` inside, and
  `BehaviourAnchor` (PPO) or `AveragedAnchor` (PPO-EWMA) to clip against.

`predicted_constant` gives gap·√DDR of a task's plateaus from samples of its optimum.
"""

from theory.exact_loops.anchors import Anchor, AveragedAnchor, BehaviourAnchor
from theory.exact_loops.bandit_task import EveryArm, SampledArms
from theory.exact_loops.clipped import (
    ClippedSurrogate,
    as_sampled,
    carried,
    fresh,
    normalised,
)
from theory.exact_loops.lqr_task import Rollouts
from theory.exact_loops.optimisers import Adam, Optimiser, Sgd
from theory.exact_loops.predicted import predicted_constant
from theory.exact_loops.rules import (
    Rule,
    State,
    from_average,
    gradient_ascent,
    hard_kl,
    kl_proximal,
    natural_gradient,
)
from theory.exact_loops.run import ExactRuns, Plateau, run_loop
from theory.exact_loops.tasks import Batch, Task

__all__ = [
    "Adam",
    "Anchor",
    "AveragedAnchor",
    "Batch",
    "BehaviourAnchor",
    "ClippedSurrogate",
    "EveryArm",
    "ExactRuns",
    "Optimiser",
    "Plateau",
    "Rollouts",
    "Rule",
    "SampledArms",
    "Sgd",
    "State",
    "Task",
    "as_sampled",
    "carried",
    "fresh",
    "from_average",
    "gradient_ascent",
    "hard_kl",
    "kl_proximal",
    "natural_gradient",
    "normalised",
    "predicted_constant",
    "run_loop",
]
