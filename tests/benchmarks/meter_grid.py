"""The meters beside theory where their conditions hold: a table of docs/meters.md.

`python -m tests.benchmarks.meter_grid --json`. Whole updates with SGD from one θ_k over
N × σ, as in the slow tier; each row is the mean over σ with its standard error.
"""

import dataclasses
import sys

import numpy as np
import tyro

from fullscale import runtime
from tests.benchmarks.timing import machine, show

PARTS = ("noise", "signal", "trace", "square")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measure what the meters read over what theory says."""

    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Measure, and print."""
    runtime.set_up(cpu_devices=1)
    from tests.support import meter_readings as readings
    from tests.support.one_theta import mean_of

    rows, deviations = [], []
    for environment, cells in readings.GRID.items():
        for config, rounds, envs in cells:
            found = [
                readings.measured(config, sigma, rounds, envs)
                for sigma in readings.SIGMAS
            ]
            ratios = {part: [getattr(one, part) for one in found] for part in PARTS}
            row = {p: mean_of(np.mean(x, axis=0)) for p, x in ratios.items()}
            single = [mean_of(x) for p in ("noise", "signal") for x in ratios[p]]
            deviations += [abs(mean - 1.0) / error for mean, error in single]
            rows.append(
                {
                    "environment": environment,
                    "num_envs": config.num_envs,
                    "rollout_length": config.rollout_length,
                    "updates": len(found) * rounds * readings.SEEDS,
                    **row,
                }
            )
    result = {"rows": rows, "largest_z": max(deviations), "machine": machine()}
    show(result, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
