"""`theory.outer`: identities and orderings over generated loops, exact in fractions."""

from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import (
    coms,
    fractions_between,
    nonnegative_fractions,
    positive_floats,
    positive_fractions,
    spectra,
)
from theory import outer

STABLE = fractions_between(0, 2)
UNIT = fractions_between(0, 1)


def sgd_variance(a: F) -> F:
    """V of SGD at h = 1 per unit q."""
    return outer.sgd(a, 1).stationary(1, 1).acting_variance / a**2


# Plain descent.


@given(STABLE, positive_fractions(), positive_fractions())
def test_rescaling_x_changes_units_only(a: F, noise: F, k: F) -> None:
    """Property 1: units of x change V by k², and neither the loss nor a."""
    before = outer.sgd(a, 1).stationary(noise, 2)
    after = outer.sgd(a * k**2, 1 / k**2).stationary(noise / k**2, 2)
    assert after.acting_variance == k**2 * before.acting_variance
    assert after.loss == before.loss


@given(STABLE, positive_fractions(), positive_fractions())
def test_rescaling_the_loss_changes_the_step_only(a: F, noise: F, k: F) -> None:
    """Property 2: f → kf with η → η/k leaves V."""
    before = outer.sgd(a, 1).stationary(noise, 2)
    after = outer.sgd(a / k, k).stationary(noise * k**2, 2)
    assert after.acting_variance == before.acting_variance


@given(STABLE, nonnegative_fractions(), nonnegative_fractions(), coms())
def test_moments_are_linear_in_the_noise(a: F, one: F, two: F, com: F) -> None:
    """Property 3: superposition."""
    loop = outer.ewma_proximal(a, 1, com)
    parts = [vars(loop.stationary(noise, 3)) for noise in (one, two)]
    whole = vars(loop.stationary(one + two, 3))
    assert all(whole[key] == parts[0][key] + parts[1][key] for key in whole)


@given(STABLE, STABLE)
def test_variance_increases_with_the_step(one: F, two: F) -> None:
    """Property 4: V increases in η up to the limit."""
    if one != two:
        low, high = sorted((one, two))
        assert low**2 * sgd_variance(low) < high**2 * sgd_variance(high)


@given(STABLE)
def test_variance_is_above_the_small_step_limit_and_one_update(a: F) -> None:
    """Property 5: V ≥ ησ²/(2hn) and V ≥ q."""
    variance = outer.sgd(a, 1).stationary(1, 1).acting_variance
    assert variance > a / 2
    assert variance >= a**2


@given(STABLE)
def test_variance_over_step_squared_is_symmetric_about_one(a: F) -> None:
    """Property 6: V/η² is the same at a and 2−a."""
    assert sgd_variance(a) == sgd_variance(2 - a)


@given(STABLE, positive_fractions(), nonnegative_fractions())
def test_fluctuation_dissipation(a: F, h: F, noise: F) -> None:
    """Property 8: 2hV = η(s² + h²V)."""
    eta = a / h
    state = outer.sgd(eta, h).stationary(noise, 1)
    gradient = h**2 * state.acting_variance + noise
    assert 2 * h * state.acting_variance == eta * gradient


@given(STABLE, positive_fractions(), positive_fractions(), positive_fractions())
def test_gap_is_kl_over_twice_the_step(a: F, h: F, noise: F, n: F) -> None:
    """Property 26 in one direction: gap = KL/(2η)."""
    state = outer.sgd(a / h, h).stationary(noise, n)
    assert state.loss == state.kl_per_update / (2 * a / h)


@given(UNIT, fractions_between(-1, 1), positive_fractions())
def test_gap_is_kl_over_twice_the_step_with_momentum(share: F, mu: F, h: F) -> None:
    """Property 26 with momentum: gap = (1+μ)·KL/(2η)."""
    eta = share * 2 * (1 + mu) / h
    state = outer.heavy_ball(eta, h, mu).stationary(1, 1)
    assert state.loss == (1 + mu) * state.kl_per_update / (2 * eta)


@given(STABLE, nonnegative_fractions(), st.integers(0, 6), st.integers(0, 6))
def test_transient_composes(a: F, initial: F, first: int, second: int) -> None:
    """Property 10: the transient is a semigroup."""
    loop = outer.sgd(a, 1)
    halfway = loop.second_moment(initial, first, 1, 2)
    there = loop.second_moment(initial, first + second, 1, 2)
    assert loop.second_moment(halfway, second, 1, 2) == there


@given(STABLE, nonnegative_fractions(), st.integers(0, 8))
def test_transient_lies_between_start_and_plateau(a: F, initial: F, t: int) -> None:
    """Property 10: between x₀² and V, and V stays."""
    loop = outer.sgd(a, 1)
    plateau = loop.stationary(1, 1).acting_variance
    low, high = sorted((initial, plateau))
    assert low <= loop.second_moment(initial, t, 1, 1) <= high
    assert loop.second_moment(plateau, t, 1, 1) == plateau


@given(STABLE, positive_fractions())
def test_noise_scale_over_samples_is_pinned_at_the_plateau(a: F, n: F) -> None:
    """Property 32: B_simple = n(2−a)/a."""
    variance = outer.sgd(a, 1).stationary(1, n).acting_variance
    assert 1 / variance == n * (2 - a) / a


