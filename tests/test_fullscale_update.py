"""Steps against slow twins: the anchor, one gradient step, the outer step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from fullscale import schedule
from fullscale.config import ConfigError, RunConfig
from fullscale.presets import preset
from fullscale.state import Anchor, Batch, LossInfo, Rates
from fullscale.update import (
    Inner,
    average,
    gradient_step,
    make_optimiser,
    outer_step,
    start_learner,
)

CONFIG = preset(
    "bandit", 64, num_envs=64, minibatch_size=16, update_epochs=2, meter_interval=0
)
NOTHING = LossInfo(*(jnp.zeros(()) for _ in LossInfo._fields))


def rates(config: RunConfig = CONFIG, **changes: float) -> Rates:
    """The rates of the first update, with some changed."""
    found = jax.tree.map(lambda column: column[0], schedule.rates(config, [0]))
    return found._replace(**{name: jnp.float32(v) for name, v in changes.items()})


# The anchor.


def weighted_mean(iterates: np.ndarray, decay: float) -> tuple[np.ndarray, float]:
    """Σ β^age θ / Σ β^age over all iterates, the first included, and the mean age."""
    ages = np.arange(len(iterates))[::-1]
    weights = np.array([decay ** int(age) for age in ages], np.float64)
    weights /= weights.sum()
    return weights @ iterates, float(weights @ ages)


averaged = jax.jit(average)


@given(st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.999, 1.0]), st.integers(0, 2**31))
def test_the_anchor_is_the_weighted_mean_from_the_first_step_on(
    decay: float, seed: int
) -> None:
    iterates = np.random.default_rng(seed).normal(size=(9, 3))
    anchor = Anchor(jnp.float32(iterates[0]), jnp.float32(1), jnp.float32(0))
    for done in range(1, len(iterates)):
        anchor = averaged(anchor, jnp.float32(iterates[done]), jnp.float32(decay))
        mean, age = weighted_mean(iterates[: done + 1], decay)
        np.testing.assert_allclose(anchor.vector, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(anchor.age, age, rtol=1e-5, atol=1e-6)
        weight = sum(decay**age for age in range(done + 1))
        np.testing.assert_allclose(anchor.weight, weight, rtol=1e-5)


@given(st.integers(0, 2**31))
def test_without_correction_the_mean_would_be_another(seed: int) -> None:
    """r ← βr + (1−β)θ, started at θ₀, is told from the corrected mean at step 1."""
    first, second = np.random.default_rng(seed).normal(size=(2, 3))
    anchor = Anchor(jnp.float32(first), jnp.float32(1), jnp.float32(0))
    anchor = averaged(anchor, jnp.float32(second), jnp.float32(0.9))
    naive = 0.9 * first + 0.1 * second
    assert np.abs(anchor.vector - naive).max() > 1e-3 * np.abs(second - first).max()
    np.testing.assert_allclose(
        anchor.vector, (0.9 * first + second) / 1.9, rtol=1e-5, atol=1e-6
    )


@given(st.integers(0, 2**31))
def test_no_decay_is_the_policy_and_infinite_weight_stands_still(seed: int) -> None:
    start, policy = np.random.default_rng(seed).normal(size=(2, 5)).astype(np.float32)
    one = Anchor(jnp.asarray(start), jnp.float32(1), jnp.float32(0))
    after = averaged(one, jnp.asarray(policy), jnp.float32(0))
    np.testing.assert_array_equal(after.vector, policy)
    assert (float(after.weight), float(after.age)) == (1.0, 0.0)
    heavy = one._replace(weight=jnp.float32(np.inf))
    after = averaged(heavy, jnp.asarray(policy), jnp.float32(1))
    np.testing.assert_array_equal(after.vector, start)
    assert float(after.weight) == np.inf


def test_a_very_large_com_is_the_plain_mean() -> None:
    """β rounds to 1: every iterate counts alike, W = k + 1."""
    config = dataclasses.replace(CONFIG, com=1e12)
    assert float(rates(config).ewma_decay) == 1.0
    assert float(rates(dataclasses.replace(CONFIG, com=0.0)).ewma_decay) == 0.0
    com = dataclasses.replace(CONFIG, com=4.0)
    np.testing.assert_allclose(rates(com).ewma_decay, 0.8, rtol=1e-6)


# One gradient step.


def pull(vector: jax.Array, anchor: Any, minibatch: Batch) -> tuple:
    """½ Σ h (θ − x)²: gradients that differ from step to step and by coordinate."""
    del anchor
    curvature = jnp.arange(1.0, 1.0 + vector.size)
    apart = vector - minibatch.target
    return 0.5 * (curvature * apart**2).sum(), NOTHING


def minibatch(target: np.ndarray) -> Batch:
    column = jnp.float32(target)
    return Batch(column, column, column, column, column, None)


@pytest.mark.parametrize("com", [0.0, 2.0, 1e12])
def test_the_anchor_moves_at_every_optimiser_step(com: float) -> None:
    config = dataclasses.replace(CONFIG, com=com, optimiser="sgd")
    optimiser, now = make_optimiser(config), rates(config, learning_rate=0.1)
    targets = np.random.default_rng(0).normal(size=(6, 5))
    theta = np.random.default_rng(1).normal(size=5)
    inner = start_inner(optimiser, theta, policy_size=3)
    iterates = [theta[:3]]
    for target in targets:
        inner, report = gradient_step(
            config, optimiser, pull, inner, minibatch(target), now
        )
        slope = np.arange(1.0, 6.0) * (theta - target)
        np.testing.assert_allclose(report.grad_norm, np.linalg.norm(slope), rtol=1e-5)
        _, age = weighted_mean(np.stack(iterates), com / (1 + com))
        np.testing.assert_allclose(report.anchor_age, age, rtol=1e-5, atol=1e-6)
        theta = theta - 0.1 * slope
        iterates.append(theta[:3])
        mean, _ = weighted_mean(np.stack(iterates), com / (1 + com))
        assert inner.anchor is not None
        np.testing.assert_allclose(inner.anchor.vector, mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(inner.vector, theta, rtol=1e-4, atol=1e-6)


def start_inner(
    optimiser: optax.GradientTransformation, theta: Any, policy_size: int = 0
) -> Inner:
    vector = jnp.float32(theta)
    one, zero = jnp.ones(()), jnp.zeros(())
    anchor = Anchor(vector[:policy_size], one, zero) if policy_size else None
    return Inner(vector, optimiser.init(vector), anchor, jnp.zeros((), bool))


OPTIMISERS: list[tuple[dict, Callable[[], optax.GradientTransformation]]] = [
    ({"optimiser": "sgd"}, lambda: optax.sgd(0.1)),
    ({"optimiser": "sgd", "momentum": 0.7}, lambda: optax.sgd(0.1, momentum=0.7)),
    ({"adam_epsilon": 1e-5}, lambda: optax.adam(0.1, eps=1e-5)),
    (
        {"adam_beta1": 0.0, "adam_beta2": 0.5, "adam_epsilon": 0.1},
        lambda: optax.adam(0.1, b1=0.0, b2=0.5, eps=0.1),
    ),
    ({"adam_beta1": 0.5}, lambda: optax.adam(0.1, b1=0.5, eps=1e-5)),
]


@pytest.mark.parametrize("clip", [float("inf"), 0.5])
@pytest.mark.parametrize(("changes", "twin"), OPTIMISERS)
def test_optimisers_are_optaxs_over_the_whole_tree(
    changes: dict, twin: Callable, clip: float
) -> None:
    """Two leaves clipped by their common norm, three steps; ours on the one vector."""
    config = dataclasses.replace(CONFIG, **changes, max_grad_norm=clip)
    ours, now = make_optimiser(config), rates(config, learning_rate=0.1)
    theirs = twin()
    if clip < float("inf"):
        theirs = optax.chain(optax.clip_by_global_norm(clip), theirs)
    tree = {"policy": jnp.float32([[0.3, -1.0]]), "value": jnp.float32([2.0, 0.1, 5.0])}
    vector, unravel = ravel_pytree(tree)
    inner, state = start_inner(ours, vector), theirs.init(tree)
    for target in np.random.default_rng(2).normal(size=(3, 5)):
        rows = minibatch(target)
        gradient = jax.grad(lambda v, r=rows: pull(v, None, r)[0])(
            ravel_pytree(tree)[0]
        )
        change, state = theirs.update(unravel(gradient), state)
        tree = optax.apply_updates(tree, change)
        inner, _ = gradient_step(config, ours, pull, inner, rows, now)
    np.testing.assert_allclose(inner.vector, ravel_pytree(tree)[0], rtol=1e-5)


@given(st.integers(0, 2**31), st.floats(0.01, 100.0))
@settings(max_examples=25)
def test_clipping_is_by_the_norm_and_keeps_the_direction(
    seed: int, bound: float
) -> None:
    config = dataclasses.replace(CONFIG, optimiser="sgd", max_grad_norm=bound)
    optimiser = make_optimiser(config)
    gradient = np.random.default_rng(seed).normal(size=7).astype(np.float32)
    found, _ = optimiser.update(gradient, optimiser.init(gradient))
    expected = gradient * min(1.0, bound / float(np.linalg.norm(gradient)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_momentum_of_adam_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"momentum = 0.5 should be 0 .*adam_beta1"):
        dataclasses.replace(CONFIG, momentum=0.5)


# The outer step.


@given(st.integers(0, 2**31), st.floats(0.0, 0.99), st.floats(0.01, 2.0))
@settings(max_examples=25)
def test_outer_momentum_equals_the_loop_on_policy_and_anchor(
    seed: int, momentum: float, sigma: float
) -> None:
    config = dataclasses.replace(CONFIG, com=2.0, outer_momentum=0.5)
    now = rates(config, outer_momentum=momentum, outer_learning_rate=sigma)
    rng = np.random.default_rng(seed)
    learner = start_learner(config, {"policy": jnp.ones(3), "value": jnp.ones(2)})
    policy, anchor, v, w = np.ones(3), np.ones(3), np.zeros(3), np.zeros(3)
    for _ in range(4):
        new, new_anchor, critic = rng.normal(size=(3, 3))
        assert learner.anchor is not None
        inner = learner._replace(
            parameters={"policy": jnp.float32(new), "value": jnp.float32(critic)},
            anchor=learner.anchor._replace(vector=jnp.float32(new_anchor)),
        )
        learner = outer_step(config, learner, inner, now)
        v, w = momentum * v + (new - policy), momentum * w + (new_anchor - anchor)
        policy, anchor = policy + sigma * v, anchor + sigma * w
        assert learner.anchor is not None
        got = learner.parameters["policy"], learner.anchor.vector
        np.testing.assert_allclose(got[0], policy, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got[1], anchor, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(learner.parameters["value"], np.float32(critic))


def test_sigma_moves_the_anchor_likewise() -> None:
    config = dataclasses.replace(CONFIG, com=2.0)
    learner = start_learner(config, {"policy": jnp.ones(1), "value": ()})
    assert learner.anchor is not None
    inner = learner._replace(
        parameters={"policy": jnp.float32([5.0]), "value": ()},
        anchor=Anchor(jnp.float32([3.0]), jnp.float32(2.5), jnp.float32(0.7)),
    )
    for sigma, expected in ((0.25, (2.0, 1.5)), (1.0, (5.0, 3.0))):
        got = outer_step(
            config, learner, inner, rates(config, outer_learning_rate=sigma)
        )
        assert got.anchor is not None
        assert float(got.parameters["policy"][0]) == expected[0]
        assert float(got.anchor.vector[0]) == expected[1]
        assert float(got.anchor.weight) == 2.5
        assert float(got.anchor.age) == np.float32(0.7)
