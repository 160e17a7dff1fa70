"""The constant of gap ∝ DDR^(−½) of a task, from samples of its optimum: no fit."""

from theory.arithmetic import Number
from theory.exact_loops.tasks import Generator, Task
from theory.plateau_constant import Preconditioner, natural
from theory.sampled_constant import PlateauPrediction, predict_plateau_constant


def predicted_constant(
    task: Task,
    samples: Number,
    generator: Generator,
    preconditioner: Preconditioner = natural,
) -> PlateauPrediction:
    """gap·√DDR of small steps, from scores and advantages of the optimal policy.

    The law is of the objective per transition; a gap in returns is larger by the mean
    episode length, and so is the constant given here.

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
    batch, _ = task.sample(best, samples, None, generator)
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
