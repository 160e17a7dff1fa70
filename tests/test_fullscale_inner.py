"""The inner loop on `bandit`: where the anchor is, and where the KL stop acts."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fullscale import schedule, update
from fullscale.config import RunConfig
from fullscale.environments import make_environment
from fullscale.iteration import _learning
from fullscale.loss import DEVICE, loss
from fullscale.network import make_agent
from fullscale.presets import preset
from fullscale.shuffle import minibatch_rows
from fullscale.state import Anchor, Batch, Learner, Rates
from fullscale.update import inner_loop, start_learner

# Two programs serve all tests; numbers of `com` and limits of the KL are traced.
CONFIG = preset(
    "bandit", 64, num_envs=64, minibatch_size=16, update_epochs=2, meter_interval=0,
    optimiser="sgd", momentum=0.5, target_kl=1.0,
)  # fmt: skip
MOVING = dataclasses.replace(CONFIG, com=1.0)
BLOCKS = jnp.arange(CONFIG.num_blocks)


def rates(config: RunConfig, **changes: float) -> Rates:
    """The rates of the first update without a limit of the KL, with some changed."""
    found = jax.tree.map(lambda column: column[0], schedule.rates(config, [0]))
    changes = {"target_kl": np.inf, **changes}
    return found._replace(**{name: jnp.float32(v) for name, v in changes.items()})


ENVIRONMENT = make_environment(CONFIG)
AGENT = make_agent(CONFIG, ENVIRONMENT)


def bandit_batch(policy: Any, seed: int = 0) -> Batch:
    """64 transitions of the policy."""
    rng = np.random.default_rng(seed)
    head: Any = AGENT.policy(policy, jnp.ones((64, 1)))
    log_p = jax.nn.log_softmax(head.logits)
    action = jnp.asarray(rng.integers(0, 10, 64))
    log_prob = jnp.take_along_axis(log_p, action[:, None], 1)[:, 0]
    advantage, target = jnp.float32(rng.normal(size=(2, 64)))
    return Batch(jnp.ones((64, 1)), action, log_prob, advantage, target, None)


@functools.lru_cache
def compiled(config: RunConfig) -> Callable:
    """The inner loop of one device, jitted."""

    def run(learner: Learner, batch: Batch, now: Rates) -> tuple[Learner, Any]:
        key = jax.random.key(7)
        return inner_loop(config, AGENT, learner, batch, now, key, BLOCKS)

    return jax.jit(jax.vmap(run, axis_name=DEVICE))


def learn(
    config: RunConfig, learner: Learner, batch: Batch, now: Rates
) -> tuple[Learner, Any]:
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], (learner, batch, now))
    return jax.tree.map(lambda x: x[0], compiled(config)(*one))


def fresh(config: RunConfig) -> Learner:
    return start_learner(config, AGENT.init(jax.random.key(3)))


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], np.float64)


def test_com_zero_is_the_policy_and_clipping_never_binds() -> None:
    """ε = 0 and ε = 10 learn the same at steps that plain PPO would clip."""
    learner = fresh(MOVING)
    batch = bandit_batch(learner.parameters["policy"])
    none = float(rates(dataclasses.replace(MOVING, com=0.0)).ewma_decay)
    found = []
    for epsilon in (0.0, 10.0):
        now = rates(MOVING, learning_rate=0.3, clip_epsilon=epsilon, ewma_decay=none)
        after, report = learn(MOVING, learner, batch, now)
        assert float(report.info.clip_fraction) == 0.0
        assert float(report.anchor_age) == 0.0
        assert after.anchor is not None
        policy = flat(after.parameters["policy"])
        np.testing.assert_array_equal(after.anchor.vector, policy)
        found.append(flat(after.parameters))
    np.testing.assert_array_equal(found[0], found[1])
    now = rates(CONFIG, learning_rate=0.3, clip_epsilon=0.0)
    _, report = learn(CONFIG, fresh(CONFIG), batch, now)
    assert float(report.info.clip_fraction) > 0.1


def test_plain_ppo_is_an_anchor_reset_to_the_behaviour_policy_at_each_update() -> None:
    """And that stays there (W = ∞), over two updates."""
    plain, reset = fresh(CONFIG), fresh(MOVING)
    now = rates(CONFIG, learning_rate=0.05, clip_epsilon=0.1)
    for seed in range(2):
        batch = bandit_batch(plain.parameters["policy"], seed)
        policy, _ = ravel_pytree(plain.parameters["policy"])
        anchor = Anchor(policy, jnp.float32(np.inf), jnp.zeros(()))
        plain, one = learn(CONFIG, plain, batch, now)
        reset, two = learn(MOVING, reset._replace(anchor=anchor), batch, now)
        np.testing.assert_allclose(
            flat(reset.parameters), flat(plain.parameters), rtol=1e-4, atol=1e-5
        )
        for a, b in zip(one.info, two.info, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5)


def twin_with_stop(
    config: RunConfig, learner: Learner, batch: Batch, now: Rates, limit: float
) -> tuple[np.ndarray, int, list[float]]:
    """SGD minibatch by minibatch, until one's KL estimate is too large."""
    vector, unravel = ravel_pytree(learner.parameters)
    velocity = jnp.zeros_like(vector)
    steps, estimates = 0, []
    key, size = jax.random.key(7), 64 // config.num_blocks

    def of(vector: jax.Array, rows: Batch) -> tuple:
        parameters = unravel(vector)
        return loss(config, AGENT, parameters, None, rows, now)

    slope = jax.jit(
        jax.vmap(jax.grad(of, has_aux=True), in_axes=(0, None), axis_name=DEVICE)
    )
    for epoch in range(config.update_epochs):
        order = jax.random.fold_in(key, epoch)
        for rows in minibatch_rows(order, BLOCKS, size, config.num_minibatches):
            part = jax.tree.map(lambda x, r=rows: x[r], batch)
            gradient, info = slope(vector[None], part)
            estimates.append(float(info.approx_kl[0]))
            if estimates[-1] > limit:
                return flat(vector), steps, estimates
            velocity = config.momentum * velocity + gradient[0]
            vector, steps = vector - now.learning_rate * velocity, steps + 1
    return flat(vector), steps, estimates


