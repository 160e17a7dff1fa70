"""`theory.lqr`: series, solvers, differences, Monte Carlo, identities, refusals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from tests.support.statistical import assert_mean
from tests.support.strategies import gains, positive_floats, rotations
from theory import lqr

STANDARD = lqr.standard()
BEST, BEST_VALUE = STANDARD.optimum()
ZERO = np.zeros_like(BEST)
GAINS = gains(BEST).filter(lambda gain: bool(STANDARD.stable(gain)))
FEW = settings(max_examples=30, deadline=None)


def series(system: lqr.Lqr, gain: np.ndarray) -> tuple[float, np.ndarray]:
    """Return and summed E xxᵀ of an episode, term by term."""
    closed = system.A - system.B @ gain
    fresh = system.state_sd**2 * np.eye(len(system.A))
    fresh = fresh + system.action_sd**2 * system.B @ system.B.T
    cost = system.Q + gain.T @ system.R @ gain
    exploring = system.action_sd**2 * np.trace(system.R)
    moment, weight = np.eye(len(system.A)), 1.0
    value, total = 0.0, np.zeros_like(moment)
    for _ in range(2000):
        value -= weight * (np.trace(cost @ moment) + exploring)
        total += weight * moment
        moment = closed @ moment @ closed.T + fresh
        weight *= 1 - system.termination
    return value, total


def episodes(gain: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and summed xxᵀ of simulated episodes, played out to their end."""
    generator = np.random.default_rng(13)
    states, actions = STANDARD.B.shape
    x = generator.normal(size=(number, states))
    returns, moments = np.zeros(number), np.zeros((number, states, states))
    alive = np.arange(number)
    while alive.size:
        u = -x @ gain.T + STANDARD.action_sd * generator.normal(size=(len(x), actions))
        cost = np.einsum("ni,ij,nj->n", x, STANDARD.Q, x)
        cost += np.einsum("ni,ij,nj->n", u, STANDARD.R, u)
        returns[alive] -= cost
        moments[alive] += x[:, :, None] * x[:, None, :]
        noise = STANDARD.state_sd * generator.normal(size=x.shape)
        x = x @ STANDARD.A.T + u @ STANDARD.B.T + noise
        going = generator.random(len(x)) >= STANDARD.termination
        alive, x = alive[going], x[going]
    return returns, moments


def difference(function: Callable[[np.ndarray], Any], gain: np.ndarray) -> np.ndarray:
    """Central differences of a function that takes leading axes."""
    changes = 1e-5 * np.eye(gain.size).reshape(-1, *gain.shape)
    slopes = (function(gain + changes) - function(gain - changes)) / 2e-5
    return slopes.reshape(gain.shape)


def test_standard_instance() -> None:
    assert STANDARD.value(ZERO) == pytest.approx(-6.94, abs=0.005)
    assert pytest.approx(-1.94, abs=0.005) == BEST_VALUE
    generator = np.random.default_rng(3)
    drawn = generator.normal(size=(4, 4))
    assert np.allclose(STANDARD.A * (drawn[0, 0] / STANDARD.A[0, 0]), drawn)
    assert np.abs(np.linalg.eigvals(STANDARD.A)).max() == pytest.approx(0.95)
    assert np.array_equal(STANDARD.B, 0.5 * generator.normal(size=(4, 2)))
    assert np.array_equal(lqr.instance(3, 4, 2).A, STANDARD.A)
    assert STANDARD.discount == 0.95


# Oracles.


@given(GAINS)
@FEW
def test_value_and_covariance_equal_their_series(gain: np.ndarray) -> None:
    if np.abs(np.linalg.eigvals(STANDARD.A - STANDARD.B @ gain)).max() > 1.01:
        return  # the series is then too slow to be an oracle
    value, total = series(STANDARD, gain)
    assert STANDARD.value(gain) == pytest.approx(value, rel=1e-9)
    assert np.allclose(STANDARD.state_covariance(gain), 0.05 * total, rtol=1e-8)


@given(GAINS)
@FEW
def test_matrices_equal_a_lyapunov_solver(gain: np.ndarray) -> None:
    closed = np.sqrt(STANDARD.discount) * (STANDARD.A - STANDARD.B @ gain)
    cost = STANDARD.Q + gain.T @ STANDARD.R @ gain
    value = solve_discrete_lyapunov(closed.T, cost, method="direct")
    assert np.allclose(STANDARD.value_matrix(gain), value, rtol=1e-8)
    fresh = 0.1**2 * np.eye(4) + 0.3**2 * STANDARD.B @ STANDARD.B.T
    start = 0.05 * np.eye(4) + 0.95 * fresh
    visited = solve_discrete_lyapunov(closed, start, method="direct")
    assert np.allclose(STANDARD.state_covariance(gain), visited, rtol=1e-8)


