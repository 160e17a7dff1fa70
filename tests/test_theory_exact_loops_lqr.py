"""`theory.exact_loops` on the linear system: rollouts, exact critic, plateaus."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from tests.support.strategies import gains, positive_floats
from theory import kl, lqr
from theory.exact_loops import (
    Plateau,
    Rollouts,
    kl_proximal,
    natural_gradient,
    predicted_constant,
    run_loop,
)

SYSTEM = lqr.standard()
BEST = SYSTEM.optimum()[0]
GAINS = gains(BEST, 0.1).filter(lambda gain: bool(SYSTEM.stable(gain)))
FEW = settings(max_examples=30)


def advantage(gain: np.ndarray, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Q(x, u) − V(x) by Bellman's equation."""
    p, gamma = SYSTEM.value_matrix(gain), SYSTEM.discount
    constant = -np.trace(p) - SYSTEM.value(gain)

    def quadratic(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return (vectors @ matrix * vectors).sum(-1)

    after = states @ SYSTEM.A.T + actions @ SYSTEM.B.T
    ahead = quadratic(after, p) + SYSTEM.state_sd**2 * np.trace(p) + constant
    now = quadratic(states, p) + constant
    cost = quadratic(states, SYSTEM.Q) + quadratic(actions, SYSTEM.R)
    return now - cost - gamma * ahead


SHIFTED = BEST + 0.05
MANY = np.tile(SHIFTED.ravel(), (4000, 1))


@pytest.fixture(scope="module")
def world() -> Any:
    """Environments that have forgotten that they all began an episode at once."""
    _, found = Rollouts(SYSTEM, 120).sample(MANY, 120, None, np.random.default_rng(7))
    return found


@pytest.mark.parametrize("decay", [0.0, 0.95, 1.0])
def test_rollouts_are_unbiased(decay: float, world: Any) -> None:
    task, gain, many = Rollouts(SYSTEM, 8, decay), SHIFTED, MANY
    batch, _ = task.sample(many, 8, world, np.random.default_rng(2))
    found = task.weighted_score(many, batch, batch.advantages)
    expected = SYSTEM.termination * SYSTEM.gradient(gain).ravel()
    assert_mean(found, expected, effect=0.1)
    off = batch.advantages - advantage(gain, batch.states, batch.actions)
    assert_mean(off.mean(1), 0, effect=0.1)
    assert_mean((off[..., None] * batch.actions**2).mean(1), np.zeros(2), effect=0.1)
    visited = np.einsum("...i,...j->...ij", batch.states, batch.states).mean(1)
    assert_mean(visited, SYSTEM.state_covariance(gain), effect=0.1)
    fisher = np.einsum("...i,...j->...ij", *(2 * [task.scores(many, batch)])).mean(1)
    assert_mean(fisher, SYSTEM.fisher(gain), effect=2)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(found, expected + 0.1, effect=0.1)


def test_batches_keep_environments_together() -> None:
    task, many = Rollouts(SYSTEM, 4), np.zeros((2, 8))
    batch, world = task.sample(many, 12, None, np.random.default_rng(0))
    assert batch.units.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert world.shape == (2, 3, 4)
    after = batch.states[:, :-1] @ SYSTEM.A.T + batch.actions[:, :-1] @ SYSTEM.B.T
    apart = np.abs(batch.states[:, 1:] - after).max(-1)
    within = np.arange(11) % 4 != 3
    assert np.median(apart[:, within]) < 0.3 < np.median(apart[:, ~within])
    weights = batch.advantages
    found = task.weighted_score(many, batch, weights)
    scores = task.scores(many, batch)
    assert np.allclose(found, (weights[..., None] * scores).mean(1))
    assert np.allclose(batch.log_policy, task.log_policy(many, batch))


def test_scores_are_the_slopes_of_the_log_policy() -> None:
    task, many = Rollouts(SYSTEM, 4), np.tile(BEST.ravel(), (1, 1))
    batch, _ = task.sample(many, 4, None, np.random.default_rng(0))
    for place, change in enumerate(1e-5 * np.eye(8)):
        rise = task.log_policy(many + change, batch) - task.log_policy(
            many - change, batch
        )
        assert np.allclose(task.scores(many, batch)[..., place], rise / 2e-5, atol=1e-6)


@given(GAINS, GAINS)
@FEW
def test_natural_equals_a_solve(gain: np.ndarray, other: np.ndarray) -> None:
    task, point = Rollouts(SYSTEM), gain.ravel()[None]
    gradient = other.ravel()[None]
    expected = np.linalg.solve(SYSTEM.fisher(gain), other.ravel())
    assert np.allclose(task.natural(point, gradient)[0], expected, rtol=1e-6)
    assert np.allclose(task.gradient(point)[0], 0.05 * SYSTEM.gradient(gain).ravel())
    assert task.gap(point)[0] == pytest.approx(SYSTEM.gap(gain), rel=1e-12)
    assert task.kl(point, gradient)[0] == pytest.approx(SYSTEM.kl(gain, other))


@given(GAINS, GAINS, positive_floats(1e-2, 1e2))
@FEW
def test_proximal_solves_its_equation(
    gain: np.ndarray, anchor: np.ndarray, eta: float
) -> None:
    task = Rollouts(SYSTEM)
    point, held = gain.ravel()[None], anchor.ravel()[None]
    gradient = task.gradient(point)
    found = task.proximal(point, held, gradient, eta)
    p = SYSTEM.value_matrix(gain)
    inner = 2 * (SYSTEM.R + SYSTEM.discount * SYSTEM.B.T @ p @ SYSTEM.B)
    curvature = np.kron(inner, SYSTEM.state_covariance(gain))
    left = (
        curvature @ (found - point)[0] + SYSTEM.fisher(gain) @ (found - held)[0] / eta
    )
    assert np.allclose(left, gradient[0], atol=1e-7 * (1 + 1 / eta))


def test_proximal_steps_without_penalty_are_policy_iteration() -> None:
    runs = run_loop(
        Rollouts(SYSTEM), kl_proximal(1e9), np.inf, 12, 1, np.random.default_rng(0)
    )
    assert runs.gap[0, -1] < 1e-12
    assert np.allclose(runs.acting[0, -1], BEST.ravel(), atol=1e-6)


@given(st.floats(0.1, 20), st.integers(0, 5))
@settings(max_examples=15)
def test_natural_steps_contract_whatever_is_visited(eta: float, updates: int) -> None:
    """K − K* shrinks by I − 2ησ_u²(R + γBᵀP*B), to first order."""
    change = 1e-6 * np.sin(np.arange(8)).reshape(2, 4)
    task = Rollouts(SYSTEM, initial=(BEST + change).ravel())
    when, generator = [updates, updates + 1], np.random.default_rng(0)
    runs = run_loop(task, natural_gradient(eta), np.inf, when, 1, generator)
    p = SYSTEM.value_matrix(BEST)
    inner = SYSTEM.R + SYSTEM.discount * SYSTEM.B.T @ p @ SYSTEM.B
    shrink = np.eye(2) - 2 * eta * SYSTEM.action_sd**2 * inner
    expected = np.linalg.matrix_power(shrink, updates) @ change
    found = runs.acting[0, 0].reshape(2, 4) - BEST
    assert np.allclose(found, expected, atol=1e-10)


# Plateaus.


# Noise in every state, and short episodes: no rare large states, few samples needed.
TAME = replace(SYSTEM, state_sd=0.5, termination=0.2)
CALM = Rollouts(TAME, rollout_length=4, decay=0.0, initial=TAME.optimum()[0].ravel())
STEP = 4.0


@pytest.fixture(scope="module")
def plateau() -> Plateau:
    """Natural steps from the optimum."""
    generator = np.random.default_rng(1)
    return run_loop(CALM, natural_gradient(STEP), 512, 100, 160, generator).plateau()


def natural_curvatures() -> np.ndarray:
    """Of the objective per transition, at the optimum: 2σ_u²(R + γBᵀP*B)."""
    p = TAME.value_matrix(TAME.optimum()[0])
    inner = TAME.R + TAME.discount * TAME.B.T @ p @ TAME.B
    return 2 * TAME.action_sd**2 * np.linalg.eigvalsh(inner)


def test_the_kl_gives_the_gap(plateau: Plateau) -> None:
    """Property 26, with states and time: gap per episode = length·KL/(2η)."""
    per_transition = kl.stationary_gap(plateau.outer_kl.mean(), STEP)
    ratio = plateau.gap / (CALM.episode_length * per_transition)
    assert_mean(ratio, 1, effect=0.25)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(ratio, 1.25, effect=0.25)


def test_the_constant_is_known_from_the_optimum(plateau: Plateau) -> None:
    """gap·√DDR from scores and advantages alone, times the mean episode length."""
    predicted = predicted_constant(CALM, 300_000, np.random.default_rng(0))
    assert predicted.standard_error < 0.01 * predicted.constant
    finite = np.sqrt(2 / (2 - STEP * natural_curvatures().mean()))
    ratio = plateau.constants / (predicted.constant * finite)
    assert_mean(ratio, 1, effect=0.2)
    with pytest.raises(AssertionError, match="mean deviates"):  # an episode has 5 steps
        assert_mean(CALM.episode_length * ratio, 1, effect=1)


def test_an_unstable_run_ends_with_an_infinite_gap() -> None:
    task = replace(Rollouts(SYSTEM, rollout_length=4), initial=BEST.ravel())
    generator = np.random.default_rng(0)
    runs = run_loop(task, natural_gradient(500.0), 8, [0, 5, 50], 4, generator)
    assert np.isfinite(runs.gap[:, 0]).all()
    assert (runs.gap[:, -1] == np.inf).all()
    assert (runs.mean_gap[:, -1] == np.inf).all()
    assert np.isfinite(runs.acting).all()
    assert np.isfinite(runs.outer_kl).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Rollouts(SYSTEM, 0), "rollout_length is 0"),
        (lambda: Rollouts(SYSTEM, decay=1.5), "decay is 1.5"),
        (lambda: Rollouts(SYSTEM, initial=[1.0]).start, r"initial has shape \(1,\)"),
        (lambda: run(np.full(8, 9.0), 32), "return must be finite"),
        (lambda: run(np.zeros(8), 33), "must be a multiple of the rollout length"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def run(initial: np.ndarray, samples: int) -> Any:
    task = Rollouts(SYSTEM, initial=initial)
    return run_loop(task, natural_gradient(1), samples, 2, 1, np.random.default_rng(0))
