"""`theory.bandit`: definitions, differences, Monte Carlo, identities, refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from tests.support.strategies import logits
from theory import bandit, outer

STANDARD = bandit.standard()
MEANS = np.array(STANDARD.means)
LOGITS = logits(len(MEANS))
GENTLE = LOGITS.map(lambda values: values / 10)


def value_by_definition(values: np.ndarray) -> float:
    weights = [np.exp(value) for value in values]
    total = sum(weights)
    return sum(
        weight / total * (mean - STANDARD.temperature * np.log(weight / total))
        for weight, mean in zip(weights, MEANS, strict=True)
    )


def difference(function: Callable[[np.ndarray], Any], point: np.ndarray) -> np.ndarray:
    """Central differences, along the last axis of the result."""
    step = 1e-5
    columns = [
        (
            np.asarray(function(point + step * e))
            - np.asarray(function(point - step * e))
        )
        / (2 * step)
        for e in np.eye(len(point))
    ]
    return np.stack(columns, axis=-1)


def test_standard_instance() -> None:
    drawn = np.random.default_rng(0).normal(size=10)
    assert STANDARD.means == tuple(np.round(drawn, 6))
    assert (STANDARD.reward_sd, STANDARD.temperature) == (1.0, 0.2)
    best, value = STANDARD.optimum()
    assert value == pytest.approx(1.3436460236, rel=1e-9)
    assert best.argmax() == MEANS.argmax()


@given(LOGITS)
def test_value_equals_its_definition(values: np.ndarray) -> None:
    expected = value_by_definition(values)
    assert STANDARD.value(values) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    mixed = bandit.policy(values) @ MEANS + 0.2 * bandit.entropy(values)
    assert STANDARD.value(values) == pytest.approx(mixed, rel=1e-9, abs=1e-12)


@given(LOGITS)
def test_policy_is_a_distribution_with_the_right_odds(values: np.ndarray) -> None:
    pi = bandit.policy(values)
    assert pi.sum() == pytest.approx(1, rel=1e-12)
    assert np.allclose(np.log(pi[1:] / pi[0]), values[1:] - values[0], atol=1e-9)
    assert 0 <= bandit.entropy(values) <= np.log(len(MEANS)) + 1e-12


@given(LOGITS)
def test_gap_is_the_distance_to_the_optimum(values: np.ndarray) -> None:
    expected = STANDARD.optimum()[1] - STANDARD.value(values)
    assert STANDARD.gap(values) == pytest.approx(expected, abs=1e-12)
    assert STANDARD.gap(values) >= -1e-15
    assert STANDARD.gap(np.log(STANDARD.optimum()[0])) == pytest.approx(0, abs=1e-14)


@given(GENTLE)
def test_gradient_equals_finite_differences(values: np.ndarray) -> None:
    expected = difference(STANDARD.value, values)
    assert np.allclose(STANDARD.gradient(values), expected, atol=1e-9)


def test_gradient_vanishes_at_the_optimum() -> None:
    assert np.abs(STANDARD.gradient(MEANS / STANDARD.temperature)).max() < 1e-15


@given(GENTLE)
def test_fisher_is_the_curvature_of_the_kl(values: np.ndarray) -> None:
    def slope(point: np.ndarray) -> np.ndarray:
        return bandit.policy(point) - bandit.policy(values)  # of KL(π_values ‖ π_point)

    assert np.allclose(bandit.fisher(values), difference(slope, values), atol=1e-9)
    small = 1e-3 * np.sin(np.arange(len(values)))
    quadratic = small @ bandit.fisher(values) @ small / 2
    assert bandit.kl(values, values + small) == pytest.approx(quadratic, rel=1e-2)


@given(LOGITS, LOGITS)
def test_kl_by_definition(one: np.ndarray, two: np.ndarray) -> None:
    first, second = bandit.policy(one), bandit.policy(two)
    expected = (first * np.log(first / second)).sum()
    assert bandit.kl(one, two) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert bandit.kl(one, two) >= -1e-12
    assert bandit.kl(one, one) == 0


@given(LOGITS, st.floats(-50, 50))
def test_a_common_shift_changes_nothing(values: np.ndarray, shift: float) -> None:
    assert STANDARD.value(values + shift) == pytest.approx(STANDARD.value(values))
    assert np.allclose(STANDARD.gradient(values + shift), STANDARD.gradient(values))
    assert abs(STANDARD.gradient(values).sum()) < 1e-12
    assert np.abs(bandit.fisher(values).sum(-1)).max() < 1e-12


@given(LOGITS, st.permutations(range(len(MEANS))))
def test_arms_have_no_order(values: np.ndarray, order: list[int]) -> None:
    other = bandit.Bandit(tuple(MEANS[order]), 1.0, 0.2)
    assert other.value(values[order]) == pytest.approx(STANDARD.value(values))
    assert np.allclose(other.gradient(values[order]), STANDARD.gradient(values)[order])


@given(GENTLE, st.floats(0.01, 9.9))
def test_natural_gradient_is_descent_on_a_quadratic(
    values: np.ndarray, eta: float
) -> None:
    natural = np.linalg.pinv(bandit.fisher(values)) @ STANDARD.gradient(values)
    distance = values - MEANS / STANDARD.temperature
    moved = distance + eta * natural
    expected = (1 - eta * STANDARD.temperature) * distance  # a = ητ, up to a shift
    assert np.allclose(moved - moved.mean(), expected - expected.mean(), atol=1e-5)


def test_natural_gradient_plateau_equals_the_outer_loop() -> None:
    # Noise on every arm's mean: gap = ½τ·tr F*·V to leading order in V.
    generator = np.random.default_rng(5)
    eta, noise_sd, tau = 1.0, 0.02, STANDARD.temperature
    state = outer.sgd(eta, tau).stationary(noise_sd**2, 1)
    values = MEANS / tau + np.sqrt(state.acting_variance) * generator.normal(
        size=(20_000, len(MEANS))
    )
    for _ in range(5):
        noise = noise_sd * generator.normal(size=values.shape)
        values = values + eta * (MEANS + noise - tau * values)
    spread = 1 - (STANDARD.optimum()[0] ** 2).sum()
    expected = tau * spread * state.acting_variance / 2
    assert_mean(STANDARD.gap(values), expected, effect=0.15 * expected)


def sampled_gradients(
    values: np.ndarray, baseline: float, *, sampled_entropy: bool, number: int
) -> np.ndarray:
    generator = np.random.default_rng(7)
    pi = bandit.policy(values)
    arms = generator.choice(len(pi), size=number, p=pi)
    worth = MEANS[arms] + STANDARD.reward_sd * generator.normal(size=number)
    if sampled_entropy:
        worth = worth - STANDARD.temperature * np.log(pi[arms])
    return (worth - baseline)[:, None] * (np.eye(len(pi))[arms] - pi)


@pytest.mark.parametrize("sampled_entropy", [False, True])
def test_gradient_noise_equals_monte_carlo(sampled_entropy: bool) -> None:  # noqa: FBT001
    values = np.linspace(0.7, -0.7, len(MEANS))
    estimates = sampled_gradients(
        values, 0.3, sampled_entropy=sampled_entropy, number=200_000
    )
    expected = STANDARD.gradient_noise(values, 0.3, sampled_entropy=sampled_entropy)
    centred = estimates - estimates.mean(axis=0)
    products = centred[:, :, None] * centred[:, None, :]
    assert_mean(products, expected, effect=0.03)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(products, expected + 0.03 * np.eye(len(MEANS)), effect=0.03)
    if sampled_entropy:
        assert_mean(estimates, STANDARD.gradient(values), effect=0.03)


@given(GENTLE, st.floats(-2, 2))
def test_gradient_noise_is_a_covariance(values: np.ndarray, baseline: float) -> None:
    noise = STANDARD.gradient_noise(values, baseline)
    assert np.allclose(noise, noise.T, atol=1e-12)
    assert np.linalg.eigvalsh(noise).min() > -1e-12
    assert np.abs(noise.sum(-1)).max() < 1e-12
    at_mean = STANDARD.gradient_noise(values)
    assert np.allclose(at_mean, STANDARD.gradient_noise(values, _mean(values)))


def test_gradient_noise_at_the_optimum_is_fisher_like() -> None:
    # With the entropy sampled, every arm is worth the same there.
    best = MEANS / STANDARD.temperature
    noise = STANDARD.gradient_noise(best, sampled_entropy=True)
    assert np.allclose(noise, STANDARD.reward_sd**2 * bandit.fisher(best), atol=1e-12)


def test_leading_axes_are_kept() -> None:
    values = np.random.default_rng(2).normal(size=(3, 4, len(MEANS)))
    for function, shape in (
        (bandit.policy, (3, 4, 10)),
        (bandit.entropy, (3, 4)),
        (bandit.fisher, (3, 4, 10, 10)),
        (STANDARD.value, (3, 4)),
        (STANDARD.gap, (3, 4)),
        (STANDARD.gradient, (3, 4, 10)),
        (STANDARD.gradient_noise, (3, 4, 10, 10)),
    ):
        found = function(values)
        assert found.shape == shape
        assert np.allclose(found[1, 2], function(values[1, 2]))
    assert bandit.kl(values, values[0, 0]).shape == (3, 4)
    far_apart = np.array([np.zeros(10), np.full(10, 1e5)])  # neither may underflow
    assert bandit.entropy(far_apart).tolist() == pytest.approx([np.log(10)] * 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bandit.Bandit((1.0,), 1, 1), "means has 1 arms"),
        (lambda: bandit.Bandit((1.0, np.nan), 1, 1), "means holds nan"),
        (lambda: bandit.Bandit((1.0, 2.0), -1, 1), "reward_sd is -1"),
        (lambda: bandit.Bandit((1.0, 2.0), 1, 0), "temperature is 0"),
        (lambda: STANDARD.value(np.zeros(3)), "logits have 3 arms"),
        (lambda: STANDARD.gap(np.zeros(3)), "logits have 3 arms"),
        (lambda: bandit.policy([0.0, np.inf]), "logits holds inf"),
        (lambda: bandit.kl([0.0, 1.0], [0.0, 1.0, 2.0]), "2 and 3 arms"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def _mean(values: np.ndarray) -> float:
    return float(bandit.policy(values) @ MEANS)
