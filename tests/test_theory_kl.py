"""`theory.kl`: identities against Lyapunov solvers, enumeration, real policies."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from tests.support.statistical import assert_mean
from tests.support.strategies import (
    coms,
    fractions_between,
    positive_floats,
    positive_fractions,
    positive_matrices,
)
from theory import bandit, kl, outer

METRICS = positive_matrices(3)


def stationary_step(
    step: float, curvature: Any, noise: Any, precondition: Any, momentum: float = 0
) -> tuple[float, np.ndarray]:
    """Gap and covariance of the step of Δ' = −ηP(Hx + ξ) + μΔ, by a Lyapunov solver."""
    d = len(curvature)
    pull = step * precondition @ curvature
    one = np.eye(d)
    matrix = np.block([[one - pull, momentum * one], [-pull, momentum * one]])
    load = np.vstack([-step * precondition] * 2)
    solved = solve_discrete_lyapunov(matrix, load @ noise @ load.T, method="direct")
    return float(np.trace(curvature @ solved[:d, :d])) / 2, solved[d:, d:]


def fraction_of_limit(curvature: Any, precondition: Any, share: float) -> float:
    """A step that is a share of the largest stable one without momentum."""
    return share * 2 / np.abs(np.linalg.eigvals(precondition @ curvature)).max()


SHARES = st.floats(0.01, 0.95)


@given(METRICS, METRICS, METRICS, SHARES, st.floats(0, 0.9))
def test_gap_is_the_kl_of_natural_steps_over_twice_the_step(
    fisher: np.ndarray,
    curvature: np.ndarray,
    noise: np.ndarray,
    share: float,
    momentum: float,
) -> None:
    """Property 26: gap = KL/(2η) for random F, H, Σ and any stable η."""
    natural = np.linalg.inv(fisher)
    step = fraction_of_limit(curvature, natural, share)
    gap, moved = stationary_step(step, curvature, noise, natural, momentum)
    found = kl.stationary_gap(np.trace(fisher @ moved) / 2, step, momentum)
    assert found == pytest.approx(gap, rel=1e-6)


@given(METRICS, METRICS, METRICS, SHARES)
def test_gap_of_any_preconditioner(
    precondition: np.ndarray, curvature: np.ndarray, noise: np.ndarray, share: float
) -> None:
    """Property 26, for P: gap = E ΔᵀP⁻¹Δ/(4η)."""
    step = fraction_of_limit(curvature, precondition, share)
    gap, moved = stationary_step(step, curvature, noise, precondition)
    square = np.trace(np.linalg.solve(precondition, moved))
    assert kl.stationary_gap(square / 2, step) == pytest.approx(gap, rel=1e-6)


@given(fractions_between(0, 4), positive_fractions(), fractions_between(-1, 1))
def test_stationary_gap_is_exact_in_fractions(a: F, h: F, mu: F) -> None:
    loop = outer.heavy_ball(a / h, h, mu)
    assume(loop.stable)
    state = loop.stationary(3, 5)
    assert kl.stationary_gap(state.kl_per_update, a / h, mu) == state.loss


@given(fractions_between(0, 1), positive_fractions())
def test_an_averaged_anchor_breaks_the_identity(a: F, com: F) -> None:
    """In this model the identity fails under an anchor: the KL says too large a gap."""
    state = outer.ewma_linear(a, 1, com).stationary(1, 1)
    assert kl.stationary_gap(state.kl_per_update, a) > state.loss


# Signal and noise.


def test_step_kl_equals_enumeration() -> None:
    """One sample per update on a bandit without reward noise: ten outcomes, exactly."""
    task = bandit.Bandit(means=bandit.standard().means, reward_sd=0, temperature=0.2)
    logits = np.linspace(-1, 1, 10)
    pi, means = bandit.policy(logits), np.array(task.means)
    # Gradient ascent on the sampled reward alone: outcome i has probability π_i.
    outcomes = (means - pi @ means)[:, None] * (np.eye(10) - pi)
    gradient = pi @ outcomes
    noise = (outcomes - gradient).T * pi @ (outcomes - gradient)
    step = 1e-3
    found = kl.step_kl(gradient, noise, bandit.fisher(logits), step, 1, np.eye(10))
    exact = pi @ bandit.kl(logits, logits + step * outcomes)
    assert found.total == pytest.approx(exact, rel=1e-3)
    assert found.ddr == pytest.approx(1 / exact, rel=1e-3)


