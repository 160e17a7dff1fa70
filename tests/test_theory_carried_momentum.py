"""`theory.carried_momentum`: step by step twins, heavy ball, plain descent."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from tests.support.statistical import assert_mean
from tests.support.strategies import fractions_between, positive_fractions
from theory import kl, outer
from theory.carried_momentum import carried_momentum, carried_momentum_factor

MOMENTA = st.just(F(0)) | fractions_between(0, 1)
COUNTS = st.integers(1, 6)


def update(x: Any, m: Any, xi: Any, knobs: tuple) -> tuple[Any, Any]:
    """One update written out: K gradient steps on one batch."""
    alpha, h, mu, steps = knobs
    for _ in range(steps):
        m = mu * m + (1 - mu) * (h * x + xi)
        x = x - alpha * m
    return x, m


def columns(knobs: tuple) -> list[list[Any]]:
    probes = [(F(1), F(0), F(0)), (F(0), F(1), F(0)), (F(0), F(0), F(1))]
    moved = [update(*probe, knobs) for probe in probes]
    return [[column[row] for column in moved] for row in range(2)]


@given(fractions_between(0, 5), positive_fractions(), MOMENTA, COUNTS)
def test_stationary_state_equals_lyapunov_solver(b: F, h: F, mu: F, steps: int) -> None:
    knobs = (b / h, h, mu, steps)
    rows = np.array(columns(knobs), dtype=float)
    matrix, load = rows[:, :2], rows[:, 2:]
    radius = np.abs(np.linalg.eigvals(matrix)).max()
    loop = carried_momentum(*knobs)
    if abs(radius - 1) > 1e-6:
        assert loop.stable == (radius < 1)
    assert loop.stable == (b / h < loop.stability_limit)
    assume(radius < 1 - 1e-4)
    # (x, αm), of like sizes: the solver's rounding grows with their ratio.
    scale = np.diag([1, float(b / h)])
    matrix, load = scale @ matrix @ np.linalg.inv(scale), scale @ load
    solved = solve_discrete_lyapunov(matrix, load @ load.T, method="direct")
    state = loop.stationary(1, 1)
    assert float(state.acting_variance) == pytest.approx(solved[0, 0], rel=1e-5)
    row = matrix[0] - np.array([1, 0])
    step = row @ solved @ row + load[0, 0] ** 2
    assert float(state.step_second_moment) == pytest.approx(step, rel=1e-5)


@given(fractions_between(0, 3), MOMENTA, COUNTS, st.integers(0, 5))
def test_transient_equals_step_by_step(a: F, mu: F, steps: int, updates: int) -> None:
    knobs = (a, F(1), mu, steps)
    loop = carried_momentum(*knobs)
    rows = columns(knobs)
    mean, memory = [F(2), F(0)], F(0)
    for _ in range(updates):
        mean = [row[0] * mean[0] + row[1] * mean[1] for row in rows]
    # Each batch's noise, followed to the end on its own.
    for later in range(updates):
        state = [rows[0][2], rows[1][2]]
        for _ in range(later):
            state = [row[0] * state[0] + row[1] * state[1] for row in rows]
        memory += state[0] ** 2
    found = loop.second_moment(4, updates, 3, 1)
    assert found == mean[0] ** 2 + 3 * memory
    assert isinstance(found, F)


@given(fractions_between(0, 4), MOMENTA)
def test_one_gradient_step_is_heavy_ball(b: F, mu: F) -> None:
    loop, ball = carried_momentum(b, 1, mu, 1), outer.heavy_ball(b * (1 - mu), 1, mu)
    assert loop.stable == ball.stable
    assert loop.second_moment(4, 7, 2, 3) == ball.second_moment(4, 7, 2, 3)
    if loop.stable:
        assert loop.stationary(2, 3) == ball.stationary(2, 3)


@given(fractions_between(0, 2), positive_fractions(), COUNTS)
def test_without_momentum_it_is_plain_descent(a: F, h: F, steps: int) -> None:
    step = outer.effective_step(float("inf"), a / h, h, steps)
    loop, plain = carried_momentum(a / h, h, 0, steps), outer.sgd(step, h)
    assert loop.stationary(2, 3).acting_variance == pytest.approx(
        plain.stationary(2, 3).acting_variance, rel=1e-12
    )


def test_transient_equals_monte_carlo() -> None:
    knobs = (0.3, 1.0, 0.8, 3)
    generator = np.random.default_rng(4)
    x, m = np.full(40_000, 2.0), np.zeros(40_000)
    for _ in range(6):
        x, m = update(x, m, generator.normal(size=x.size) * 1.5, knobs)
    expected = carried_momentum(*knobs).second_moment(4.0, 6, 9.0, 4)
    assert_mean(x**2, expected, effect=0.1 * expected)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(x**2, 1.1 * expected, effect=0.1 * expected)


@given(st.floats(0, 0.99), st.integers(1, 200))
def test_factor_is_the_small_step_limit(mu: float, steps: int) -> None:
    found = carried_momentum_factor(mu, steps)
    step = 1e-6 * (1 - mu) / steps
    limit = kl.ddr_factor(carried_momentum(step, 1.0, mu, steps))
    assert found == pytest.approx(limit, rel=1e-4)
    assert found * (1 + 1e-12) >= 1


@given(st.floats(0, 0.99), st.floats(0, 0.99), st.integers(1, 200))
def test_factor_rises_with_memory_and_falls_with_gradient_steps(
    one: float, two: float, steps: int
) -> None:
    low, high = sorted((one, two))
    smaller, larger = carried_momentum_factor([low, high], steps)
    assert smaller <= larger * (1 + 1e-12)
    assert carried_momentum_factor(high, steps + 1) <= larger * (1 + 1e-12)


def test_factor_at_its_ends() -> None:
    assert carried_momentum_factor(0, 5) == 1
    assert carried_momentum_factor(F(4, 5), 1) == pytest.approx(3)  # √(1.8/0.2)
    assert carried_momentum_factor(0.9, 10**6) == pytest.approx(1, abs=1e-4)
    seen = carried_momentum_factor(0.9, np.array([4, 16, 64]))
    assert seen == pytest.approx([2.387, 1.511, 1.148], abs=5e-4)


def test_arrays_of_learning_rates() -> None:
    rates = np.array([0.1, 1.0, 50.0])
    loop = carried_momentum(rates, 1.0, 0.5, 4)
    assert loop.stable.tolist() == [True, True, False]
    one = carried_momentum(0.1, 1.0, 0.5, 4).stationary(1, 2)
    state = loop.stationary(1, 2)
    assert state.loss[0] == pytest.approx(one.loss)
    assert state.loss[2] == np.inf


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: carried_momentum(-1, 1, 0.5, 4), "learning_rate"),
        (lambda: carried_momentum(1, float("nan"), 0.5, 4), "curvature"),
        (lambda: carried_momentum(1, 1, 1, 4), "momentum"),
        (lambda: carried_momentum(1, 1, -0.5, 4), "momentum"),
        (lambda: carried_momentum(1, 1, 0.5, 0), "gradient_steps"),
        (lambda: carried_momentum(1, 1, 0.5, 1.5), "gradient_steps"),
        (lambda: carried_momentum_factor(1.0, 4), "momentum"),
        (lambda: carried_momentum_factor(0.9, -1), "gradient_steps"),
        (lambda: carried_momentum(100, 1, 0.5, 4).stationary(1, 1), "below 6"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