@given(spectra(), st.randoms(use_true_random=False))
def test_losses_add_over_directions_in_any_order(h: list[F], random: object) -> None:
    """Properties 33 and 44: sums over directions, whatever their order."""
    curvatures = np.array([float(value) for value in h])
    whole = outer.sgd(1.0, curvatures).stationary(1.0, 4).loss
    single = [float(outer.sgd(1, value).stationary(1, 4).loss) for value in h]
    assert whole.tolist() == pytest.approx(single, rel=1e-12)
    order = list(range(len(h)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = outer.sgd(1.0, curvatures[order]).stationary(1.0, 4).loss
    assert shuffled.tolist() == whole[order].tolist()


@given(STABLE, positive_fractions(), positive_fractions())
def test_plateau_falls_as_one_over_samples(a: F, n: F, k: F) -> None:
    """Property 36, a pinned coefficient: V ∝ 1/n."""
    loop = outer.ewma_proximal(a, 1, 2)
    one, many = loop.stationary(1, n), loop.stationary(1, k * n)
    assert one.acting_variance == k * many.acting_variance


@given(positive_floats(1e-6, 1e-4), st.floats(0.1, 3))
def test_small_steps_follow_the_gradient_flow(a: float, time: float) -> None:
    """Property 47: η → 0 at fixed ηK is exp(−hηK)."""
    updates = round(time / a)
    found = outer.sgd(a, 1.0).second_moment(1.0, updates, 0.0, 1)
    assert found == pytest.approx(np.exp(-2 * a * updates), rel=2e-3)


@given(positive_floats(1e-6, 1e-3), st.floats(2, 100))
def test_small_steps_depend_on_time_only(a: float, k: float) -> None:
    """Property 34: (a, t) → (a/k, kt)."""
    # A step k times smaller, k times as long, under k times the noise.
    fast = outer.sgd(a, 1.0).second_moment(2.0, round(1 / a), 1 / a, 1)
    slow = outer.sgd(a / k, 1.0).second_moment(2.0, round(k / a), k / a, 1)
    assert slow == pytest.approx(fast, rel=5e-3)


@given(STABLE, nonnegative_fractions(), positive_fractions())
def test_multiplicative_noise_only_hurts(a: F, slope: F, n: F) -> None:
    loop = outer.multiplicative(a, 1, slope, n)
    assert loop.stability_limit <= 2
    assert loop.stable == (a < loop.stability_limit)
    if loop.stable:
        plain = outer.sgd(a, 1).stationary(1, n).acting_variance
        found = loop.stationary(1, n).acting_variance
        assert found >= plain
        assert (found == plain) == (slope == 0)
    assert outer.multiplicative(a, 1, slope, 2 * n).stability_limit >= (
        loop.stability_limit
    )


# Momentum.


@given(STABLE, st.integers(0, 6))
def test_no_momentum_is_plain_descent(a: F, t: int) -> None:
    """Property 11: momentum 0 is SGD."""
    loop, plain = outer.heavy_ball(a, 1, 0), outer.sgd(a, 1)
    assert loop.stationary(1, 1) == plain.stationary(1, 1)
    assert loop.second_moment(3, t, 1, 1) == plain.second_moment(3, t, 1, 1)
    assert loop.stability_limit == plain.stability_limit


@given(st.floats(0, 0.95))
def test_momentum_at_a_small_step_is_a_larger_step(mu: float) -> None:
    """Property 12: V → that of SGD with η/(1−μ)."""
    eta = 1e-7
    found = outer.heavy_ball(eta, 1.0, mu).stationary(1, 1).acting_variance
    plain = outer.sgd(eta / (1 - mu), 1.0).stationary(1, 1).acting_variance
    assert found == pytest.approx(plain, rel=1e-5)


# The inner loop as one step.


@given(positive_fractions(), UNIT, positive_fractions(), st.integers(1, 12))
def test_effective_step_is_bounded_and_grows(eta: F, w: F, h: F, steps: int) -> None:
    """Property 23: in (0, min(η/(1+a), αK)], increasing in K, hη_out < 1."""
    alpha = w / (h + 1 / eta)  # so that α(h + 1/η) = w < 1
    step = outer.effective_step(eta, alpha, h, steps)
    assert 0 < step <= min(eta / (1 + eta * h), alpha * steps)
    assert h * step < 1
    assert step < outer.effective_step(eta, alpha, h, steps + 1)


@given(positive_floats(), positive_floats(1e-9, 0.1), st.integers(1, 1000))
def test_effective_step_keeps_precision(eta: float, alpha: float, steps: int) -> None:
    exact = outer.effective_step(F(eta), F(alpha), F(1), min(steps, 20))
    found = outer.effective_step(eta, alpha, 1.0, min(steps, 20))
    assert found == pytest.approx(float(exact), rel=1e-9)
    many = outer.effective_step(np.array([eta]), alpha, 1.0, np.array([steps]))
    assert many[0] == pytest.approx(outer.effective_step(eta, alpha, 1.0, steps))
