"""`theory.outer.inner_floor`: reshuffled minibatches, dealt and weighed by hand."""

import itertools
import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from tests.support.strategies import coms, fractions_between, positive_fractions
from theory import outer
from theory.outer.inner_floor import inner_floor, minibatch_excess, minibatch_noise
from theory.outer.moments import LinearMap

# Large fractions; a quarter of the deep profile is deep enough.
DEAR = settings(max_examples=min(500, settings().max_examples), deadline=None)


def level(
    alpha: Any, h: Any, eta: Any, minibatches: Any, epochs: Any, m: Any = 1
) -> Any:
    """The exact level of PPO at unit noise."""
    step = outer.effective_step(eta, alpha, h, minibatches * epochs)
    shared = outer.sgd(step, h).stationary(1, minibatches * m).acting_variance
    return shared * minibatch_excess(alpha, h, eta, minibatches, epochs)


def dealt_covariance(step: LinearMap, minibatches: int, epochs: int) -> list[list[F]]:
    """Mean over all reshufflings of Σ_j (Σ_e b)(Σ_e b)ᵀ, the load of each minibatch."""
    size = len(step.gain)
    loads = [list(step.gain)]
    for _ in range(minibatches * epochs - 1):
        last = loads[-1]
        loads.append(
            [sum(row[k] * last[k] for k in range(size)) for row in step.matrix]
        )
    loads.reverse()
    orders = list(itertools.permutations(range(minibatches)))
    total = [[F(0)] * size for _ in range(size)]
    deals = list(itertools.product(orders, repeat=epochs))
    for deal in deals:
        for j in range(minibatches):
            at = [e * minibatches + order[j] for e, order in enumerate(deal)]
            load = [sum(loads[k][i] for k in at) for i in range(size)]
            for p, q in itertools.product(range(size), repeat=2):
                total[p][q] += load[p] * load[q]
    return [[entry / len(deals) for entry in row] for row in total]


@given(
    fractions_between(0, 2),
    fractions_between(0, 2),
    coms(),
    st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (4, 1)]),
)
def test_noise_equals_every_reshuffling_enumerated(
    b: F, kappa: F, com: F, counts: tuple[int, int]
) -> None:
    step = outer.ewma_gradient(b, 1, kappa, com).linear_map()
    noise = minibatch_noise(step, *counts)
    (xx, xr), (_, rr) = dealt_covariance(step, *counts)
    x, r = noise.loading
    shared = [x * x / counts[0], x * r / counts[0], r * r / counts[0]]
    expected = [xx, xr, rr]
    assert [s + e for s, e in zip(shared, noise.scatter, strict=True)] == expected


@DEAR
@given(
    fractions_between(0, 2), positive_fractions(), st.integers(1, 6), st.integers(1, 4)
)
def test_excess_equals_the_scatter(w: F, h: F, minibatches: int, epochs: int) -> None:
    weight = h / 3
    alpha = w / (h + weight)
    found = minibatch_excess(alpha, h, 1 / weight, minibatches, epochs)
    noise = minibatch_noise(LinearMap(((1 - w,),), (-alpha,)), minibatches, epochs)
    assert found == 1 + minibatches * noise.scatter[0] / noise.loading[0] ** 2
    step = outer.effective_step(1 / weight, alpha, h, minibatches * epochs)
    assert noise.loading[0] == -step
    assert isinstance(found, F)
    floats = minibatch_excess(
        float(alpha), float(h), float(1 / weight), minibatches, epochs
    )
    assert floats == pytest.approx(float(found), rel=1e-9)


