"""The constant of gap ∝ DDR^(−½) of a task, from samples of its optimum: no fit."""

from theory.arithmetic import Number
from theory.exact_loops.tasks import Generator, Task
from theory.plateau_constant import Preconditioner, natural
from theory.sampled_constant import PlateauPrediction, predict_plateau_constant

MIXING = 2  # batches


def predicted_constant(
    task: Task,
    samples: Number,
    generator: Generator,
    preconditioner: Preconditioner = natural,
) -> PlateauPrediction:
    """gap·√DDR of small steps, from scores and advantages of the optimal policy.

    Two batches are drawn first and thrown away, so that environments are as far into
    their episodes as those of a long run. The law is of the objective per transition;
    a gap in returns is larger by the mean episode length, and so is the constant here.

    Args:
        task: the task.
        samples: how many transitions to draw, as one batch.
        generator: of the draw.
        preconditioner: of the update (`theory.plateau_constant`).

    Returns:
        Constant in units of the return, standard error and bias.

    Raises:
        ValueError: if there are too few samples.
    """
    best = task.optimum[None]
    world = None
    for _ in range(MIXING):
        _, world = task.sample(best, samples, world, generator)
    batch, _ = task.sample(best, samples, world, generator)
    found = predict_plateau_constant(
        task.scores(best, batch)[0], batch.advantages[0], batch.units, preconditioner
    )
    length = task.episode_length
    return PlateauPrediction(
        constant=length * found.constant,
        standard_error=length * found.standard_error,
        bias=length * found.bias,
        units=found.units,
    )