@given(METRICS, METRICS, METRICS, st.integers(1, 1000))
def test_parts_of_the_kl_add_up(
    fisher: np.ndarray, noise: np.ndarray, precondition: np.ndarray, n: int
) -> None:
    gradient = np.array([1.0, -2.0, 0.5])
    part = kl.step_kl(gradient, noise, fisher, 0.3, n, precondition)
    move = 0.3 * precondition @ gradient
    assert part.signal == pytest.approx(move @ fisher @ move / 2)
    spread = 0.09 * precondition @ noise @ precondition / n
    assert part.noise == pytest.approx(np.trace(fisher @ spread) / 2)
    assert part.total == part.signal + part.noise
    corrected = kl.noise_ddr(part.ddr, n, part.noise_scale)
    assert corrected == pytest.approx(part.ddr_noise)
    share = part.signal / part.total
    assert share == pytest.approx(1 / (1 + part.noise_scale / n))


@given(METRICS, METRICS)
def test_noise_scale_is_natural_for_natural_steps(
    fisher: np.ndarray, noise: np.ndarray
) -> None:
    gradient = np.array([1.0, -2.0, 0.5])
    natural = np.linalg.inv(fisher)
    expected = np.trace(natural @ noise) / (gradient @ natural @ gradient)
    found = kl.step_kl(gradient, noise, fisher, 0.3, 7)
    assert found.noise_scale == pytest.approx(expected)
    simple = np.trace(noise) / (gradient @ gradient)
    isotropic = kl.step_kl(gradient, noise, 2 * np.eye(3), 0.3, 7)
    assert isotropic.noise_scale == pytest.approx(simple)


def test_a_step_of_nothing() -> None:
    part = kl.step_kl([0.0, 0.0], np.eye(2), np.eye(2), 0.0, 4)
    assert part.ddr == np.inf
    assert part.ddr_noise == np.inf


def test_noise_ddr_is_exact_in_fractions() -> None:
    found = kl.noise_ddr(F(3, 2), 4, 8)
    assert found == F(9, 4)
    assert isinstance(found, F)


# What a loop does to the constant.


def test_factor_of_heavy_ball_in_symbols() -> None:
    a, mu = sympy.symbols("a mu", positive=True)
    found = kl.ddr_factor(outer.heavy_ball(a, 1, mu))
    squared = sympy.Rational(2) * (1 + mu) ** 2 / ((1 - mu) * (2 * (1 + mu) - a))
    assert sympy.simplify(found**2 - squared) == 0
    assert sympy.simplify(squared.subs(a, 0) - (1 + mu) / (1 - mu)) == 0


@given(fractions_between(0, 2), positive_fractions())
def test_factor_of_plain_descent(a: F, h: F) -> None:
    found = kl.ddr_factor(outer.sgd(a / h, h))
    assert found == pytest.approx(float(2 / (2 - a)) ** 0.5, rel=1e-12)


@given(fractions_between(0, 1), coms(), positive_fractions())
def test_ddr_misorders_runs_across_com(a: F, com: F, more: F) -> None:
    """In this model a longer memory of the anchor lowers plateau and DDR together."""
    one = outer.ewma_proximal(a, 1, com).stationary(1, 1)
    two = outer.ewma_proximal(a, 1, com + more).stationary(1, 1)
    assert two.loss < one.loss
    assert two.kl_per_update > one.kl_per_update


def test_factor_is_inf_where_a_cell_is_unstable() -> None:
    found = kl.ddr_factor(outer.sgd(np.array([0.5, 3.0]), 1.0))
    assert found[0] == pytest.approx((2 / 1.5) ** 0.5)
    assert found[1] == np.inf
    with pytest.raises(ValueError, match="no stationary state"):
        kl.ddr_factor(outer.sgd(3, 1))


BANDIT_STEP, SAMPLES_PER_ARM = 0.2, 200


