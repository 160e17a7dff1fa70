"""Every linear loop: closed form = Lyapunov = Monte Carlo; the solver itself."""

import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import solve_discrete_lyapunov

from tests.support import loops
from tests.support.loops import KINDS, Written, as_floats, matrix_of, stable_loops
from tests.support.statistical import assert_mean
from tests.support.strategies import positive_matrices, rotations
from theory import outer
from theory.outer import lyapunov
from theory.outer.lyapunov import is_stable, spectral_radius, stationary_covariance


def stationary(written: Written, covariance: Any) -> dict[str, Any]:
    """Stationary moments per unit σ² from the covariance of the written-out state."""
    matrix, gain = matrix_of(written)
    # Noise that grows with x² is more noise, by a factor.
    factor = 1 / (1 - written.noise_slope * covariance[0][0])
    first = [entry - (i == 0) for i, entry in enumerate(matrix[0])]
    moved = sum(
        first[i] * first[j] * covariance[i][j] * factor
        for i in range(written.size)
        for j in range(written.size)
    )
    x = covariance[0][0] * factor
    second = 1 if written.has_reference else 0
    noise = 1 + written.noise_slope * x
    return {
        "acting_variance": x,
        "reference_variance": covariance[second][second] * factor,
        "cross_covariance": covariance[0][second] * factor,
        "step_second_moment": moved + gain[0][0] ** 2 * noise,
    }


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=30, deadline=None)
def test_closed_form_equals_lyapunov(kind: str, data: st.DataObject) -> None:
    """Properties 7 and 14: the plateau solves the Lyapunov equation, for every loop."""
    written = data.draw(stable_loops(kind))
    matrix, gain = matrix_of(written)
    found = vars(written.loop.stationary(1, 1))
    exact = stationary(written, stationary_covariance(matrix, gain, ((1,),)))
    assert {key: found[key] for key in exact} == exact
    radius = spectral_radius(as_floats(matrix))
    if radius < 1 - 1e-4:
        load = as_floats(gain)
        solved = solve_discrete_lyapunov(
            as_floats(matrix), load @ load.T, method="direct"
        )
        independent = stationary(written, solved.tolist())
        room = 1e-9 / float(1 - written.noise_slope * F(solved[0, 0]))
        for key, value in independent.items():
            assert float(found[key]) == pytest.approx(float(value), rel=1e-6 + room)


@pytest.mark.parametrize("kind", KINDS)
def test_plateau_and_transient_equal_monte_carlo(kind: str) -> None:
    """Property 35: Monte Carlo agrees with the closed form, for every loop."""
    written = KINDS[kind](0.2, 1.0, 0.4, 0.5)
    generator = np.random.default_rng(7)
    state = (np.full(40_000, 1.5),) * written.size
    slope = float(written.noise_slope)
    loop = written.loop
    for update in range(1, 101):
        noise = np.sqrt(0.5 + slope * state[0] ** 2)
        before = state[0]
        state = written.step(state, noise * generator.normal(size=before.size))
        if update == 6:
            expected = float(loop.second_moment(2.25, 6, 0.5, 1))
            assert_mean(state[0] ** 2, expected, effect=0.15 * expected)
    plateau = loop.stationary(0.5, 1)
    level, moved = float(plateau.acting_variance), float(plateau.step_second_moment)
    assert_mean(state[0] ** 2, level, effect=0.15 * level)
    assert_mean((state[0] - before) ** 2, moved, effect=0.15 * moved)
    if written.has_reference:
        anchor = float(plateau.reference_variance)
        assert_mean(state[1] ** 2, anchor, effect=0.15 * anchor)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(state[0] ** 2, 1.15 * level, effect=0.15 * level)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_stable_is_the_spectral_radius_below_one(
    kind: str, data: st.DataObject
) -> None:
    step, share = data.draw(loops.UNIT), data.draw(loops.UNIT)
    written = KINDS[kind](3 * step, F(1), share, data.draw(loops.COMS))
    if written.noise_slope:
        return
    matrix, _ = matrix_of(written)
    radius = spectral_radius(as_floats(matrix))
    assume(abs(radius - 1) > 1e-6)
    assert written.loop.stable == (radius < 1)
    assert is_stable(matrix) == (radius < 1)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_floats_and_arrays_agree_with_fractions(kind: str, data: st.DataObject) -> None:
    written = data.draw(stable_loops(kind))
    matrix, _ = matrix_of(written)
    assume(spectral_radius(as_floats(matrix)) < 1 - 1e-3)
    exact = written.loop.stationary(1, 1)
    assume(exact.acting_variance < 10**4)
    for one in (1.0, np.ones((2, 1))):
        loop, *_ = written.loop.aligned(one)
        found = loop.stationary(one, 1)
        for key, value in vars(exact).items():
            got = getattr(found, key)
            assert np.shape(got) == np.shape(one)
            assert got == pytest.approx(float(value) * np.ones_like(got), rel=1e-8)


# The solver.


