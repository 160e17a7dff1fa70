"""When a run stops itself: numbers that are not finite, devices that do not agree."""

import numpy as np
from jaxtyping import Shaped

from fullscale.config import RunConfig
from fullscale.counters import Counters

# In the order in which one follows from the other: an observation that is not finite
# makes actions and so rewards that are not, and never the other way round.
COUNTED = ("nonfinite_observations", "nonfinite_rewards", "nonfinite_gradients")
MUST_BE_FINITE = ("policy_loss", "value_loss", "grad_norm", "outer_kl")


class Diverged(RuntimeError):
    """A run whose numbers stopped being right; the text says what, when and where."""


def check_finite(config: RunConfig, row: dict) -> None:
    """Stop at the first number that is not finite, by name, update and environment.

    Masked rewards, observations and gradients were counted and go on; parameters that
    are not finite end a run in any case.
    """
    if config.nonfinite == "stop":
        for name in COUNTED:
            bad = np.flatnonzero(np.asarray(row.get(name, 0)) > 0)
            if bad.size:
                where = _environment(row, name, int(bad[0]))
                raise Diverged(
                    f"{name} = {row[name][bad[0]]:.0f} at update {row['updates']} "
                    f"({row['transitions']} transitions) for seed number {bad[0]}"
                    f'{where}; nonfinite = "mask" would end such episodes, skip such '
                    "gradient steps, and go on counting"
                )
    masked = config.nonfinite == "mask"
    for name in ("outer_kl",) if masked else MUST_BE_FINITE:
        bad = np.flatnonzero(~np.isfinite(row[name]))
        if bad.size:
            raise Diverged(
                f"{name} is not finite at update {row['updates']} "
                f"({row['transitions']} transitions) for seed number {bad[0]}"
            )


def _environment(row: dict, name: str, seed: int) -> str:
    if name == "nonfinite_gradients":
        return ""
    return f", first in environment {row['nonfinite_environment'][seed]:.0f}"


def check_replicas(
    checksums: Shaped[np.ndarray, "seed device"], done: Counters
) -> None:
    """Stop where the devices of a seed hold different learners.

    Args:
        checksums: of what each device holds (`fullscale.replicas`).
        done: what was done when they were taken.

    Raises:
        Diverged: naming the update, the seed and the checksums.
    """
    apart = np.flatnonzero((checksums != checksums[:, :1]).any(axis=1))
    if apart.size:
        held = ", ".join(f"{number:08x}" for number in checksums[apart[0]].tolist())
        raise Diverged(
            f"the devices of seed number {apart[0]} hold different learners after "
            f"update {done.updates} ({done.transitions} transitions): checksums {held} "
            "should be equal; no checkpoint was written since, so --resume goes on "
            "from before"
        )