def bandit_plateau(
    loop: outer.EwmaProximal, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gap and KL per update, per seed, of a policy held near an average of its past.

    Each update maximises ⟨ĝ, π⟩ + τH(π) − KL(π ‖ anchor)/η over policies, with every
    arm's mean reward ĝ estimated from samples of its own; the anchor is the normalised
    geometric mean of past policies.
    """
    task, updates, seeds = bandit.standard(), 400, 1000
    generator = np.random.default_rng(seed)
    best = np.array(task.means) / task.temperature
    start = loop.stationary(1, SAMPLES_PER_ARM).reference_variance ** 0.5
    anchor = best + start * generator.normal(size=(seeds, len(best)))
    before, gaps, moves = anchor, np.zeros(seeds), np.zeros(seeds)
    for update in range(updates + 1):
        noise = generator.normal(size=anchor.shape) / np.sqrt(SAMPLES_PER_ARM)
        logits = anchor + BANDIT_STEP * (task.means + noise)
        logits = logits / (1 + BANDIT_STEP * task.temperature)
        if update:
            gaps += task.gap(logits) / updates
            moves += bandit.kl(before, logits) / updates
        anchor = (loop.com_updates * anchor + logits) / (1 + loop.com_updates)
        before = logits
    return gaps, moves


def test_ddr_misorders_real_policies_across_com() -> None:
    """In this model, on the bandit: gap = ½τ·tr F*·V, and DDR falls with the gap."""
    task = bandit.standard()
    spread = 1 - (task.optimum()[0] ** 2).sum()
    mean_gaps, mean_moves = [], []
    for com in (0.0, 3.0, 30.0):
        loop = outer.ewma_proximal(BANDIT_STEP, task.temperature, com)
        state = loop.stationary(1, SAMPLES_PER_ARM)
        gaps, moves = bandit_plateau(loop, seed=5)
        assert_mean(gaps, spread * state.loss, effect=0.15 * spread * state.loss)
        expected = spread * state.kl_per_update
        assert_mean(moves, expected, effect=0.03 * expected)
        mean_gaps.append(gaps.mean())
        mean_moves.append(moves.mean())
    assert mean_gaps[0] > mean_gaps[1] > mean_gaps[2]
    assert mean_moves[0] < mean_moves[1] < mean_moves[2]
    plain = outer.sgd(BANDIT_STEP, task.temperature).stationary(1, SAMPLES_PER_ARM)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(gaps, spread * plain.loss, effect=spread * plain.loss)


# Path length.


@given(
    positive_matrices(3), st.integers(1, 30), positive_floats(), st.integers(0, 10**6)
)
def test_path_is_at_least_the_distance(
    fisher: np.ndarray, updates: int, scale: float, seed: int
) -> None:
    """Property 28: |x_K−x_0| ≤ Σ√(2KL) ≤ √(2KΣKL), in the metric F."""
    steps = scale * np.random.default_rng(seed).standard_t(2, size=(updates, 3))
    kls = np.array([step @ fisher @ step / 2 for step in steps])
    moved = steps.sum(0)
    distance = np.sqrt(moved @ fisher @ moved)
    length = kl.path_length(kls)
    assert distance <= length * (1 + 1e-9)
    assert length <= np.sqrt(2 * updates * kls.sum()) * (1 + 1e-9)
    n = 10
    if distance > 0:
        largest = kl.largest_ddr(updates * n, n, distance)
        assert updates * n / kls.sum() <= largest * (1 + 1e-9)


def test_a_straight_path_at_constant_speed_attains_the_bound() -> None:
    assert kl.path_length(np.full((2, 5), 0.5)) == pytest.approx([5, 5])
    found = kl.largest_ddr(50, 10, 5)
    assert found == F(20)
    assert isinstance(found, F)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: kl.stationary_gap(-1, 1), "kl_per_update"),
        (lambda: kl.stationary_gap(1, 0), "outer_step"),
        (lambda: kl.stationary_gap(1, 1, 1), "momentum"),
        (lambda: kl.stationary_gap(1, 1, float("nan")), "momentum"),
        (lambda: kl.step_kl([], np.eye(2), np.eye(2), 1, 1), "gradient"),
        (lambda: kl.step_kl([1, np.nan], np.eye(2), np.eye(2), 1, 1), "gradient"),
        (lambda: kl.step_kl([1, 1], np.eye(3), np.eye(2), 1, 1), "noise_covariance"),
        (lambda: kl.step_kl([1, 1], np.eye(2), -np.eye(2), 1, 1), "fisher"),
        (lambda: kl.step_kl([1, 1], np.eye(2), np.eye(2), -1, 1), "outer_step"),
        (lambda: kl.step_kl([1, 1], np.eye(2), np.eye(2), 1, 0), "samples_per_update"),
        (
            lambda: kl.step_kl([1, 1], np.eye(2), [[1, 2], [0, 1]], 1, 1),
            "fisher differs from its transpose",
        ),
        (lambda: kl.step_kl([1], [[np.inf]], [[1]], 1, 1), "noise_covariance"),
        (lambda: kl.noise_ddr(0, 1, 1), "ddr"),
        (lambda: kl.noise_ddr(1, 1, -1), "noise_scale"),
        (lambda: kl.path_length([1, -1]), "kl_per_update"),
        (lambda: kl.path_length(np.array(1.0)), "kl_per_update"),
        (lambda: kl.largest_ddr(1, 1, 0), "distance"),
        (lambda: kl.largest_ddr(float("inf"), 1, 1), "budget"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
