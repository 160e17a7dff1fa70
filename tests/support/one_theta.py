"""Many independent updates from one and the same θ_k, each with the meters' readings.

The updates are `fullscale.iteration` as it is, for many seeds that are given one
learner. They are compiled without optimisation: that takes a seventh of the time, and
a small update is quick anyway.
"""

import functools
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import distributions, keys, mesh
from fullscale.config import RunConfig
from fullscale.environments import make_environment
from fullscale.iteration import iteration
from fullscale.network import Agent, make_agent
from fullscale.schedule import rates as scheduled
from fullscale.state import Learner, Rates, TrainState

FAST = {"xla_backend_optimization_level": 0}


class Program(NamedTuple):
    """`start(base keys [seed])` and `update(state, rates)`, for so many seeds."""

    config: RunConfig
    agent: Agent
    start: Any
    update: Any
    seeds: int

    def fresh(self, seed: int = 0) -> TrainState:
        """States before their first update."""
        return self.start(keys.base_keys(seed, self.seeds))

    def rates(self, **changes: float) -> Rates:
        """The configured rates, with some changed."""
        found = jax.tree.map(lambda x: x[0], scheduled(self.config, range(1)))
        changed = {k: jnp.asarray(v, jnp.float32) for k, v in changes.items()}
        return found._replace(**changed)


@functools.lru_cache(maxsize=32)
def program(config: RunConfig, seeds: int) -> Program:
    """Compile (lazily) one update of so many seeds, with a reading at each."""
    environment = make_environment(config)
    agent = make_agent(config, environment)
    grid = mesh.make_mesh(1, seeds)
    blocks = jnp.arange(config.num_blocks)
    parts = (config, environment, agent)

    def update(state: TrainState, rates: Rates) -> tuple[TrainState, Any]:
        now = jnp.zeros((), jnp.int32)
        one = partial(iteration, *parts, rates=rates, blocks=blocks, update=now)
        return jax.vmap(one)(state)

    spec = mesh.state_spec()
    mapped = jax.shard_map(
        update,
        mesh=grid,
        in_specs=(spec, mesh.WHOLE),
        out_specs=(spec, mesh.PER_SEED),
    )
    start = mesh.compile_start(config, environment, agent, grid)
    return Program(config, agent, start, jax.jit(mapped, compiler_options=FAST), seeds)


def one_of(learner: Learner, index: int = 0) -> Learner:
    """The learner of one seed."""
    return jax.tree.map(lambda x: x[index], learner)


def given(state: TrainState, learner: Learner) -> TrainState:
    """The states with one learner for all seeds."""
    number = state.update.shape[0]
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), learner)
    return state._replace(learner=many)


class Draws(NamedTuple):
    """What independent updates did; `policy` leaves and metrics are [update, …]."""

    policy: Any
    metrics: dict[str, np.ndarray]


def draw(
    one: Program, state: TrainState, learner: Learner, rates: Rates, rounds: int,
    between: int = 0,
) -> tuple[TrainState, Draws]:  # fmt: skip
    """Updates of all seeds from θ_k, so many rounds.

    `between` updates at learning rate 0 separate the rounds, so that environments that
    run on have forgotten the round before.
    """
    found = list(_rounds(one, state, learner, rates, rounds, between))
    policies = jax.tree.map(
        lambda *x: np.concatenate(x), *[policy for _, policy, _ in found]
    )
    metrics = {
        k: np.concatenate([m[k] for _, _, m in found]).astype(np.float64)
        for k in found[0][2]
    }
    return found[-1][0], Draws(policies, metrics)


def _rounds(
    one: Program, state: TrainState, learner: Learner, rates: Rates, rounds: int,
    between: int,
) -> Iterator[tuple[TrainState, Any, Any]]:  # fmt: skip
    still = rates._replace(learning_rate=jnp.zeros_like(rates.learning_rate))
    for _ in range(rounds):
        for _ in range(between):
            state, _ = one.update(given(state, learner), still)
        state, metrics = one.update(given(state, learner), rates)
        policy = jax.tree.map(np.asarray, state.learner.parameters["policy"])
        yield state, policy, {k: np.asarray(v) for k, v in metrics.items()}


class Parts(NamedTuple):
    """A mean and its standard error for noise and signal, in nats."""

    noise: tuple[float, float]
    signal: tuple[float, float]


def mean_of(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def readings(draws: Draws) -> Parts:
    """The split-half meter, averaged over the updates."""
    found = draws.metrics
    return Parts(mean_of(found["outer_noise_kl"]), mean_of(found["outer_signal_kl"]))


def truth(agent: Agent, before: Any, policies: Any, seen: Any) -> Parts:
    """Noise and signal of the outer step, from n independent policies after it.

    With θ̄ their mean, noise = n/(n−1)·mean KL(θ̄ ‖ θ_i) and signal = mean KL(θ_k ‖ θ_i)
    − noise: covariance and mean of the steps in the metric of the KL, each unbiased to
    second order. KLs are means over the states `seen`.
    """
    middle = jax.tree.map(lambda x: jnp.asarray(x.mean(0, dtype=np.float64)), policies)

    @jax.jit
    def kls(policy: Any) -> Any:
        after = agent.policy(policy, seen)
        return [
            distributions.kl(agent.policy(p, seen), after).mean()
            for p in (before, middle)
        ]

    from_start, from_middle = (
        np.asarray(x, np.float64) for x in jax.lax.map(kls, policies)
    )
    n = len(from_middle)
    noise = n / (n - 1) * from_middle
    return Parts(mean_of(noise), mean_of(from_start - noise))
