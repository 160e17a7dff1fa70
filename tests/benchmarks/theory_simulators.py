"""Seconds and updates per second of the simulators of outer loops.

`python -m tests.benchmarks.theory_simulators --json`. The linear simulator is timed on
10¹² transitions, 1,000 seeds and 32 knob settings, and beside a numpy loop that makes
every update (on as many as it can in a second). The step-by-step simulator is timed
beside the same rule written in the obvious way: a key folded with the update, a normal
drawn from it, vmapped and scanned. Twins are timed in turn in one process, so that
their ratios hold although the machine is noisy.
"""

import dataclasses
import math
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tyro

from tests.benchmarks.timing import machine, seconds, show
from theory import outer
from theory.simulate import (
    Quadratic,
    checkpoints,
    gradient_rule,
    sign_rule,
    simulate_linear,
    simulate_stepwise,
)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Time the simulators and their obvious twins in one process."""

    budget: int = 10**12
    """Transitions of the linear runs."""
    samples_per_update: int = 2048
    """Transitions per update of the linear runs."""
    per_decade: int = 12
    """Checkpoints per factor of 10 of the linear runs."""
    seeds: int = 1000
    """Runs per knob setting."""
    settings: int = 32
    """Knob settings."""
    updates: int = 2000
    """Updates of the step-by-step runs."""
    repeats: int = 5
    """Timings of each; the median counts."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    lanes = arguments.seeds * arguments.settings
    naive_updates = max(arguments.updates // 20, 2)
    counts = {
        "gradient": lanes * arguments.updates,
        "sign": lanes * arguments.updates,
        "naive_jax": lanes * naive_updates,
        "numpy": lanes * naive_updates,
    }
    programs = {
        "linear": linear(arguments),
        "gradient": stepwise(arguments, gradient_rule, "outer_step"),
        "sign": stepwise(arguments, sign_rule, "step_length"),
        "naive_jax": naive_jax(lanes, naive_updates),
        "numpy": numpy_loop(lanes, naive_updates),
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(arguments.repeats):
        for name, program in programs.items():
            times[name].append(seconds(program))
    rates = {
        name: count / statistics.median(times[name]) for name, count in counts.items()
    }
    updates = arguments.budget // arguments.samples_per_update
    result = {
        "linear_seconds": statistics.median(times["linear"]),
        "linear_transitions": arguments.budget,
        "linear_checkpoints": int(checkpoints_of(arguments).size),
        "seeds": arguments.seeds,
        "knob_settings": arguments.settings,
        "numpy_seconds_for_the_same": updates * lanes / rates["numpy"],
        "gradient_updates_per_second": rates["gradient"],
        "sign_updates_per_second": rates["sign"],
        "naive_jax_updates_per_second": rates["naive_jax"],
        "numpy_updates_per_second": rates["numpy"],
        "times_naive_jax": ratio(times, "naive_jax", "sign", counts),
        "times_numpy": ratio(times, "numpy", "sign", counts),
        "machine": machine(),
    }
    show(result, as_json=arguments.json)
    return 0


def ratio(
    times: dict[str, list[float]], slow: str, fast: str, counts: dict[str, int]
) -> float:
    """Median ratio of the rates of two programs timed in turn."""
    pairs = zip(times[slow], times[fast], strict=True)
    return statistics.median(a / b for a, b in pairs) * counts[fast] / counts[slow]


def checkpoints_of(arguments: Arguments) -> np.ndarray:
    """Where the linear runs are recorded."""
    return checkpoints(
        arguments.budget, arguments.samples_per_update, arguments.per_decade
    )


def linear(arguments: Arguments) -> Callable[[], Any]:
    """Exact runs of `ewma_linear` over many outer steps, from knobs to paths."""

    def program() -> None:
        steps = np.logspace(-6, -0.3, arguments.settings)
        simulate_linear(
            outer.ewma_linear(steps, 1.0, com_updates=30.0),
            checkpoints_of(arguments),
            noise_variance=4.0,
            samples_per_update=arguments.samples_per_update,
            initial=1.0,
            seeds=arguments.seeds,
        )

    return program


def stepwise(arguments: Arguments, rule: Any, knob: str) -> Callable[[], Any]:
    """Runs of one rule in one dimension, compiled before they are timed."""
    knobs = {
        knob: np.logspace(-2, -0.3, arguments.settings),
        "samples_per_update": arguments.samples_per_update,
    }

    def program() -> None:
        simulate_stepwise(
            rule,
            knobs,
            Quadratic([1.0], 4.0),
            [arguments.updates // 2, arguments.updates],
            initial=1.0,
            seeds=arguments.seeds,
        )

    program()
    return program


def naive_jax(lanes: int, updates: int) -> Callable[[], Any]:
    """The sign rule with a key per update, vmapped and scanned."""
    import jax
    import jax.numpy as jnp

    def lane(key: Any, length: Any) -> Any:
        def body(carry: Any, update: Any) -> Any:
            x, square, kl = carry
            xi = jax.random.normal(jax.random.fold_in(key, update))
            new = x - length * jnp.sign(x + xi)
            return (new, square + new**2, kl + (new - x) ** 2 / 2), None

        start = (jnp.float32(1), jnp.float32(0), jnp.float32(0))
        return jax.lax.scan(body, start, jnp.arange(updates))[0]

    compiled = jax.jit(jax.vmap(lane))
    keys = jax.random.split(jax.random.key(0), lanes)
    lengths = jnp.geomspace(0.01, 0.5, lanes)

    def program() -> None:
        jax.block_until_ready(compiled(keys, lengths))

    program()
    return program


def numpy_loop(lanes: int, updates: int) -> Callable[[], Any]:
    """The sign rule as a loop over updates of arrays."""
    lengths = np.geomspace(0.01, 0.5, lanes).astype(np.float32)

    def program() -> None:
        generator = np.random.default_rng(0)
        x, square, kl = np.ones_like(lengths), 0 * lengths, 0 * lengths
        for _ in range(updates):
            xi = generator.standard_normal(lanes, dtype=np.float32)
            new = x - lengths * np.sign(x + xi)
            square += new**2
            kl += (new - x) ** 2 / 2
            x = new
        assert math.isfinite(float(kl.sum()))

    return program


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