def test_the_kl_stop_acts_at_the_minibatch_and_shows_in_the_log() -> None:
    learner = fresh(CONFIG)
    batch = bandit_batch(learner.parameters["policy"])
    total = CONFIG.gradient_steps_per_update
    now = rates(CONFIG, learning_rate=0.2)
    _, taken, estimates = twin_with_stop(CONFIG, learner, batch, now, np.inf)
    assert taken == total
    # A limit between the estimates: it is passed in the middle of an epoch.
    limit = float(np.mean(np.sort(estimates)[3:5]))
    expected, taken, _ = twin_with_stop(CONFIG, learner, batch, now, limit)
    assert 0 < taken < total
    now = now._replace(target_kl=jnp.float32(limit))
    after, report = learn(CONFIG, learner, batch, now)
    np.testing.assert_allclose(flat(after.parameters), expected, rtol=1e-5, atol=1e-6)
    logged = _learning(CONFIG, report)
    assert float(logged["skipped_gradient_steps"]) == total - taken
    # The next update begins anew: its first estimate is zero and its step is taken.
    batch = bandit_batch(after.parameters["policy"], 1)
    again, report = learn(CONFIG, after, batch, now)
    assert float(report.skipped) < total
    assert not np.array_equal(flat(again.parameters), flat(after.parameters))


def test_a_skipped_step_leaves_optimiser_and_anchor_alone() -> None:
    learner = fresh(MOVING)
    batch = bandit_batch(learner.parameters["policy"])
    far = batch._replace(log_prob=batch.log_prob - 1.0)  # KL estimate e − 2
    after, report = learn(MOVING, learner, far, rates(MOVING, target_kl=0.7))
    assert float(report.skipped) == MOVING.gradient_steps_per_update
    for before, now in zip(
        jax.tree.leaves(learner), jax.tree.leaves(after), strict=True
    ):
        np.testing.assert_array_equal(before, now)
    _, report = learn(MOVING, learner, far, rates(MOVING, target_kl=0.75))
    assert float(report.skipped) < MOVING.gradient_steps_per_update


def test_every_epoch_is_shuffled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a permutation of its own of all rows."""
    orders: list[np.ndarray] = []

    def watched(*arguments: Any) -> jax.Array:
        rows = minibatch_rows(*arguments)
        jax.debug.callback(lambda found: orders.append(np.array(found)), rows)
        return rows

    monkeypatch.setattr(update, "minibatch_rows", watched)
    config = dataclasses.replace(CONFIG, update_epochs=5)
    learner = fresh(config)
    learn(config, learner, bandit_batch(learner.parameters["policy"]), rates(config))
    jax.effects_barrier()
    assert len({order.tobytes() for order in orders}) == len(orders) == 5
    for order in orders:
        np.testing.assert_array_equal(np.sort(order.ravel()), np.arange(64))
