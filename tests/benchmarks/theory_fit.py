"""Seconds of a joint fit with its bootstrap, beside a slow twin in the same process.

`python -m tests.benchmarks.theory_fit --json`. The table has 200 runs (or, with
--cells, 200 cells); a fit is all of `theory.fit.fit`: map, law, draws, jackknife and
intervals. The twin solves draw by draw with scipy's general searches, as many as it can
in a few seconds, and is scaled up to the number of draws; both agree
(`tests/test_theory_fit_twin.py`), and their ratio holds although the machine is noisy.
"""

import dataclasses
import functools
import os
import statistics
import sys
import time

import numpy as np
import tyro

from tests.benchmarks.timing import machine, seconds, show
from tests.support.fit_twin import twin_law, twin_map
from tests.support.simulated import OPTIMUM, simulate
from theory.fit import Fit, Options, fit
from theory.simulate_table import Design

RUNS = Design(
    num_envs=(16, 32, 64, 128, 256),
    outer_learning_rate=(0.5, 1.0),
    budgets=(2**18, 2**20, 2**22, 2**24),
    seeds=5,
)
CELLS = Design(
    num_envs=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    outer_learning_rate=(0.25, 0.35, 0.5, 0.7, 1.0),
    budgets=(2**20, 2**22, 2**24, 2**26),
    seeds=3,
)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Time the fit and its slow twin in one process."""

    cells: bool = False
    """200 cells (600 runs) in place of 200 runs (40 cells)."""
    draws: int = 2000
    """Bootstrap draws."""
    repeats: int = 3
    """Timings of each fit; the median counts."""
    twin_seconds: float = 5.0
    """How long the twin may take."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    table = simulate(3, design=CELLS if arguments.cells else RUNS)
    known = Options(asymptote=OPTIMUM, draws=arguments.draws)
    cases = {
        "joint": known,
        "joint_free_asymptote": dataclasses.replace(known, asymptote=None),
        "saturating": dataclasses.replace(known, family="saturating"),
        "saturating_fitted_pace": dataclasses.replace(
            known, family="saturating", pace="fitted"
        ),
    }

    def fitted(options: Options) -> None:
        _ = fit(table, options, throw=False).estimates

    taken = {
        name: statistics.median(
            seconds(functools.partial(fitted, options))
            for _ in range(arguments.repeats)
        )
        for name, options in cases.items()
    }
    joint = fit(table, known)
    twin = twin_seconds(joint, arguments.twin_seconds)
    result = {
        "runs": len(table),
        "cells": len(joint.cells),
        "draws": arguments.draws,
        "seconds": taken,
        "twin_seconds_per_draw": twin,
        "twin_over_fit": twin * arguments.draws / taken["joint"],
        "machine": machine(),
        "load": os.getloadavg()[0],
    }
    show(result, as_json=arguments.json)
    return 0


def twin_seconds(found: Fit, limit: float) -> float:
    """Seconds per draw of the twin."""
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < limit:
        weights = found.bootstrap_weights[done % len(found.bootstrap_weights)]
        mapped = twin_map(found, weights)
        log_ddr = found.model.ddr_map.log_limit(mapped[None], found.cells.knobs)[0]
        twin_law(found, np.asarray(log_ddr), weights)
        done += 1
    return (time.perf_counter() - start) / done


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
