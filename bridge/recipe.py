"""The settings a prediction chooses among: the preset's recipe at every usable N.

Minibatch size, learning rate, epochs, rollout length, σ and ε are the preset's; the
number of minibatches grows with N. N is a power of two; a setting counts only if it has
a whole number of minibatches and at least `MIN_UPDATES` updates, below which the start
of a run, not its plateau, decides.
"""

from bridge.errors import UsageError
from bridge.quantities import MAX_COUNT
from fullscale import presets
from fullscale.config import MAX_SAMPLES, RunConfig

MIN_UPDATES = 16


def candidates(environment: str, budget: int, num_seeds: int) -> tuple[RunConfig, ...]:
    """All settings of the recipe, by increasing N.

    Args:
        environment: name of a preset.
        budget: transitions of one seed's run.
        num_seeds: seeds of the run.

    Raises:
        UsageError: the budget is too small for any.
    """
    recipe = presets.preset(environment, MAX_COUNT)
    smallest = _smallest(recipe)
    per_update = min(budget // MIN_UPDATES, MAX_SAMPLES)
    largest = per_update // recipe.rollout_length
    if largest < smallest:
        least = MIN_UPDATES * smallest * recipe.rollout_length
        raise UsageError(
            f"--budget {budget} is too small for {environment!r}: with minibatches of "
            f"{recipe.minibatch_size} transitions and at least {MIN_UPDATES} updates, "
            f"it takes a budget of {least} or more"
        )
    sizes = [2**k for k in range(smallest.bit_length() - 1, largest.bit_length())]
    return tuple(
        presets.preset(environment, budget, num_envs=size, num_seeds=num_seeds)
        for size in sizes
    )


def _smallest(recipe: RunConfig) -> int:
    """The least power of two with a whole number of minibatches."""
    size = 1
    while size * recipe.rollout_length % recipe.minibatch_size:
        size *= 2
    return size