def test_optimum_equals_policy_iteration() -> None:
    gain = ZERO
    for _ in range(30):
        forward = STANDARD.discount * STANDARD.B.T @ STANDARD.value_matrix(gain)
        gain = np.linalg.solve(STANDARD.R + forward @ STANDARD.B, forward @ STANDARD.A)
    assert np.allclose(gain, BEST, atol=1e-10)
    assert np.abs(STANDARD.gradient(BEST)).max() < 1e-10


@given(GAINS)
@FEW
def test_gradient_equals_finite_differences(gain: np.ndarray) -> None:
    expected = difference(STANDARD.value, gain)
    scale = np.abs(expected).max()
    assert np.allclose(STANDARD.gradient(gain), expected, atol=1e-5 * (1 + scale))


@given(GAINS)
@FEW
def test_gap_is_the_distance_to_the_optimum(gain: np.ndarray) -> None:
    expected = BEST_VALUE - STANDARD.value(gain)
    assert STANDARD.gap(gain) == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert STANDARD.gap(gain) >= 0
    tiny = STANDARD.gap(BEST + 1e-9 * gain)
    assert tiny == pytest.approx(1e-18 * _curvature_along(gain), rel=1e-5)


def test_return_and_covariance_equal_monte_carlo() -> None:
    gain = BEST + 0.1
    returns, moments = episodes(gain, 40_000)
    assert_mean(returns, STANDARD.value(gain), effect=0.1)
    total = STANDARD.state_covariance(gain) / STANDARD.termination
    assert_mean(moments, total, effect=0.9)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(returns, STANDARD.value(gain) + 0.1, effect=0.1)


def test_kl_equals_monte_carlo() -> None:
    generator = np.random.default_rng(17)
    other = BEST + 0.1
    root = np.linalg.cholesky(STANDARD.state_covariance(BEST))
    x = generator.normal(size=(50_000, 4)) @ root.T
    first, second = -x @ BEST.T, -x @ other.T
    u = first + STANDARD.action_sd * generator.normal(size=first.shape)
    ratio = ((u - second) ** 2 - (u - first) ** 2).sum(-1) / (2 * STANDARD.action_sd**2)
    expected = STANDARD.kl(BEST, other)
    assert_mean(ratio, expected, effect=0.1)
    assert_mean(STANDARD.kl(BEST, other, x), expected, effect=0.1)


# Properties.


@given(GAINS, GAINS)
@FEW
def test_kl_is_the_fisher_quadratic_form(one: np.ndarray, two: np.ndarray) -> None:
    change = (one - two).ravel()
    expected = change @ STANDARD.fisher(one) @ change / 2
    assert STANDARD.kl(one, two) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert STANDARD.kl(one, one) == 0


@given(GAINS)
@FEW
def test_fisher_and_covariance_are_positive(gain: np.ndarray) -> None:
    assert np.linalg.eigvalsh(STANDARD.state_covariance(gain)).min() > 0
    fisher = STANDARD.fisher(gain)
    assert np.allclose(fisher, fisher.T)
    assert np.linalg.eigvalsh(fisher).min() > 0
    assert np.linalg.eigvalsh(STANDARD.value_matrix(gain)).min() > 0


@given(gains(BEST, spread=3.0))
@FEW
def test_stable_means_a_finite_return(gain: np.ndarray) -> None:
    radius = np.abs(np.linalg.eigvals(STANDARD.A - STANDARD.B @ gain)).max()
    assert STANDARD.stable(gain) == (np.sqrt(0.95) * radius < 1)
    assert STANDARD.stable(gain) == np.isfinite(STANDARD.value(gain))
    assert STANDARD.stable(gain) == np.isfinite(STANDARD.gap(gain))


@given(GAINS, rotations(4), rotations(2))
@FEW
def test_rotating_the_axes_changes_nothing(
    gain: np.ndarray, turn: np.ndarray, spin: np.ndarray
) -> None:
    rotated = replace(
        STANDARD, A=turn @ STANDARD.A @ turn.T, B=turn @ STANDARD.B @ spin.T
    )
    turned = spin @ gain @ turn.T
    assert rotated.value(turned) == pytest.approx(STANDARD.value(gain), rel=1e-9)
    expected = turn @ STANDARD.state_covariance(gain) @ turn.T
    assert np.allclose(rotated.state_covariance(turned), expected)
    assert np.allclose(
        rotated.gradient(turned), spin @ STANDARD.gradient(gain) @ turn.T
    )


