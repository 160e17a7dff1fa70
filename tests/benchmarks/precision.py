"""What bfloat16 does to `outer_kl`, of networks and of stored observations.

`python -m tests.benchmarks.precision --json`. Three comparisons with full precision, on
reacher, over seeds: whole short runs; one update from one state, at outer learning
rates down to where rounding is all there is; and the same two policies measured in both
precisions. Besides, what stored observations and a compiled chunk need of memory.
"""

import dataclasses
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tyro

from fullscale import runtime
from fullscale.presets import preset
from tests.benchmarks.timing import machine, show

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "compute": {"compute_precision": "bfloat16"},
        "storage": {"storage_precision": "bfloat16"},
    }
)
SIGMAS = (1.0, 0.1, 0.01, 0.001)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Compare bfloat16 with full precision on reacher."""

    updates: int = 64
    """Updates of a short run."""
    seeds: int = 8
    """Seeds, side by side."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Compare, and print."""
    runtime.set_up(cpu_devices=1)
    from tests.support.trainer import setup

    config = preset(
        "reacher", 10**9, num_seeds=arguments.seeds, meter_interval=0,
        staggered_starts="on",
    )  # fmt: skip
    full = setup(config, 1, arguments.updates)
    state, metrics = full.run(
        full.fresh(0, arguments.seeds), full.rates(), arguments.updates
    )
    result: dict[str, Any] = {
        "updates": arguments.updates,
        "seeds": arguments.seeds,
        "memory": memory(),
    }
    for name, changes in VARIANTS.items():
        other = setup(dataclasses.replace(config, **changes), 1, arguments.updates)
        _, others = other.run(
            other.fresh(0, arguments.seeds), other.rates(), arguments.updates
        )
        result[name] = {
            "run": {
                key: compared(others[key].mean(0), metrics[key].mean(0))
                for key in ("outer_kl", "approx_kl", "entropy", "value_loss")
            },
            "one_update": [one_update(full, other, state, s) for s in SIGMAS],
        }
    result["machine"] = machine()
    show(result, as_json=arguments.json)
    return 0


def one_update(full: Any, other: Any, state: Any, sigma: float) -> dict[str, Any]:
    """The same state, keys and environments: one update of both trainers.

    `meter` compares two measurements of one outer step, that of the full trainer.
    """
    rates = full.rates(outer_learning_rate=sigma)
    after, metrics = full.run(state, rates, 1)
    _, others = other.run(state, rates, 1)
    seen = after.worlds.observation
    kls = [
        _measured(
            one.agent,
            state.learner.parameters["policy"],
            after.learner.parameters["policy"],
            seen,
        )
        for one in (other, full)
    ]
    return {
        "outer_learning_rate": sigma,
        "outer_kl": float(metrics["outer_kl"].mean()),
        "update": compared(others["outer_kl"][0], metrics["outer_kl"][0]),
        "meter": compared(*kls),
    }


def _measured(agent: Any, before: Any, after: Any, seen: Any) -> np.ndarray:
    """KL(before ‖ after) per seed over what the environments show."""
    import jax

    from fullscale import distributions

    def measure(before: Any, after: Any, seen: Any) -> Any:
        rows = agent.see(seen.reshape(-1, seen.shape[-1]))
        policies = (agent.policy(p, rows) for p in (before, after))
        return distributions.kl(*policies).mean()

    return np.asarray(jax.jit(jax.vmap(measure))(before, after, seen))


def compared(values: np.ndarray, reference: np.ndarray) -> dict[str, float | None]:
    """Relative difference of means over seeds, its standard error, and the largest."""
    ratio = values.mean() / reference.mean()
    residual = (values - ratio * reference) / reference.mean()
    error = residual.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    return {
        "relative_difference": float(ratio - 1.0),
        "standard_error": None if error is None else float(error),
        "largest_of_a_seed": float(np.abs(values / reference - 1.0).max()),
    }


def memory() -> dict[str, dict[str, int]]:
    """Bytes of an update's stored observations, of 512 numbers each, and of all."""
    import jax
    import jax.numpy as jnp

    from fullscale import keys
    from tests.support.small_worlds import wide
    from tests.support.trainer import setup_in

    found = {}
    environment = wide(512)
    for name in ("full", "bfloat16"):
        config = preset(
            "reacher", 10**9, num_envs=4096, minibatch_size=4096, hidden_sizes=(16,),
            storage_precision=name, meter_interval=0,
        )  # fmt: skip
        one = setup_in(environment, config, 1, 1)
        state = jax.eval_shape(one.start, keys.base_keys(0, 1))
        compiled = one.chunk.lower(state, one.rates(), jnp.int32(1)).compile()
        seen = jax.eval_shape(one.agent.see, state.worlds.observation)
        found[name] = {
            "observations": seen.size * seen.dtype.itemsize * config.rollout_length,
            "temporaries": int(compiled.memory_analysis().temp_size_in_bytes),
        }
    return found


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
