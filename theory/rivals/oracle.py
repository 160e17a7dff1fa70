"""The ceiling: the law with the held-out runs in hand."""

import numpy as np

from theory.cells import Cells
from theory.fit.result import Fit
from theory.fit.two_stage import fit_cells
from theory.rivals.other_law import Refitted


def oracle(fit: Fit, held_out: Cells) -> Refitted:
    """The law fitted to the training cells and to the held-out ones together.

    No forecast: it has seen what it is scored on. What the law loses to it is what more
    data could still gain within this family of laws; the rest is noise and the family.

    Args:
        fit: the fit whose cells and options are taken.
        held_out: cells with the same knobs.

    Raises:
        ValueError: a knob of the fit is missing.
        NotConverged: stage 1 has no answer.
    """
    return Refitted(fit=fit_cells(together(fit.cells, held_out), fit.options))


def together(one: Cells, other: Cells) -> Cells:
    """Cells of both, a configuration being what has the same knobs.

    Raises:
        ValueError: a knob of the first is missing from the second.
    """
    missing = sorted(set(one.knobs) - set(other.knobs))
    if missing:
        raise ValueError(f"the held-out cells have no {missing[0]!r}; the fit needs it")
    knobs = {
        name: np.concatenate([values, other.knobs[name]])
        for name, values in one.knobs.items()
    }
    rows = np.stack([*knobs.values()], axis=-1)
    return Cells(
        config=np.unique(rows, axis=0, return_inverse=True)[1].ravel(),
        knobs=knobs,
        **{
            name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in FIELDS
        },
    )


FIELDS = ("budget", "transitions", "ddr", "score", "seed_variance", "num_seeds")
