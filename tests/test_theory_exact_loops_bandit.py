"""`theory.exact_loops` on the bandit: the linear loops, pathwise and at the plateau."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from tests.support.strategies import logits, positive_floats
from theory import bandit, kl, outer
from theory.exact_loops import (
    EveryArm,
    Plateau,
    SampledArms,
    from_average,
    gradient_ascent,
    hard_kl,
    kl_proximal,
    natural_gradient,
    predicted_constant,
    run_loop,
)
from theory.plateau_constant import natural, plain, plateau_constant

MEANS = np.array(bandit.standard().means)
WARM = bandit.Bandit(tuple(MEANS), reward_sd=1.0, temperature=1.0)
COOL = bandit.Bandit(tuple(MEANS), reward_sd=1.0, temperature=0.5)
GENTLE = logits(len(MEANS)).map(lambda values: values / 10)
KINDS = [(outer.ewma_proximal, kl_proximal), (outer.ewma_linear, from_average)]
FEW = settings(max_examples=30)


def at_rest(task: Any) -> Any:
    return replace(task, initial=task.optimum)


def spread(task: bandit.Bandit) -> float:
    """tr F* = 1 − |π*|²."""
    return float(1 - (task.optimum()[0] ** 2).sum())


def plateau(
    task: Any, rule: Any, samples: int, updates: int = 200, seeds: int = 600
) -> Plateau:
    generator = np.random.default_rng(1)
    return run_loop(at_rest(task), rule, samples, updates, seeds, generator).plateau()


# The task.


@pytest.mark.parametrize("kind", [SampledArms, EveryArm])
def test_estimates_have_the_gradient_s_mean_and_noise(kind: Any) -> None:
    values = np.linspace(0.7, -0.7, 10)
    many = np.tile(values, (40_000, 1))
    found, _ = kind(WARM).estimate(many, 3, None, np.random.default_rng(3))
    expected = WARM.gradient(values)
    noise = WARM.gradient_noise(values, sampled_entropy=True) / 3
    if kind is EveryArm:
        noise = bandit.fisher(values) @ bandit.fisher(values) / 3
    centred = found - expected
    assert_mean(found, expected, effect=0.03)
    assert_mean(centred[:, :, None] * centred[:, None, :], noise, effect=0.03)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(found, expected + 0.03, effect=0.03)


def test_a_batch_gives_the_same_gradient() -> None:
    values = np.tile(np.linspace(0.7, -0.7, 10), (20_000, 1))
    task = SampledArms(WARM)
    batch, _ = task.sample(values, 5, None, np.random.default_rng(4))
    found = task.weighted_score(values, batch, batch.advantages)
    scores = task.scores(values, batch)
    assert np.allclose(found, (batch.advantages[..., None] * scores).mean(1))
    assert_mean(found, WARM.gradient(values[0]), effect=0.03)
    noise = WARM.gradient_noise(values[0], sampled_entropy=True) / 5
    centred = found - WARM.gradient(values[0])
    assert_mean(centred[:, :, None] * centred[:, None, :], noise, effect=0.03)
    log_pi = np.log(bandit.policy(values[0]))
    assert np.allclose(batch.log_policy, log_pi[batch.actions])
    assert np.allclose(batch.log_policy, task.log_policy(values, batch))


@given(GENTLE, GENTLE)
def test_natural_equals_the_pseudo_inverse(
    values: np.ndarray, other: np.ndarray
) -> None:
    gradient = bandit.fisher(values) @ other
    found = SampledArms(WARM).natural(values[None], gradient[None])[0]
    assert np.allclose(found, other - other.mean(), atol=1e-8)
    expected = np.linalg.pinv(bandit.fisher(values), 1e-10, hermitian=True) @ gradient
    assert np.allclose(found, expected, atol=1e-6)


@given(GENTLE, GENTLE, GENTLE, positive_floats(1e-2, 1e2))
def test_proximal_is_the_best_policy(
    values: np.ndarray, anchor: np.ndarray, shift: np.ndarray, eta: float
) -> None:
    task = SampledArms(COOL)
    gradient = task.gradient(values) + bandit.fisher(values) @ shift / 10
    worth = COOL.temperature * values + task.natural(values, gradient)
    found = task.proximal(values[None], anchor[None], gradient[None], eta)[0]

    def surrogate(points: np.ndarray) -> Any:
        pi = bandit.policy(points)
        regularised = pi @ worth + COOL.temperature * bandit.entropy(points)
        return regularised - bandit.kl(points, anchor) / eta

    others = found + 0.1 * np.concatenate([np.eye(10), -np.eye(10)])
    assert (surrogate(others) <= surrogate(found) + 1e-12).all()


# The loops are the linear ones, update by update.


@given(GENTLE, st.floats(0.01, 1.9), positive_floats(0.1, 3))
@FEW
def test_natural_steps_without_noise_are_sgd(
    start: np.ndarray, a: float, temperature: float
) -> None:
    task = EveryArm(replace(COOL, temperature=temperature), initial=start)
    eta, generator = a / temperature, np.random.default_rng(0)
    for rule in (natural_gradient(eta), from_average(eta, 0)):
        runs = run_loop(task, rule, np.inf, np.arange(8), 1, generator)
        path = runs.acting[0] - task.optimum
        expected = (start - task.optimum) * (1 - a) ** np.arange(8)[:, None]
        assert np.allclose(centred(path), centred(expected), atol=1e-9)
        assert np.allclose(runs.gap[0], task.bandit.gap(runs.acting[0]), atol=1e-14)
        moves = bandit.kl(runs.acting[0, :-1], runs.acting[0, 1:])
        assert np.allclose(runs.outer_kl[0, 1:], moves, atol=1e-14)


@given(
    GENTLE,
    st.sampled_from(KINDS),
    st.floats(0.01, 0.9),
    st.floats(0, 50),
    st.integers(0, 1000),
)
@FEW
def test_anchored_steps_with_noise_are_the_linear_loops(
    start: np.ndarray, kinds: tuple[Any, Any], a: float, com: float, seed: int
) -> None:
    """Variant B is KL-proximal to the averaged logits; A is its linear form."""
    tau, samples, updates = COOL.temperature, 50, 12
    eta = a / tau
    kind, rule = kinds
    task, generator = EveryArm(COOL, initial=start), np.random.default_rng(seed)
    runs = run_loop(task, rule(eta, com), samples, np.arange(updates), 1, generator)
    matrix, gain = (np.array(part) for part in kind(eta, tau, com).linear_map())
    noise = np.random.default_rng(seed).normal(size=(updates, 10)) / np.sqrt(samples)
    state = np.tile(start - task.optimum, (2, 1))
    for update in range(updates):
        expected, found = centred(state), (runs.acting, runs.anchors)
        for row in (0, 1):
            deviation = found[row][0, update] - task.optimum
            assert np.allclose(centred(deviation), expected[row], atol=1e-9)
        # the gradient's noise has the sign of the loss
        state = matrix @ state - gain[:, None] * noise[update]


def centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(-1, keepdims=True)


# Plateaus.


@pytest.fixture(scope="module")
def natural_plateaus() -> dict[tuple[float, int], Plateau]:
    """By outer step and samples per update."""
    knobs = [(0.2, 1000), (0.8, 1000), (0.2, 16_000), (0.8, 16_000)]
    return {
        (eta, n): plateau(EveryArm(WARM), natural_gradient(eta), n) for eta, n in knobs
    }


@pytest.fixture(scope="module")
def anchored_plateaus() -> dict[int, Plateau]:
    """By centre of mass, at a = .1 and n = 500."""
    return {
        com: plateau(
            EveryArm(COOL), kl_proximal(0.2, com), 500, 60 + 160 * (1 + com // 2)
        )
        for com in (0, 3)
    }


def test_natural_plateau_is_that_of_sgd(natural_plateaus: Any) -> None:
    """gap = ½τ·tr(F*)·V."""
    for (eta, n), found in natural_plateaus.items():
        state = outer.sgd(eta, WARM.temperature).stationary(1.0, n)
        expected = 0.5 * spread(WARM) * state.acting_variance
        moved = spread(WARM) * state.kl_per_update
        assert_mean(found.gap / expected, 1, effect=0.05)
        assert_mean(found.outer_kl / moved, 1, effect=0.05)
        with pytest.raises(AssertionError, match="mean deviates"):  # continuous time
            assert_mean(found.gap / (eta / (4 * n) * spread(WARM)), 1, effect=0.1)


def test_the_kl_gives_the_gap(natural_plateaus: Any, anchored_plateaus: Any) -> None:
    """Property 26: gap = KL/(2η) for natural steps; an averaged anchor breaks it."""
    for (eta, _), found in natural_plateaus.items():
        ratio = found.gap / kl.stationary_gap(found.outer_kl.mean(), eta)
        assert_mean(ratio, 1, effect=0.05)
    sampled = plateau(SampledArms(WARM), natural_gradient(0.2), 20_000, updates=300)
    ratio = sampled.gap / kl.stationary_gap(sampled.outer_kl.mean(), 0.2)
    assert_mean(ratio, 1, effect=0.05)
    heavy = plateau(EveryArm(WARM), natural_gradient(0.2, 0.5), 16_000)
    ratio = heavy.gap / kl.stationary_gap(heavy.outer_kl.mean(), 0.2, 0.5)
    assert_mean(ratio, 1, effect=0.06)
    averaged = anchored_plateaus[3]
    step = 0.2 / (1 + 0.2 * COOL.temperature)
    ratio = averaged.gap / kl.stationary_gap(averaged.outer_kl.mean(), step)
    with pytest.raises(AssertionError, match="mean deviates"):
        assert_mean(ratio, 1, effect=0.06)


def test_ddr_sets_the_plateau(natural_plateaus: Any) -> None:
    """gap·√DDR is one number over 64-fold in DDR, known without a fit."""
    point = EveryArm(WARM).optimum
    f = bandit.fisher(point)
    constant = plateau_constant(f, f @ f, natural)
    assert constant == pytest.approx(np.sqrt(spread(WARM) / 8), rel=1e-12)
    ddrs = []
    for (eta, _), found in natural_plateaus.items():
        a = eta * WARM.temperature
        ratio = found.constants / (constant * np.sqrt(2 / (2 - a)))
        assert_mean(ratio, 1, effect=0.05)
        ddrs.append(found.ddr)
    assert max(ddrs) > 100 * min(ddrs)


def test_sampled_arms_follow_the_same_law() -> None:
    """Σ = sd²F at the optimum: the constant is sd·√((k − 1)/8), also from samples."""
    task = SampledArms(WARM)
    point = task.optimum
    noise = WARM.gradient_noise(point, sampled_entropy=True)
    constant = plateau_constant(bandit.fisher(point), noise, natural)
    assert constant == pytest.approx(np.sqrt(9 / 8), rel=1e-9)
    sampled = predicted_constant(task, 50_000, np.random.default_rng(0))
    assert abs(sampled.constant - constant) < 5 * sampled.standard_error
    assert sampled.standard_error < 0.05 * constant
    factor = np.sqrt(2 / (2 - 0.1))
    found = plateau(task, natural_gradient(0.1), 20_000, updates=400)
    assert_mean(found.constants / (factor * constant), 1, effect=0.05)


def test_plain_steps_fall_below_the_natural_constant() -> None:
    """Property 27: L ≤ √(tr(F⁻¹Σ)/8DDR), and tr(PΣ)/√(8 tr(PFPΣ)) says where."""
    task = SampledArms(WARM)
    f = bandit.fisher(task.optimum)
    constant = plateau_constant(f, f, plain)
    assert constant == pytest.approx(np.trace(f) / np.sqrt(8 * np.sum(f * f)))
    assert constant < 0.9 * np.sqrt(9 / 8)
    hessian = WARM.temperature * f + np.full((10, 10), 0.1)  # the shift is held fast
    state = outer.matrix_sgd(0.5, hessian).stationary(f, 5000, f)
    found = plateau(task, gradient_ascent(0.5), 5000, updates=600, seeds=300)
    assert_mean(found.gap / state.loss, 1, effect=0.08)
    expected = state.loss * np.sqrt(5000 / state.kl_per_update)
    assert_mean(found.constants / expected, 1, effect=0.08)
    assert expected == pytest.approx(constant, rel=0.06)  # a finite step


def test_pinned_length_falls_as_the_root_of_n() -> None:
    """Property 36: pinned coefficient 1/n; pinned KL 1/√n, down to a cycle."""
    gaps = [
        plateau(EveryArm(WARM), hard_kl(1e-5), n, updates=300, seeds=200).gap.mean()
        for n in (100, 1600, 10**7)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.15)
    assert gaps[2] > 3 * gaps[1] * np.sqrt(1600 / 10**7)  # the cycle's floor


def test_hard_kl_pays_for_its_cycle() -> None:
    """In this model, the law of 3.3 times an excess that grows with δn."""
    constant = np.sqrt(9 / 8)
    excess = [
        plateau(SampledArms(WARM), hard_kl(dn / 1000), 1000, 300, 200).constant
        / constant
        for dn in (0.1, 1, 10)
    ]
    assert excess == sorted(excess)
    assert excess[0] == pytest.approx(1.06, abs=0.06)
    assert excess[2] > 1.3


def test_anchored_plateaus_equal_the_closed_form(anchored_plateaus: Any) -> None:
    """Property 22 on a real objective: the anchor is SGD with a smaller step.

    In this model a larger centre of mass gives a lower plateau at a lower DDR, so that
    DDR puts such runs in the wrong order.
    """
    scale = 0.5 * COOL.temperature * spread(COOL)
    for com, found in anchored_plateaus.items():
        state = outer.ewma_proximal(0.2, COOL.temperature, com).stationary(1.0, 500)
        anchor = outer.sgd(0.2 / (1 + com) / 1.1, COOL.temperature).stationary(1.0, 500)
        assert_mean(found.gap / (scale * state.acting_variance), 1, effect=0.15)
        assert_mean(found.anchor_gap / (scale * anchor.acting_variance), 1, effect=0.15)
        moved = spread(COOL) * state.kl_per_update
        assert_mean(found.outer_kl / moved, 1, effect=0.06)
    plain_, averaged = anchored_plateaus[0], anchored_plateaus[3]
    assert averaged.gap.mean() < 0.5 * plain_.gap.mean()
    assert averaged.ddr < 0.75 * plain_.ddr
    assert averaged.anchor_gap.mean() < 0.8 * averaged.gap.mean()


def test_rare_arms_break_the_natural_step() -> None:
    """In this model: one visit to an arm of π = 2e−6 moves its logit by η/(nπ)."""
    task = at_rest(SampledArms(bandit.standard()))
    runs = run_loop(task, natural_gradient(0.2), 500, 300, 16, np.random.default_rng(0))
    assert not np.isfinite(runs.gap[:, -1]).all()
    tame = plateau(EveryArm(bandit.standard()), natural_gradient(0.2), 500, seeds=16)
    assert np.isfinite(tame.gap).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: natural_gradient(-1), "outer_step is -1"),
        (lambda: gradient_ascent(np.nan), "outer_step is nan"),
        (lambda: natural_gradient(1, 1), "momentum is 1"),
        (lambda: hard_kl(0), "kl_budget is 0"),
        (lambda: kl_proximal(0, 1), "outer_step is 0"),
        (lambda: from_average(1, -2), "com_updates is -2"),
        (lambda: SampledArms(WARM, np.zeros(3)).start, r"initial has shape \(3,\)"),
        (lambda: plateau(EveryArm(WARM), hard_kl(1), 0), "samples_per_update is 0"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
