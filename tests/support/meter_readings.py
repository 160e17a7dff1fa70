"""The meters' readings over what theory says, for whole updates of SGD from one θ_k."""

import functools
from typing import Any, NamedTuple

import numpy as np

from fullscale.config import RunConfig
from fullscale.presets import preset
from fullscale.state import Learner
from tests.support import meter_theory, one_theta

SEEDS, GROUPS = 1024, 128
RATES = {"bandit": 5e-3, "lqr": 1e-5}  # small: the inner loop is linear
SGD: dict[str, Any] = {
    "optimiser": "sgd",
    "clip_epsilon": 0.9,
    "normalise_advantages": False,
    "meter_interval": 1,
    "update_epochs": 2,
}


class Measured(NamedTuple):
    """Readings over what theory says, mean 1, [group]."""

    noise: np.ndarray
    signal: np.ndarray
    trace: np.ndarray
    square: np.ndarray
    draws: one_theta.Draws
    before: Any


def small(environment: str, num_envs: int, length: int = 1, **more: Any) -> RunConfig:
    return preset(
        environment, 10**9, num_envs=num_envs, rollout_length=length,
        minibatch_size=num_envs * length // 2, **(SGD | more),
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def start(config: RunConfig) -> tuple[Any, Any, Learner]:
    """The compiled update, states, and θ_k."""
    one = one_theta.program(config, SEEDS)
    state = one.fresh()
    learner = one_theta.one_of(state.learner)
    if config.environment == "lqr":
        learner = meter_theory.at_no_control(learner)
        state = meter_theory.visiting(state, np.random.default_rng(1))
    return one, state, learner


def theory_of(config: RunConfig, learner: Learner, envs: int) -> meter_theory.Expected:
    if config.environment == "lqr":
        length = config.rollout_length
        return meter_theory.on_lqr(config.num_envs, length, GROUPS, envs)
    logits = np.asarray(learner.parameters["policy"]["Dense_0"]["kernel"])[0]
    return meter_theory.on_bandit(logits, config.num_envs)


@functools.lru_cache(maxsize=32)
def measured(
    config: RunConfig, sigma: float, rounds: int, envs: int = 2048
) -> Measured:
    """Rounds of `SEEDS` updates; `envs` are those of a group behind theory on `lqr`."""
    one, state, learner = start(config)
    own = state.update + round(1000 * sigma)  # keys of its own for every σ
    state = state._replace(update=own)
    rate = RATES[config.environment]
    rates = one.rates(learning_rate=rate, outer_learning_rate=sigma)
    _, draws = one_theta.draw(one, state, learner, rates, rounds)
    square = (sigma * rate * config.gradient_steps_per_update) ** 2
    expected, found = theory_of(config, learner, envs), draws.metrics
    return Measured(
        over(found["outer_noise_kl"] / square, expected.noise),
        over(found["outer_signal_kl"] / square, expected.signal),
        over(found["noise_trace"], expected.trace),
        over(found["gradient_square"], expected.square),
        draws,
        learner.parameters["policy"],
    )


def over(readings: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Readings over theory in groups, [group], so that theory's own error counts."""
    means = readings.reshape(GROUPS, -1).mean(1)
    return 1.0 + (means - expected) / expected.mean()


ONCE = {"update_epochs": 1}
GRID = {  # configuration, rounds of each σ, environments of a group behind theory
    "bandit": [
        (small("bandit", n, **ONCE), r, 0) for n, r in ((32, 3), (128, 2), (512, 1))
    ],
    "lqr": [
        (small("lqr", 32, 8, **ONCE), 3, 8192),
        (small("lqr", 128, 8, **ONCE), 1, 8192),
        (small("lqr", 512, 2, **ONCE), 1, 16384),
    ],
}
SIGMAS = (0.25, 0.5, 1.0)
