"""`theory.outer.matrix_sgd`: independent solvers, symmetries, identities, refusals."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from tests.support.statistical import assert_mean
from tests.support.strategies import positive_matrices, rotations
from theory import outer
from theory.outer import MatrixSgd, stationary_covariance

SIZE = 3
MATRICES = positive_matrices(SIZE)
SHARES = st.floats(0.02, 0.98)


def loop_at(share: float, H: np.ndarray, P: np.ndarray | None = None) -> MatrixSgd:
    """The loop at a share of the greatest stable step."""
    return outer.matrix_sgd(share * outer.matrix_sgd(1, H, P).stability_limit, H, P)


def close(found: np.ndarray, expected: np.ndarray, digits: float = 1e-9) -> bool:
    return bool(np.abs(found - expected).max() <= digits * np.abs(expected).max())


@given(SHARES, MATRICES, MATRICES, MATRICES, MATRICES)
def test_closed_form_equals_lyapunov(
    share: float, H: np.ndarray, P: np.ndarray, noise: np.ndarray, F: np.ndarray
) -> None:
    """Property 7: the closed form solves the Lyapunov equation, for any P."""
    loop = loop_at(share, H, P)
    state = loop.stationary(noise, 4, fisher=F)
    eta, eye = loop.outer_step, np.eye(SIZE)
    M, G = eye - eta * P @ H, -eta * P
    driven = G @ noise @ G.T / 4
    C = state.covariance
    assert close(C, solve_discrete_lyapunov(M, driven, method="direct"), 1e-7)
    assert close(C, stationary_covariance(M, G, noise / 4), 1e-7)
    assert close(M @ C @ M.T + driven, C)
    assert np.array_equal(C, C.T)
    assert np.linalg.eigvalsh(C)[0] > 0
    moved = (M - eye) @ C @ (M - eye).T + driven
    assert close(state.step_covariance, moved)
    assert state.kl_per_update == pytest.approx(np.trace(F @ moved) / 2)
    assert state.loss == pytest.approx(np.trace(H @ C) / 2)


@given(st.floats(0.01, 3), MATRICES, MATRICES)
def test_stable_means_spectral_radius_below_one(
    eta: float, H: np.ndarray, P: np.ndarray
) -> None:
    loop = outer.matrix_sgd(eta, H, P)
    radius = np.abs(np.linalg.eigvals(np.eye(SIZE) - eta * P @ H)).max()
    if abs(radius - 1) > 1e-9:
        assert loop.stable == (radius < 1)


@given(SHARES, MATRICES, MATRICES, rotations(SIZE))
def test_plateau_turns_with_the_parameters(
    share: float, H: np.ndarray, noise: np.ndarray, Q: np.ndarray
) -> None:
    """Property 7: rotating H and Σ rotates the covariance."""
    C = loop_at(share, H).stationary(noise, 1).covariance
    turned_loop = outer.matrix_sgd(loop_at(share, H).outer_step, Q @ H @ Q.T)
    turned = turned_loop.stationary(Q @ noise @ Q.T, 1).covariance
    assert close(turned, Q @ C @ Q.T, 1e-7)


@given(SHARES, MATRICES, MATRICES, MATRICES)
def test_fluctuation_dissipation(
    share: float, H: np.ndarray, P: np.ndarray, noise: np.ndarray
) -> None:
    """Property 8: 2 tr(HC) = η(tr Σ/n + tr(HCH)), and gap = E ΔᵀP⁻¹Δ/(4η) for any P."""
    loop = loop_at(share, H)
    C = loop.stationary(noise, 2).covariance
    gradient = np.trace(noise) / 2 + np.trace(H @ C @ H)
    assert 2 * np.trace(H @ C) == pytest.approx(loop.outer_step * gradient)
    loop = loop_at(share, H, P)
    state = loop.stationary(noise, 2, fisher=np.linalg.inv(P))
    assert state.loss == pytest.approx(state.kl_per_update / (2 * loop.outer_step))


@given(SHARES, MATRICES, MATRICES, MATRICES, MATRICES)
def test_more_noise_is_more_covariance(
    share: float, H: np.ndarray, P: np.ndarray, noise: np.ndarray, more: np.ndarray
) -> None:
    """Properties 3 and 9: linear in Σ, monotone in the Loewner order."""
    loop = loop_at(share, H, P)
    parts = [loop.stationary(part, 1) for part in (noise, more)]
    both = loop.stationary(noise + more, 1)
    extra = both.covariance - parts[0].covariance
    assert np.linalg.eigvalsh(extra)[0] >= -1e-9 * np.abs(both.covariance).max()
    assert close(both.covariance, parts[0].covariance + parts[1].covariance)
    assert both.loss == pytest.approx(parts[0].loss + parts[1].loss)


@given(SHARES, positive_matrices(2), positive_matrices(2), MATRICES)
def test_losses_add_over_blocks(
    share: float, one: np.ndarray, two: np.ndarray, noise: np.ndarray
) -> None:
    """Property 33: independent blocks of H have independent losses."""
    blocks = np.zeros((4, 4))
    blocks[:2, :2], blocks[2:, 2:] = one, two
    whole = loop_at(share, blocks)
    first, second = noise[:2, :2], noise[1:, 1:]
    joint = np.zeros((4, 4))
    joint[:2, :2], joint[2:, 2:] = first, second
    apart = [
        outer.matrix_sgd(whole.outer_step, H).stationary(S, 3)
        for H, S in ((one, first), (two, second))
    ]
    state = whole.stationary(joint, 3)
    assert state.loss == pytest.approx(sum(part.loss for part in apart))
    moved = sum(part.kl_per_update for part in apart)
    assert state.kl_per_update == pytest.approx(moved)


@given(SHARES, st.permutations(range(4)), st.floats(0.1, 1), st.floats(0.1, 1))
def test_order_and_repeats_of_curvatures_do_not_matter(
    share: float, order: list[int], low: float, high: float
) -> None:
    """Property 44: permuted or repeated eigenvalues change nothing but the labels."""
    h, s = np.array([low, high, low, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    state = loop_at(share, np.diag(h)).stationary(np.diag(s), 1)
    mixed = loop_at(share, np.diag(h[order])).stationary(np.diag(s[order]), 1)
    assert mixed.loss == pytest.approx(state.loss)
    swapped = state.covariance[np.ix_(order, order)]
    assert close(mixed.covariance, swapped)
    scalar = outer.sgd(loop_at(share, np.diag(h)).outer_step, h).stationary(s, 1)
    assert np.diag(state.covariance) == pytest.approx(scalar.acting_variance)
    assert state.loss == pytest.approx(scalar.loss.sum())
    off = state.covariance - np.diag(np.diag(state.covariance))
    assert np.abs(off).max() <= 1e-12 * state.covariance.max()


@given(
    st.floats(0.02, 1.2),
    MATRICES,
    MATRICES,
    MATRICES,
    MATRICES,
    st.integers(0, 12),
)
def test_transient_equals_step_by_step(
    share: float,
    H: np.ndarray,
    P: np.ndarray,
    noise: np.ndarray,
    start: np.ndarray,
    updates: int,
) -> None:
    loop = loop_at(share, H, P)
    M = np.eye(SIZE) - loop.outer_step * P @ H
    C = start
    for _ in range(updates):
        C = M @ C @ M.T + loop.outer_step**2 * P @ noise @ P / 5
    assert close(loop.second_moment(start, updates, noise, 5), C, 1e-8)


@given(SHARES, MATRICES, MATRICES, st.integers(0, 50), st.integers(0, 50))
def test_transient_composes_and_keeps_the_plateau(
    share: float, H: np.ndarray, noise: np.ndarray, first: int, second: int
) -> None:
    """Property 10: the plateau is a fixed point, and stretches of updates compose."""
    loop = loop_at(share, H)
    plateau = loop.stationary(noise, 2).covariance
    assert close(loop.second_moment(plateau, first, noise, 2), plateau)
    start = 2 * np.eye(SIZE)
    halfway = loop.second_moment(start, first, noise, 2)
    there = loop.second_moment(start, first + second, noise, 2)
    assert close(loop.second_moment(halfway, second, noise, 2), there)


def test_transient_at_a_billion_updates() -> None:
    H = np.diag([1e-9, 0.5, 0.0])
    loop = outer.matrix_sgd(1, H)
    C = loop.second_moment(np.eye(3), 10**9, np.eye(3), 10**9)
    left = math.exp(-2)
    slow = left + (1 - left) / 2  # V = ηs²/(2h), s² = h
    assert C[0, 0] == pytest.approx(slow, rel=1e-7)
    assert C[1, 1] == pytest.approx(1e-9 / 0.75)
    assert C[2, 2] == pytest.approx(2)  # a flat direction diffuses: 1 + 10⁹·10⁻⁹
    assert not loop.stable
    wild = outer.matrix_sgd(3, np.eye(2)).second_moment(np.eye(2), 10**9, np.eye(2), 1)
    assert np.isposinf(wild).all()


@given(positive_matrices(2), st.floats(0.5, 2))
def test_small_steps_follow_the_gradient_flow(H: np.ndarray, time: float) -> None:
    """Property 47: as η → 0 at fixed ηK, x follows exp(−HηK)."""
    eta = 1e-5
    rates, axes = np.linalg.eigh(H)
    flow = axes @ np.diag(np.exp(-rates * time)) @ axes.T
    updates = round(time / eta)
    found = outer.matrix_sgd(eta, H).second_moment(
        np.eye(2), updates, np.zeros((2, 2)), 1
    )
    assert np.abs(found - flow @ flow.T).max() <= 5e-3


def test_plateau_equals_monte_carlo() -> None:
    """Property 35, all directions at once."""
    H, P = np.array([[1.0, 0.3], [0.3, 0.5]]), np.array([[0.8, -0.2], [-0.2, 1.5]])
    noise = np.array([[2.0, 0.7], [0.7, 1.0]])
    loop = outer.matrix_sgd(0.4, H, P)
    generator = np.random.default_rng(5)
    root = np.linalg.cholesky(noise / 3)
    x = np.zeros((40_000, 2))
    for _ in range(60):
        gradient = x @ H + generator.normal(size=x.shape) @ root.T
        x, before = x - 0.4 * gradient @ P, x
    state = loop.stationary(noise, 3)
    products = x[:, :, None] * x[:, None, :]
    scale = 0.15 * float(np.abs(state.covariance).max())
    assert_mean(products, state.covariance, effect=scale)
    steps = (x - before)[:, :, None] * (x - before)[:, None, :]
    room = 0.15 * float(np.abs(state.step_covariance).max())
    assert_mean(steps, state.step_covariance, effect=room)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(products, 1.2 * state.covariance, effect=scale)


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outer.matrix_sgd(-1, EYE), "outer_step is -1"),
        (lambda: outer.matrix_sgd(math.nan, EYE), "outer_step is nan"),
        (lambda: outer.matrix_sgd(1, np.ones((2, 3))), "hessian has shape"),
        (lambda: outer.matrix_sgd(1, [[1, 1], [0, 1]]), "hessian differs"),
        (lambda: outer.matrix_sgd(1, -EYE), "hessian has the eigenvalue -1"),
        (lambda: outer.matrix_sgd(1, np.diag([1, np.inf])), "hessian holds"),
        (lambda: outer.matrix_sgd(1, np.zeros((0, 0))), "hessian is empty"),
        (lambda: outer.matrix_sgd(1, EYE, np.eye(3)), "preconditioner has shape"),
        (lambda: outer.matrix_sgd(1, EYE, np.diag([1, 0])), "preconditioner has the"),
        (lambda: outer.matrix_sgd(3, EYE).stationary(EYE, 1), "above 0 and below 2"),
        (lambda: outer.matrix_sgd(0, EYE).stationary(EYE, 1), "outer_step is 0"),
        (
            lambda: outer.matrix_sgd(1, np.diag([1, 0])).stationary(EYE, 1),
            "without flat directions",
        ),
        (lambda: outer.matrix_sgd(1, EYE).stationary(EYE, 0), "samples_per_update is"),
        (lambda: outer.matrix_sgd(1, EYE).stationary(-EYE, 1), "noise_covariance has"),
        (lambda: outer.matrix_sgd(1, EYE).stationary(EYE, 1, [[1]]), "fisher has"),
        (lambda: outer.matrix_sgd(1, EYE).second_moment(-EYE, 1, EYE, 1), "initial"),
        (lambda: outer.matrix_sgd(1, EYE).second_moment(EYE, -1, EYE, 1), "updates is"),
    ],
)
def test_refusals(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
