"""How biased the split-half meter is, where its conditions do not hold.

`python -m tests.benchmarks.meter_bias --json`. From one θ_k of a real run, with its
optimiser's memory, at least 256 independent updates are drawn. Covariance and mean of
their outer steps in the metric of the KL are the truth; the meter's readings at the
same updates are averaged and divided by it. θ_k is either early in a run ("learning")
or after a stretch of training from the optimum ("plateau").
"""

import dataclasses
import math
import sys
from typing import Any

import numpy as np
import tyro

from fullscale import runtime
from fullscale.config import RunConfig
from fullscale.presets import preset
from tests.benchmarks.timing import machine, show

ADAM: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bandit", {}),
    ("bandit", {"adam_beta1": 0.0}),
    ("bandit", {"num_envs": 64, "minibatch_size": 64}),
    ("bandit", {"minibatch_size": 32}),
    ("bandit", {"minibatch_size": 32, "update_epochs": 16}),
    ("lqr", {}),
    ("lqr", {"adam_beta1": 0.0}),
    ("lqr", {"num_envs": 16, "minibatch_size": 128}),
    ("lqr", {"minibatch_size": 64}),
    ("lqr", {"minibatch_size": 64, "update_epochs": 16}),
)
SGD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bandit", {"optimiser": "sgd", "learning_rate": 1e-2}),
    ("lqr", {"optimiser": "sgd", "learning_rate": 1e-3}),
)
# What in the loop makes the bias: lqr and reacher without some part of it.
CAUSES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lqr", {"normalise_advantages": False}),
    ("lqr", {"clip_epsilon": 0.9}),
    ("lqr", {"learning_rate": 3e-4}),
    ("lqr", {"learning_rate": 3e-4, "normalise_advantages": False}),
    ("reacher", {}),
    ("reacher", {"max_grad_norm": 1e9}),
    ("reacher", {"learning_rate": 3e-5}),
)
STAGES = ("learning", "plateau")
ROUNDS = {"bandit": 4.0, "lqr": 1.0, "reacher": 0.25}  # in units of those asked for
MOST_STATES = 4096  # on which the truth's KLs are read


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measure the split-half meter's bias under Adam."""

    seeds: int = 256
    """Independent updates of a round."""
    rounds: int = 4
    """Rounds, all from one θ_k."""
    reacher: bool = True
    """Also measure on reacher, with its preset."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Measure, and print."""
    runtime.set_up(cpu_devices=1)
    cases = [(*case, stage) for case in (*SGD, *ADAM) for stage in STAGES]
    cases += [(*case, "learning") for case in CAUSES]
    rows = []
    for environment, changes, stage in cases:
        if environment == "reacher" and not arguments.reacher:
            continue
        config = preset(environment, 10**9, meter_interval=1, **changes)
        rounds = max(1, int(arguments.rounds * ROUNDS[environment]))
        row = measured(config, stage, arguments.seeds, rounds)
        rows.append({**row, "changes": changes})
        sys.stderr.write(f"{row}\n")
    show({"rows": rows, "machine": machine()}, as_json=arguments.json)
    return 0


