"""`theory.exact_loops`: the clipped surrogate, optimisers, records, refusals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statistical import assert_mean
from theory import bandit, lqr
from theory.carried_momentum import carried_momentum_factor
from theory.exact_loops import (
    Adam,
    AveragedAnchor,
    ClippedSurrogate,
    EveryArm,
    Plateau,
    Rollouts,
    SampledArms,
    Sgd,
    as_sampled,
    carried,
    fresh,
    gradient_ascent,
    natural_gradient,
    normalised,
    predicted_constant,
    run_loop,
)
from theory.plateau_constant import adaptive, plain, plateau_constant

WARM = bandit.Bandit(bandit.standard().means, reward_sd=1.0, temperature=1.0)
TASKS: list[Any] = [SampledArms(WARM), Rollouts(lqr.standard(), 4)]
ONE = Sgd(0.1)
FEW = settings(max_examples=20)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# The clipped surrogate.


@given(
    st.sampled_from(TASKS),
    st.sampled_from([as_sampled, normalised]),
    st.floats(0.05, 0.5),
    st.integers(0, 10_000),
)
@FEW
def test_surrogate_gradient_equals_finite_differences(
    task: Any, scaling: Any, epsilon: float, seed: int
) -> None:
    rule = ClippedSurrogate(optimiser=ONE, clip_epsilon=epsilon, scaling=scaling)
    old = np.tile(task.optimum, (2, 1))
    batch, _ = task.sample(old, 8, None, generator(seed))
    point, anchor = old + 0.2 * generator(seed).normal(size=(2, *old.shape))

    def surrogate(parameters: np.ndarray) -> np.ndarray:
        held = task.log_policy(anchor, batch)
        ratio = np.exp(task.log_policy(parameters, batch) - held)
        worth = scaling(batch.advantages) * np.exp(held - batch.log_policy)
        bounded = np.clip(ratio, 1 - epsilon, 1 + epsilon)
        return np.minimum(ratio * worth, bounded * worth).mean(1)

    ratio = np.exp(task.log_policy(point, batch) - task.log_policy(anchor, batch))
    if min(np.abs(ratio - 1 - epsilon).min(), np.abs(ratio - 1 + epsilon).min()) < 1e-3:
        return  # at a kink there is no slope
    found = rule.gradient(task, point, anchor, batch)
    for place, change in enumerate(1e-6 * np.eye(point.shape[1])):
        rise = surrogate(point + change) - surrogate(point - change)
        scale = 1 + np.abs(found).max()
        assert np.allclose(found[:, place], rise / 2e-6, atol=1e-4 * scale)


@pytest.mark.parametrize("task", TASKS, ids=["bandit", "lqr"])
def test_one_step_on_the_whole_batch_is_ascent(task: Any) -> None:
    """Before the first gradient step every ratio is 1: nothing is clipped."""
    start = np.tile(task.start, (3, 1))
    batch, _ = task.sample(start, 8, None, generator())
    expected = start + 0.1 * task.weighted_score(start, batch, batch.advantages)
    rule = ClippedSurrogate(optimiser=ONE, update_epochs=1, num_minibatches=1)
    runs = run_loop(task, rule, 8, [0, 1], 3, generator())
    assert np.allclose(runs.acting[:, 1], expected, atol=1e-12)
    half = replace(rule, outer_learning_rate=0.5)
    damped = run_loop(task, half, 8, [0, 1], 3, generator())
    assert np.allclose(damped.acting[:, 1], (start + expected) / 2, atol=1e-12)
    if isinstance(task, Rollouts):
        ascent = run_loop(task, gradient_ascent(0.1), 8, [0, 1], 3, generator())
        assert np.allclose(runs.acting, ascent.acting)


def test_minibatches_cover_every_epoch() -> None:
    """Without clipping and to first order in α, M minibatches are one step αEM."""
    task, start = TASKS[0], np.zeros((2, 10))
    batch, _ = task.sample(start, 12, None, generator())
    whole = task.weighted_score(start, batch, batch.advantages)
    rule = ClippedSurrogate(
        optimiser=Sgd(1e-6), clip_epsilon=np.inf, update_epochs=3, num_minibatches=4
    )
    runs = run_loop(task, rule, 12, [0, 1], 2, generator())
    assert np.allclose(runs.acting[:, 1], 12e-6 * whole, rtol=1e-4, atol=1e-10)


def test_the_clip_bounds_the_move() -> None:
    """In this model a smaller ε means less KL per update and a lower plateau."""
    found = [
        clipped_plateau(
            ClippedSurrogate(optimiser=Sgd(0.3), clip_epsilon=epsilon, update_epochs=6),
            updates=60,
            seeds=50,
        )
        for epsilon in (np.inf, 0.1)
    ]
    assert found[1].outer_kl.mean() < 0.2 * found[0].outer_kl.mean()
    assert found[1].gap.mean() < 0.5 * found[0].gap.mean()


def test_an_averaged_anchor_follows_the_gradient_steps() -> None:
    task, start = TASKS[0], np.zeros((2, 10))
    batch, _ = task.sample(start, 12, None, generator())
    x, r = start, start
    rule = ClippedSurrogate(
        optimiser=Sgd(0.5),
        update_epochs=3,
        num_minibatches=1,
        anchor=AveragedAnchor(2),
        outer_learning_rate=0.5,
    )
    for _ in range(3):
        x = x + 0.5 * rule.gradient(task, x, r, batch)
        r = (2 * r + x) / 3
    runs = run_loop(task, rule, 12, [0, 1], 2, generator())
    assert np.allclose(runs.acting[:, 1], x / 2, atol=1e-12)
    assert np.allclose(runs.anchors[:, 1], r / 2, atol=1e-12)
    gaps = [task.gap(start + part) for part in (r / 2, x / 2)]
    assert np.allclose(runs.mean_anchor_gap[:, 1], gaps[0])
    assert np.allclose(runs.gap[:, 1], gaps[1])


def test_a_long_average_beats_the_acting_policy() -> None:
    """In this model: lower plateau than PPO at no larger DDR, and a better anchor."""
    ppo = ClippedSurrogate(optimiser=Sgd(0.6), clip_epsilon=0.1, num_minibatches=2)
    long = replace(ppo, anchor=AveragedAnchor(64))
    one, two = clipped_plateau(ppo, 60, 50), clipped_plateau(long, 160, 50)
    assert two.gap.mean() < 0.9 * one.gap.mean()
    assert two.constant < 0.8 * one.constant
    assert two.anchor_gap.mean() < 0.8 * two.gap.mean()
    assert np.allclose(one.anchor_gap, one.gap)


# Optimisers.


@given(st.floats(1e-4, 1), st.floats(0, 0.99), st.floats(0, 0.999), st.integers(0, 99))
@FEW
def test_adam_equals_optax(rate: float, first: float, second: float, seed: int) -> None:
    own, other = Adam(rate, first, second), optax.adam(rate, first, second)
    x = np.zeros((2, 3))
    memory, state = own.memory(x), other.init(x)
    for gradient in generator(seed).normal(size=(6, 2, 3)):
        move, memory = own.step(gradient, memory)
        expected, state = other.update(gradient, state)
        assert np.allclose(move, -np.asarray(expected), rtol=1e-4, atol=1e-6 * rate)


@given(st.floats(0, 2), st.floats(0, 0.95))
@FEW
def test_momentum_moves_as_far_in_the_end(rate: float, momentum: float) -> None:
    rule = Sgd(rate, momentum)
    memory, total = rule.memory(np.zeros((1, 2))), np.zeros((1, 2))
    for gradient in [np.ones((1, 2))] + [np.zeros((1, 2))] * 600:
        move, memory = rule.step(gradient, memory)
        total += move
    assert np.allclose(total, rate, rtol=1e-9)


# Plateaus of the clipped surrogate.


def clipped_plateau(rule: Any, updates: int = 200, seeds: int = 100) -> Plateau:
    task = replace(TASKS[0], initial=TASKS[0].optimum)
    return run_loop(task, rule, 200, updates, seeds, generator(1)).plateau()


@pytest.fixture(scope="module")
def momentum_plateaus() -> tuple[Plateau, Plateau, Plateau]:
    """One step per update: without momentum, with, and with it forgotten."""
    rule = ClippedSurrogate(optimiser=Sgd(0.4, 0.8), update_epochs=1, num_minibatches=1)
    none = replace(rule, optimiser=Sgd(0.4))
    forgotten = replace(rule, between=fresh, optimiser=Sgd(2.0, 0.8))
    return clipped_plateau(none), clipped_plateau(rule), clipped_plateau(forgotten)


def test_momentum_across_updates_raises_the_constant(momentum_plateaus: Any) -> None:
    """In this model carried momentum multiplies gap·√DDR by √((1+μ)/(1−μ)) = 3."""
    none, with_it, forgotten = momentum_plateaus
    f = bandit.fisher(TASKS[0].optimum)
    constant = plateau_constant(f, f, plain)
    factor = carried_momentum_factor(0.8, 1)
    assert factor == pytest.approx(3, rel=1e-12)
    assert_mean(none.constants / constant, 1, effect=0.3)
    assert_mean(with_it.constants / (factor * constant), 1, effect=0.3)
    assert np.allclose(forgotten.gap, none.gap, rtol=1e-9)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(with_it.constants / constant, 1, effect=1)


def test_adam_inside_follows_the_adaptive_constant() -> None:
    """In this model: P = diag(Σ)^(−½), times what momentum of 20 steps carries over."""
    rule = ClippedSurrogate(optimiser=Adam(3e-3), update_epochs=4, num_minibatches=5)
    found = clipped_plateau(rule, seeds=40)
    predicted = predicted_constant(TASKS[0], 100_000, generator(), adaptive)
    expected = predicted.constant * carried_momentum_factor(0.9, 20)
    assert_mean(found.constants / expected, 1, effect=0.3)
    with pytest.raises(AssertionError, match="mean deviates"):  # without the momentum
        assert_mean(found.constants / predicted.constant, 1, effect=0.45)


# Records.


def test_means_are_over_the_stretch() -> None:
    task, rule = SampledArms(WARM), natural_gradient(0.2)
    every = run_loop(task, rule, 50, np.arange(9), 3, generator())
    seen: list[int] = []
    some = run_loop(task, rule, 50, [0, 3, 8], 3, generator(), seen.append)
    assert seen == [0, 3, 8]
    for column, (first, last) in enumerate([(1, 4), (4, 9)], start=1):
        for name in ("mean_gap", "mean_anchor_gap", "outer_kl"):
            expected = getattr(every, name)[:, first:last].mean(1)
            assert np.allclose(getattr(some, name)[:, column], expected, rtol=1e-12)
    assert np.allclose(every.mean_gap, every.gap)
    assert np.allclose(some.acting[:, 1], every.acting[:, 3])
    assert np.array_equal(some.gap[:, 0], some.mean_gap[:, 0])
    assert some.transitions.tolist() == [0, 150, 400]
    assert np.allclose(some.value, WARM.value(some.acting))
    assert np.allclose(some.ddr[:, 1:], 50 / some.outer_kl[:, 1:])
    moves = bandit.kl(every.acting[:, :-1], every.acting[:, 1:])
    assert np.allclose(every.outer_kl[:, 1:], moves)


def test_plateau_is_the_second_half() -> None:
    task, rule = EveryArm(WARM), natural_gradient(0.2)
    every = run_loop(task, rule, 50, np.arange(11), 3, generator())
    half = run_loop(task, rule, 50, 10, 3, generator())
    assert half.updates.tolist() == [5, 10]
    expected = every.gap[:, 6:].mean(1)
    for runs in (every, half):
        found = runs.plateau()
        assert np.allclose(found.gap, expected)
        assert np.allclose(found.anchor_gap, expected)
        assert np.allclose(found.outer_kl, every.outer_kl[:, 6:].mean(1))
        assert found.ddr == pytest.approx(50 / every.outer_kl[:, 6:].mean())
        assert found.constant == pytest.approx(expected.mean() * found.ddr**0.5)
    with pytest.raises(ValueError, match="needs a record half-way"):
        run_loop(task, rule, 50, [10], 3, generator()).plateau()


def test_the_same_generator_gives_the_same_runs() -> None:
    rule = ClippedSurrogate(optimiser=Adam(0.01), between=carried)
    for task in TASKS:
        one, two = (run_loop(task, rule, 16, [0, 4], 2, generator(5)) for _ in "ab")
        assert np.array_equal(one.acting, two.acting)
        assert not np.array_equal(one.acting[0], one.acting[1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Sgd(-1), "learning_rate is -1"),
        (lambda: Sgd(1, 1), "momentum is 1"),
        (lambda: Adam(np.inf), "learning_rate is inf"),
        (lambda: Adam(1, second=2), "second is 2"),
        (lambda: Adam(1, epsilon=0), "epsilon is 0"),
        (lambda: AveragedAnchor(-1), "com is -1"),
        (lambda: ClippedSurrogate(optimiser=ONE, clip_epsilon=0), "clip_epsilon is 0"),
        (
            lambda: ClippedSurrogate(optimiser=ONE, update_epochs=0),
            "update_epochs is 0",
        ),
        (
            lambda: ClippedSurrogate(optimiser=ONE, outer_learning_rate=0),
            "outer_learning_rate is 0",
        ),
        (
            lambda: run(ClippedSurrogate(optimiser=ONE, num_minibatches=3)),
            "must divide",
        ),
        (lambda: run(gradient_ascent(1), updates=[3, 3]), "list that increases"),
        (lambda: run(gradient_ascent(1), updates=[3, 1]), "must not decrease"),
        (lambda: run(gradient_ascent(1), updates=-1), "updates holds -1"),
        (lambda: run(gradient_ascent(1), seeds=0), "seeds is 0"),
        (lambda: run(gradient_ascent(1), samples=2.5), "samples_per_update is 2.5"),
        (
            lambda: run(ClippedSurrogate(optimiser=ONE), samples=np.inf),
            "samples_per_up",
        ),
        (lambda: run(gradient_ascent(1), initial=np.full(10, np.nan)), "start holds"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def run(
    rule: Any, samples: Any = 8, updates: Any = 2, seeds: int = 1, initial: Any = None
) -> Any:
    task = SampledArms(WARM, initial)
    return run_loop(task, rule, samples, updates, seeds, generator())