@st.composite
def stable_maps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M of spectral radius at most .95, G and S, of two to four states."""
    size = draw(st.integers(1, 4))
    entries = st.floats(-1, 1, allow_subnormal=False)
    M = draw(hnp.arrays(np.float64, (size, size), elements=entries))
    radius = np.abs(np.linalg.eigvals(M)).max()
    G = draw(hnp.arrays(np.float64, (size, 2), elements=entries))
    return 0.95 * M / max(radius, 1), G, draw(positive_matrices(2))


@given(stable_maps())
def test_covariance_solves_its_equation(
    given_map: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Property 7: residual 0, P symmetric and not negative."""
    M, G, S = given_map
    P = stationary_covariance(M, G, S)
    driven = G @ S @ G.T
    scale = np.abs(P).max() + 1e-300
    assert np.abs(P - M @ P @ M.T - driven).max() <= 1e-10 * scale
    assert np.array_equal(P, P.T)
    assert np.linalg.eigvalsh(P)[0] >= -1e-10 * scale
    solved = solve_discrete_lyapunov(M, driven, method="direct")
    assert np.abs(P - solved).max() <= 1e-8 * scale


@given(stable_maps(), st.data())
def test_covariance_turns_with_the_state(
    given_map: tuple[np.ndarray, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    """Property 7: rotating the state rotates its covariance."""
    M, G, S = given_map
    Q = data.draw(rotations(len(M)))
    P = stationary_covariance(M, G, S)
    turned = stationary_covariance(Q @ M @ Q.T, Q @ G, S)
    scale = np.abs(P).max() + 1e-300
    assert np.abs(turned - Q @ P @ Q.T).max() <= 1e-8 * scale


@given(stable_maps(), positive_matrices(2))
def test_more_noise_is_more_covariance(
    given_map: tuple[np.ndarray, np.ndarray, np.ndarray], more: np.ndarray
) -> None:
    """Properties 3 and 9: P is linear in the noise, and so in the Loewner order."""
    M, G, S = given_map
    one, both = (stationary_covariance(M, G, noise) for noise in (S, S + more))
    scale = np.abs(both).max() + 1e-300
    assert np.linalg.eigvalsh(both - one)[0] >= -1e-9 * scale
    extra = stationary_covariance(M, G, more)
    assert np.abs(both - one - extra).max() <= 1e-9 * scale


def test_batches_mark_unstable_cells() -> None:
    steps = np.array([0.5, 1.0, 2.0, 2.5])
    M = (1 - steps)[:, None, None]
    P = stationary_covariance(M, steps[:, None, None], np.eye(1))
    assert P[:, 0, 0].tolist() == pytest.approx([1 / 3, 1, math.inf, math.inf])
    assert is_stable(M).tolist() == [True, True, False, False]
    assert spectral_radius(M).tolist() == [0.5, 0.0, 1.0, 1.5]


def test_slow_loops_keep_their_digits() -> None:
    a = 1e-6
    found = stationary_covariance(np.array([[1 - a]]), np.array([[a]]), np.eye(1))
    assert found[0, 0] == pytest.approx(a / (2 - a), rel=1e-9)


def test_symbols_pass_through() -> None:
    a, c = sympy.symbols("a c", positive=True)
    loop = outer.ewma_linear(a, 1, c)
    pairs = zip(lyapunov.solved_moments(loop.linear_map()), loop.moments(), strict=True)
    assert all(sympy.simplify(one - two) == 0 for one, two in pairs)
    relation = is_stable(loop.linear_map().matrix)
    assert relation.subs({a: F(5, 4), c: 1}) == sympy.true
    assert relation.subs({a: F(3, 2), c: 1}) == sympy.false


def test_exact_criterion_at_the_very_edge() -> None:
    edge = F(4, 3)  # of ewma_linear at c = 1
    below, at = edge - F(1, 10**30), edge
    assert is_stable(outer.ewma_linear(below, 1, 1).linear_map().matrix) is True
    assert is_stable(outer.ewma_linear(at, 1, 1).linear_map().matrix) is False


@pytest.mark.parametrize(
    ("matrix", "gain", "noise", "words"),
    [
        (np.ones((2, 3)), np.ones((2, 1)), np.eye(1), "matrix has shape"),
        (np.ones(2), np.ones((2, 1)), np.eye(1), "matrix has shape"),
        (np.ones((0, 0)), np.ones((0, 1)), np.eye(1), "matrix has shape"),
        (np.full((1, 1), np.nan), np.eye(1), np.eye(1), "matrix holds nan"),
        (np.eye(2), np.ones((2, 1)), np.eye(1), "spectral radius 1.0"),
        (((1, 0), (0, 0)), ((1,), (1,)), ((1,),), "spectral radius must be below"),
        (((1, 0),), ((1,),), ((1,),), r"matrix has shape \(1, 2\)"),
        ((), ((1,),), ((1,),), "matrix has shape"),
        (((F(1, 2),),), ((1,),), ((math.inf,),), "noise_covariance holds inf"),
        (((F(1, 2),),), ((sympy.oo,),), ((1,),), "gain is oo"),
        (np.eye(2) / 2, np.ones((3, 1)), np.eye(1), "gain has shape"),
        (np.eye(2) / 2, np.ones((2, 1)), np.eye(2), "noise_covariance has shape"),
        (((0, 0), (0, 0)), ((1,),), ((1,),), r"gain has shape \(1, 1\)"),
    ],
)
def test_refusals(matrix: Any, gain: Any, noise: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stationary_covariance(matrix, gain, noise)