def measured(config: RunConfig, stage: str, seeds: int, rounds: int) -> dict[str, Any]:
    """One row: the meter's means over the truth, with standard errors."""
    from tests.support import one_theta

    learner = trained(config, stage)
    one = one_theta.program(config, seeds)
    rates = one.rates()
    state = settled(one, learner, rates)
    state, draws = one_theta.draw(one, state, learner, rates, rounds)
    seen = state.worlds.observation.reshape(-1, state.worlds.observation.shape[-1])
    seen = one.agent.see(seen[:: max(1, len(seen) // MOST_STATES)])
    true = one_theta.truth(one.agent, learner.parameters["policy"], draws.policy, seen)
    found = one_theta.readings(draws)
    whole = one_theta.mean_of(draws.metrics["outer_kl"])
    total = true.noise[0] + true.signal[0]
    return {
        "environment": config.environment,
        "stage": stage,
        "num_envs": config.num_envs,
        "rollout_length": config.rollout_length,
        "minibatch_size": config.minibatch_size,
        "gradient_steps": config.gradient_steps_per_update,
        "optimiser": config.optimiser,
        "adam_beta1": config.adam_beta1,
        "updates": seeds * rounds,
        "outer_kl": whole[0],
        "noise_share": true.noise[0] / total,
        "clip_fraction": float(draws.metrics["clip_fraction"].mean()),
        "noise": ratio(found.noise, true.noise),
        "signal": ratio(found.signal, true.signal),
        "sum": paired(draws.metrics),
        "outer_kl_over_truth": whole[0] / total,
    }


def trained(config: RunConfig, stage: str) -> Any:
    """The learner at θ_k: of seed 0, some updates after its start or the optimum."""
    from tests.support import one_theta

    one = one_theta.program(dataclasses.replace(config, meter_interval=0), 1)
    state, updates = one.fresh(), 16
    if stage == "plateau":
        state, updates = at_optimum(state, config.environment), 200
    for _ in range(updates):
        state, _ = one.update(state, one.rates())
    return one_theta.one_of(state.learner)


def at_optimum(state: Any, environment: str) -> Any:
    """The state with the best policy of `bandit` or `lqr`."""
    import jax.numpy as jnp

    from theory import bandit, lqr

    task = bandit.standard()
    best = np.array(task.means)[None] / float(task.temperature)
    if environment == "lqr":
        best = -lqr.standard().optimum()[0].T
    policy = {"Dense_0": {"kernel": jnp.asarray(best[None], jnp.float32)}}
    parameters = {**state.learner.parameters, "policy": policy}
    return state._replace(learner=state.learner._replace(parameters=parameters))


def settled(one: Any, learner: Any, rates: Any) -> Any:
    """States whose environments have forgotten their start under θ_k."""
    from tests.support import one_theta

    state = one.fresh(1)
    still = rates._replace(learning_rate=0.0 * rates.learning_rate)
    updates = 0 if one.config.environment == "bandit" else 3
    for _ in range(updates):
        state, _ = one.update(one_theta.given(state, learner), still)
    return state


def paired(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """Noise plus signal over `outer_kl`, which are of the same updates."""
    whole = metrics["outer_kl"]
    parts = metrics["outer_noise_kl"] + metrics["outer_signal_kl"]
    value = parts.mean() / whole.mean()
    error = (parts - value * whole).std(ddof=1) / np.sqrt(len(whole)) / whole.mean()
    return {"ratio": float(value), "standard_error": float(error)}


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/meters.md.

    A signal that is told from nothing by less than four standard errors is left out.
    "Rescaled" is the noise's ratio over that of the sum: noise/(noise + signal) of
    `outer_kl`, over the true noise.
    """
    lines = [
        "| task, stage | changed | gradient steps | true noise share | noise | signal "
        "| (noise + signal)/`outer_kl` | noise, rescaled |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        changed = ", ".join(f"{key}={value:g}" for key, value in row["changes"].items()
                            if not isinstance(value, str)) or "–"  # fmt: skip
        noise, signal, total = (row[part] for part in ("noise", "signal", "sum"))
        seen = 4.0 * signal["standard_error"] < abs(signal["ratio"])
        rescaled = {key: value / total["ratio"] for key, value in noise.items()}
        cells = (
            f"{row['environment']}, {row['stage']}, {row['optimiser']}", changed,
            str(row["gradient_steps"]), f"{row['noise_share']:.2f}", _cell(noise),
            _cell(signal) if seen else "–", _cell(total), _cell(rescaled),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: dict[str, float]) -> str:
    return f"{value['ratio']:.3f} ± {value['standard_error']:.3f}"


def ratio(found: tuple[float, float], true: tuple[float, float]) -> dict[str, float]:
    """Ratio of two independent means, and its standard error."""
    value = found[0] / true[0]
    error = math.hypot(found[1], value * true[1]) / abs(true[0])
    return {"ratio": value, "standard_error": error}


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
