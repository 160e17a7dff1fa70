"""Negative controls: their levels are what slow and independent computations say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, stats

from theory import bandit, controls, lqr

NAMES = ("bandit-sparse", "bandit-rank1", "lqr-sparse", "lqr-rank1")
logits = hnp.arrays(np.float64, 10, elements=st.floats(-6, 6))
gains = hnp.arrays(np.float64, (2, 4), elements=st.floats(-0.5, 0.5))


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_reached_is_far_below_the_optimum(name: str) -> None:
    levels = controls.levels(name)
    assert levels.untrained <= levels.reachable
    missing = levels.optimum - levels.reachable
    assert missing >= 0.12 * (levels.optimum - levels.untrained)


def test_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"bandit-dense.*bandit-sparse"):
        controls.levels("bandit-dense")


@given(logits)
def test_sparse_bandit_value_is_the_sum_over_pulls(row: np.ndarray) -> None:
    task = bandit.standard()
    policy = bandit.policy(row)
    pulls = sum(
        policy @ np.array(task.means) + task.temperature * bandit.entropy(row)
        for _ in range(controls.PULLS)
    )
    all_secret = np.prod([policy[controls.SECRET_ARM]] * controls.PULLS)
    expected = pulls + controls.JACKPOT * all_secret
    np.testing.assert_allclose(controls.sparse_bandit_value(row), expected, rtol=1e-12)
    assert expected <= controls.levels("bandit-sparse").optimum


def test_both_maxima_of_the_sparse_bandit_are_maxima() -> None:
    """Values around them are lower, and steepest ascent from uniform finds the trap."""
    generator = np.random.default_rng(0)
    for policy in controls.sparse_bandit_maxima():
        top = controls.sparse_bandit_value(np.log(policy))
        moved = np.log(policy) + 0.05 * generator.normal(size=(1000, 10))
        assert (controls.sparse_bandit_value(moved) <= top + 1e-12).all()
    trap, best = controls.sparse_bandit_maxima()
    found = optimize.minimize(
        lambda row: -controls.sparse_bandit_value(row), np.zeros(10), tol=1e-12
    )
    np.testing.assert_allclose(bandit.policy(found.x), trap, atol=1e-5)
    own, _ = bandit.standard().optimum()
    np.testing.assert_allclose(trap, own, rtol=1e-9)
    assert best[controls.SECRET_ARM] > 0.999


def test_a_bandit_without_the_trap_has_one_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control of the control: without a jackpot both are the bandit's."""
    monkeypatch.setattr(controls, "JACKPOT", 0.0)
    own, _ = bandit.standard().optimum()
    for policy in controls.sparse_bandit_maxima():
        np.testing.assert_allclose(policy, own, rtol=1e-12)


@given(logits)
def test_rank_one_bandit_is_the_mean_over_kinds(row: np.ndarray) -> None:
    task, means = bandit.standard(), np.array(bandit.standard().means)
    kinds = [
        bandit.Bandit(tuple(mu), task.reward_sd, task.temperature).value(row)
        for mu in (means, means[::-1])
    ]
    value = controls.rank_one_bandit().value(row)
    np.testing.assert_allclose(value, np.mean(kinds), rtol=1e-12, atol=1e-12)
    levels = controls.levels("bandit-rank1")
    assert value <= levels.reachable + 1e-12
    knowing = np.mean([task.value(row), task.value(row)])
    assert knowing <= levels.optimum + 1e-12


def covariances(gain: np.ndarray, noise: np.ndarray, steps: int) -> np.ndarray:
    """E xxᵀ at each step, by its recursion."""
    system = lqr.standard()
    closed, found = system.A - system.B @ gain, [np.eye(4)]
    for _ in range(steps - 1):
        entering = system.B @ noise @ system.B.T + system.state_sd**2 * np.eye(4)
        found.append(closed @ found[-1] @ closed.T + entering)
    return np.array(found)


@given(gains)
def test_sparse_lqr_value_equals_the_covariance_recursion(gain: np.ndarray) -> None:
    system = lqr.standard()
    spread = np.sqrt(covariances(gain, system.action_sd**2 * np.eye(2), 250)[:, 0, 0])
    far = 2.0 * stats.norm.sf(controls.THRESHOLD / spread)
    expected = (system.discount ** np.arange(250) * far).sum()
    value = controls.sparse_lqr_value(gain)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-4)
    assert value <= controls.levels("lqr-sparse").optimum


def test_sparse_lqr_comes_to_its_supremum() -> None:
    system = lqr.standard()
    first = np.eye(4)[0]
    values = [
        controls.sparse_lqr_value(-size * np.outer(system.B.T @ first, first))
        for size in (0.0, 1e2, 1e4, 1e8)
    ]
    assert values[0] < 1e-10
    assert values[1] < values[2] < values[3]
    np.testing.assert_allclose(values[3], controls.levels("lqr-sparse").optimum, 1e-5)


def loop_value(gain: np.ndarray, noise: np.ndarray) -> float:
    """J of `lqr` with any action noise, summed over 600 steps."""
    system = lqr.standard()
    total = 0.0
    for step, state in enumerate(covariances(gain, noise, 600)):
        acting = gain @ state @ gain.T + noise
        cost = np.trace(system.Q @ state) + np.trace(system.R @ acting)
        total -= system.discount**step * cost
    return total


def test_rank_one_lqr_levels_equal_the_covariance_recursion() -> None:
    levels, along = controls.levels("lqr-rank1"), np.array([controls.DIRECTION])
    assert np.linalg.norm(along) == pytest.approx(1.0)
    noise = lqr.standard().action_sd ** 2 * along.T @ along
    inner, _ = controls.rank_one_lqr().optimum()
    best, _ = lqr.standard().optimum()
    assert np.linalg.matrix_rank(along.T @ inner) == 1
    for gain, level in (
        (np.zeros((2, 4)), levels.untrained),
        (along.T @ inner, levels.reachable),
        (best, levels.optimum),
    ):
        np.testing.assert_allclose(loop_value(gain, noise), level, rtol=1e-9)


def test_no_gain_is_better_than_the_levels_of_rank_one_lqr() -> None:
    generator = np.random.default_rng(1)
    levels, along = controls.levels("lqr-rank1"), np.array([controls.DIRECTION])
    noise = lqr.standard().action_sd ** 2 * along.T @ along
    inner, _ = controls.rank_one_lqr().optimum()
    best, _ = lqr.standard().optimum()
    for _ in range(10):
        near = along.T @ (inner + 0.05 * generator.normal(size=(1, 4)))
        assert loop_value(near, noise) < levels.reachable
        other = best + 0.05 * generator.normal(size=(2, 4))
        assert loop_value(other, noise) < levels.optimum
