"""The meters of whole updates against theory: split halves, noise scale, outer KL.

Statistical claims are "within 4 standard errors", at a false-failure rate of 6.4e-5
each; over the grid, the bias seen is below 5 % besides. What happens where the
conditions do not hold is measured by `tests.benchmarks.meter_bias` and published in
docs/meters.md.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from fullscale import instruments
from fullscale.config import RunConfig
from fullscale.presets import preset
from fullscale.state import Batch, Learner
from tests.support import meter_theory, one_theta
from tests.support.statistical import assert_mean
from theory import bandit

FOUR = 6.4e-5  # two-sided rate of 4 standard errors
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


def assert_one(ratios: np.ndarray, effect: float) -> None:
    """Within 4 standard errors of 1; `effect` must have been seen."""
    assert_mean(ratios, 1.0, effect=effect, false_failure_rate=FOUR)


# Readings against theory: an inner loop of SGD, one θ_k, thousands of updates.


class Cell(NamedTuple):
    """What the default tier measures; gradients on `lqr` have heavy tails."""

    config: RunConfig
    rounds: int
    effect: float

    def measured(self, sigma: float = 0.5) -> Measured:
        return measured(self.config, sigma, self.rounds)


BANDIT = Cell(small("bandit", 128), 3, 0.08)
LQR = Cell(small("lqr", 32, 8), 6, 0.25)
CASES = pytest.mark.parametrize("cell", [BANDIT, LQR], ids=["bandit", "lqr"])


@CASES
def test_split_halves_read_what_theory_says(cell: Cell) -> None:
    found = cell.measured()
    assert_one(found.noise, cell.effect)
    assert_one(found.signal, cell.effect)


@CASES
def test_a_wrong_factor_is_noticed(cell: Cell) -> None:
    """Negative control: ½·KL(1‖2), and parts that are off by the effect to be seen."""
    found, off = cell.measured(), cell.effect
    for wrong in (0.5 + 0.5 * found.noise + off, found.noise - off, found.signal + off):
        with pytest.raises(AssertionError, match="mean deviates"):
            assert_one(wrong, cell.effect)
    with pytest.raises(AssertionError):
        assert_one(2.0 * found.noise, 2.0 * cell.effect)


@CASES
def test_noise_and_signal_add_up_to_the_outer_kl(cell: Cell) -> None:
    """On average; nearly so at each update, where minibatches hardly matter."""
    metrics = cell.measured().draws.metrics
    parts = metrics["outer_noise_kl"] + metrics["outer_signal_kl"]
    np.testing.assert_allclose(parts, metrics["outer_kl"], rtol=0.05)
    np.testing.assert_allclose(parts.mean(), metrics["outer_kl"].mean(), rtol=2e-3)


@CASES
def test_noise_scale_reads_what_theory_says(cell: Cell) -> None:
    found = cell.measured()
    assert_one(found.trace, cell.effect)
    assert_one(found.square, cell.effect)
    metrics = found.draws.metrics
    ratio = metrics["noise_trace"] / metrics["gradient_square"]
    np.testing.assert_allclose(metrics["noise_scale"], ratio, rtol=1e-5)


def test_outer_kl_is_exact() -> None:
    """Of every update of the bandit, down to 1e-8 nats, against double precision."""
    found = BANDIT.measured()
    before = np.asarray(found.before["Dense_0"]["kernel"], np.float64)[0]
    after = found.draws.policy["Dense_0"]["kernel"][:, 0].astype(np.float64)
    exact = bandit.kl(before, after)
    metrics = found.draws.metrics
    np.testing.assert_allclose(metrics["outer_kl"], exact, rtol=0.02)
    np.testing.assert_allclose(metrics["outer_kl"].mean(), exact.mean(), rtol=1e-4)
    assert (metrics["kl_to_update_1"] == 0.0).all()  # it is the policy of update 1
    assert np.isnan(metrics["kl_to_update_10"]).all()


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


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["bandit", "lqr"])
def test_split_halves_over_a_grid(environment: str) -> None:
    """N × σ: noise goes as σ²/N, signal as σ², and the bias over all is below 5 %."""
    cells = [
        measured(config, sigma, rounds, envs)
        for config, rounds, envs in GRID[environment]
        for sigma in (0.25, 0.5, 1.0)
    ]
    for part in ("noise", "signal"):
        found = [getattr(cell, part) for cell in cells]
        for ratios in found:
            assert_one(ratios, 0.45)
        together = np.mean(found, axis=0)
        assert_one(together, 0.125)
        assert abs(together.mean() - 1.0) < 0.05


@pytest.mark.slow
def test_halves_that_share_environments_read_too_little_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: every fourth row of the second half is one of the first's."""
    plain = instruments.split

    def sharing(config: RunConfig, batch: Batch, blocks: int) -> Batch:
        def mix(x: Any) -> Any:
            return x.at[1, ::4].set(x[0, ::4])

        return jax.tree.map(mix, plain(config, batch, blocks))

    monkeypatch.setattr(instruments, "split", sharing)
    config = small("bandit", 64)
    found = measured(config, 1.0, 3)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_one(found.noise, 0.1)
    assert_mean(found.noise, 0.75, effect=0.1, false_failure_rate=FOUR)