@given(GAINS, positive_floats(0.01, 100))
@FEW
def test_scaling_the_costs_scales_the_return(gain: np.ndarray, k: float) -> None:
    scaled = replace(STANDARD, Q=k * STANDARD.Q, R=k * STANDARD.R)
    assert scaled.value(gain) == pytest.approx(k * STANDARD.value(gain), rel=1e-9)
    assert np.allclose(scaled.optimum()[0], BEST, atol=1e-9)


@given(GAINS)
@FEW
def test_exploration_costs_but_does_not_move_the_optimum(gain: np.ndarray) -> None:
    quiet = replace(STANDARD, action_sd=0.1, state_sd=0.0)
    assert quiet.value(gain) > STANDARD.value(gain)
    assert np.array_equal(quiet.optimum()[0], BEST)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
@FEW
def test_other_instances_have_a_stationary_optimum(
    seed: int, states: int, actions: int
) -> None:
    system = lqr.instance(seed, states, actions)
    best, value = system.optimum()
    assert best.shape == (actions, states)
    assert np.abs(system.gradient(best)).max() < 1e-8
    assert system.value(np.zeros_like(best)) <= value
    assert system.gap(best) == pytest.approx(0, abs=1e-12)


def test_leading_axes_are_kept() -> None:
    many = BEST + 0.05 * np.random.default_rng(1).normal(size=(2, 3, 2, 4))
    many[0, 0] += 50.0
    assert not STANDARD.stable(many)[0, 0]
    assert STANDARD.value(many)[0, 0] == -np.inf
    assert STANDARD.gap(many)[0, 0] == np.inf
    states = np.ones((7, 4))
    for function, shape in (
        (STANDARD.value, (3,)),
        (STANDARD.gap, (3,)),
        (STANDARD.stable, (3,)),
        (STANDARD.value_matrix, (3, 4, 4)),
        (STANDARD.gradient, (3, 2, 4)),
        (STANDARD.state_covariance, (3, 4, 4)),
        (STANDARD.fisher, (3, 8, 8)),
        (lambda gain: STANDARD.kl(gain, BEST), (3,)),
        (lambda gain: STANDARD.kl(gain, BEST, states), (3, 7)),
    ):
        found = function(many[1])
        assert found.shape == shape
        assert np.allclose(found[2], function(many[1, 2]))


UNSTABLE = BEST + 50.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: STANDARD.value_matrix(UNSTABLE), "spectral radius"),
        (lambda: STANDARD.gradient(UNSTABLE), "spectral radius"),
        (lambda: STANDARD.state_covariance(UNSTABLE), "spectral radius"),
        (lambda: STANDARD.fisher(UNSTABLE), "spectral radius"),
        (lambda: STANDARD.kl(UNSTABLE, BEST), "spectral radius"),
        (lambda: STANDARD.value(np.zeros((4, 2))), "gain has shape"),
        (lambda: STANDARD.value(ZERO + np.nan), "gain holds nan"),
        (lambda: replace(STANDARD, A=np.eye(3)), "A has shape"),
        (lambda: replace(STANDARD, Q=-np.eye(4)), "Q has the eigenvalue -1"),
        (lambda: replace(STANDARD, R=np.zeros((2, 2))), "R has the eigenvalue 0"),
        (lambda: replace(STANDARD, Q=np.triu(np.ones((4, 4)))), "not symmetric"),
        (lambda: replace(STANDARD, state_sd=-1), "state_sd is -1"),
        (lambda: replace(STANDARD, action_sd=0), "action_sd is 0"),
        (lambda: replace(STANDARD, termination=1), "termination is 1"),
        (lambda: replace(STANDARD, B=np.full((4, 2), np.inf)), "B holds inf"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def _curvature_along(gain: np.ndarray) -> float:
    """d² of the gap: tr[Dᵀ(R + γBᵀP*B)D·S*] for the direction D."""
    p = STANDARD.value_matrix(BEST)
    weight = STANDARD.R + STANDARD.discount * STANDARD.B.T @ p @ STANDARD.B
    moment = STANDARD.state_covariance(BEST) / STANDARD.termination
    return float(np.trace(gain.T @ weight @ gain @ moment))