@DEAR
@given(
    fractions_between(0, 1),
    positive_fractions() | st.just(math.inf),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_more_samples_buy_at_most_twice_the_epochs(
    w: F, a: Any, minibatches: int, epochs: int
) -> None:
    """In this model: from one minibatch per pass to n = ∞, a factor of at most 2E."""
    if a == math.inf:
        alpha, floor = w, inner_floor(w, 1, a, 1, 1)
    else:
        alpha = w * a / (1 + a)  # w = α(1 + 1/a)
        floor = inner_floor(alpha, 1, a, 1, 1)
    first, some, more = (
        level(alpha, 1, a, count, epochs) for count in (1, minibatches, 2 * minibatches)
    )
    slack = 1 if a != math.inf else 1 + 1e-9
    assert floor <= more * slack
    assert more <= some * slack
    assert some <= first * slack
    assert first <= 2 * epochs * floor * slack


@given(fractions_between(0, 1), positive_fractions())
def test_level_tends_to_the_floor(w: F, a: F) -> None:
    alpha = float(w * a / (1 + a))
    far = level(alpha, 1.0, float(a), 10**9, 2)
    floor = inner_floor(alpha, 1.0, float(a), 1.0, 1.0)
    assert far == pytest.approx(floor, rel=1e-5 / float(w))


def test_small_steps_leave_a_quarter_of_the_noise_of_one_minibatch() -> None:
    alpha, h, eta, noise, m = sympy.symbols("alpha h eta sigma2 m", positive=True)
    scale = alpha * noise / (m * h)
    ratio = inner_floor(alpha, h, eta, noise, m) / scale
    assert sympy.limit(sympy.limit(ratio, alpha, 0), eta, 0) == sympy.Rational(1, 4)
    assert inner_floor(F(1, 10), 1, math.inf, 1, 1) == (
        outer.sgd(F(1, 10), 1).stationary(1, 1).acting_variance
    )
    assert inner_floor(F(1, 10), 1, 1, 1, 4) == F(1, 108)


def test_long_memory_leaves_a_twelfth_of_the_square() -> None:
    minibatches, epochs, w = 1000, 3, 1e-5
    excess = minibatch_excess(w / 2, 1.0, 1.0, minibatches, epochs) - 1
    assert excess == pytest.approx((w * minibatches) ** 2 / (12 * epochs), rel=1e-3)


def inner_loop(
    generator: np.random.Generator, x: np.ndarray, knobs: tuple, minibatches: int
) -> np.ndarray:
    """Two reshuffled passes over unit noise per transition, minibatches of four."""
    alpha, h, eta = knobs
    noise = generator.normal(size=(minibatches, x.size)) / 2
    start = x
    for _ in range(2):
        for row in generator.permuted(noise, axis=0):
            x = x - alpha * (h * x + row + (x - start) / eta)
    return x


@pytest.mark.parametrize(("w", "minibatches"), [(0.02, 8), (0.2, 8), (0.5, 16)])
def test_level_equals_monte_carlo(w: float, minibatches: int) -> None:
    h, eta = 0.5, 1.0
    alpha = w / (h + 1 / eta)
    expected = level(alpha, h, eta, minibatches, 2, 4)
    generator = np.random.default_rng(5)
    x = generator.normal(size=50_000) * np.sqrt(expected)
    for _ in range(12):  # starts at the level; were it another, it would be left
        x = inner_loop(generator, x, (alpha, h, eta), minibatches)
    assert_mean(x**2, expected, effect=0.1 * expected)
    shared = expected / minibatch_excess(alpha, h, eta, minibatches, 2)
    if shared < 0.9 * expected:  # negative control: the batch's noise alone
        with pytest.raises(AssertionError, match="mean deviates"):
            assert_mean(x**2, shared, effect=0.1 * expected)


def test_arrays_broadcast_and_exact_numbers_stay_exact() -> None:
    counts = np.array([1, 4, 16])
    found = minibatch_excess(0.1, 1.0, np.array([[1.0], [np.inf]]), counts, 2)
    assert found.shape == (2, 3)
    assert found[0, 1] == minibatch_excess(0.1, 1.0, 1.0, 4, 2)
    assert found[1, 2] == minibatch_excess(0.1, 1.0, math.inf, 16, 2)
    assert np.isinf(inner_floor(np.array([0.1, 2.0]), 1.0, 1.0, 1.0, 1.0)[1])
    assert list(np.isinf(minibatch_excess(1.5, 1.0, 1.0, np.array([1, 2]), 1))) == [
        False,
        True,
    ]
    assert isinstance(minibatch_excess(F(1, 10), 1, 1, 4, 2), F)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", -1),
        ("learning_rate", math.nan),
        ("learning_rate", 2.0),
        ("curvature", 0),
        ("outer_step", 0),
        ("outer_step", math.nan),
        ("noise_variance", -1.0),
        ("minibatch_size", 0),
    ],
)
def test_floor_refuses_with_a_sentence(name: str, value: float) -> None:
    right = {
        "learning_rate": 0.1,
        "curvature": 1.0,
        "outer_step": 1.0,
        "noise_variance": 1.0,
        "minibatch_size": 4,
    }
    with pytest.raises(ValueError, match=name):
        inner_floor(**{**right, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0),
        ("learning_rate", 1.5),
        ("curvature", math.inf),
        ("outer_step", -1),
        ("minibatches", 0),
        ("minibatches", 1.5),
        ("update_epochs", 0),
        ("update_epochs", -1),
    ],
)
def test_excess_refuses_with_a_sentence(name: str, value: float) -> None:
    right = {
        "learning_rate": 0.1,
        "curvature": 1.0,
        "outer_step": 1.0,
        "minibatches": 4,
        "update_epochs": 2,
    }
    with pytest.raises(ValueError, match=name):
        minibatch_excess(**{**right, name: value})
    if name in ("minibatches", "update_epochs"):
        step = outer.ewma_gradient(0.1, 1, 0.1, 3).linear_map()
        counts = {"minibatches": 4, "update_epochs": 2, name: value}
        with pytest.raises(ValueError, match=name):
            minibatch_noise(step, **counts)
