"""Whole updates with a memory and with normalisers: what is learned, on any devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import keys, normalise
from fullscale.config import RunConfig
from fullscale.distributions import log_prob
from fullscale.presets import preset
from fullscale.rollout import rollout
from fullscale.state import TrainState, Trajectory
from tests.support.small_worlds import DELAY, recall, wander
from tests.support.trainer import Setup, setup_in, vector

EPISODE = DELAY + 1


def recall_config(network: str, **changes: object) -> RunConfig:
    return preset(
        "reacher", 10**6, num_envs=64, rollout_length=2 * EPISODE, minibatch_size=128,
        learning_rate=1e-2, network=network, hidden_sizes=(16,), discount=1.0,
        meter_interval=0, **changes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("network", "least", "most"), [("gru", 0.95, 1), ("mlp", 0, 0.7)]
)
def test_what_a_memory_is_for(network: str, least: float, most: float) -> None:
    """Without one at most half of the cues are named; with one nearly all.

    At 1/2 an average over the 4 · 128 episodes of four updates lies above 0.7 with
    probability 1e-19.
    """
    one = setup_in(recall(), recall_config(network), capacity=60)
    _, metrics = one.run(one.fresh(), one.rates(), 60)
    np.testing.assert_allclose(metrics["episode_length"], EPISODE)
    assert least <= metrics["episode_return"][-4:].mean() <= most


def test_one_and_four_devices_agree_on_memories_and_moments() -> None:
    """With the anchor, and stretches that are shorter than the rollout."""
    config = recall_config(
        "gru", segment_length=EPISODE, com=3.0, value_clip=0.5, max_grad_norm=1e9,
        normalise_observations=True, normalise_rewards=True,
    )  # fmt: skip
    results = []
    for devices in (1, 4):
        one = setup_in(recall(), config, devices)
        begun = one.fresh()
        state, _ = one.run(begun, one.rates(), 1)
        results.append(one.run(state, one.rates(), 1))
        assert types(state) == types(begun)  # so nothing is compiled again
    (first, metrics), (other, others) = results
    theta = vector(first.learner.parameters)
    difference = np.linalg.norm(vector(other.learner.parameters) - theta)
    assert difference <= 1e-5 * np.linalg.norm(theta)
    np.testing.assert_allclose(
        vector(other.normaliser), vector(first.normaliser), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        vector(other.worlds.carry), vector(first.worlds.carry), atol=1e-4
    )
    for name in ("outer_kl", "value_loss", "anchor_age", "explained_variance"):
        np.testing.assert_allclose(others[name], metrics[name], rtol=5e-3, atol=1e-6)


def types(tree: object) -> list:
    """Types and places of all leaves."""
    return [(jax.typeof(leaf), leaf.sharding) for leaf in jax.tree.leaves(tree)]


WANDER = preset(
    "reacher", 10**6, num_envs=8, rollout_length=12, minibatch_size=48,
    hidden_sizes=(4,), meter_interval=0, discount=0.9, normalise_observations=True,
    normalise_rewards=True,
)  # fmt: skip


def rerun(one: Setup, state: TrainState) -> Trajectory:
    """The rollout of the state's next update, once more."""
    now = jax.tree.map(lambda x: x[0], state)

    @jax.jit
    def collect(now: TrainState) -> Trajectory:
        key = keys.stream(now.key, keys.ROLLOUT, now.update)
        return rollout(
            one.environment,
            normalise.seeing(one.agent, now.normaliser),
            now.learner.parameters,
            now.worlds,
            key,
            jnp.arange(WANDER.num_blocks),
            WANDER.rollout_length,
            watch=True,
        )[1]

    return collect(now)


def test_moments_stand_still_in_an_update_and_then_are_those_of_all_data() -> None:
    """The oracle: every observation and discounted return so far, in numpy."""
    one = setup_in(wander(), WANDER)
    state = one.fresh()
    seen, found = [], []
    past = np.zeros(state.worlds.episode_return.shape[1:])
    for update in range(3):
        trajectory = rerun(one, state)
        before = jax.tree.map(lambda x: x[0], state.normaliser)
        spread = np.asarray(normalise.scale(before.observation), np.float64)
        raw = np.asarray(trajectory.observation, np.float64) * spread
        raw += np.asarray(before.observation.mean)
        seen.append(raw.reshape(-1, 2))
        done = np.asarray(trajectory.terminated | trajectory.truncated)
        for time, reward in enumerate(np.asarray(trajectory.reward, np.float64)):
            past = 0.9 * past + reward
            found.append(past)
            past = np.where(done[time], 0.0, past)
        state, _ = one.run(state, one.rates(), 1)
        after = jax.tree.map(lambda x: x[0], state.normaliser)
        assert int(after.updates) == update + 1
        whole, returns = np.concatenate(seen), np.stack(found)
        np.testing.assert_allclose(after.observation.mean, whole.mean(0), atol=1e-5)
        np.testing.assert_allclose(after.observation.variance, whole.var(0), rtol=1e-4)
        np.testing.assert_allclose(
            after.discounted_return.mean, returns.mean(), atol=1e-5
        )
        np.testing.assert_allclose(
            after.discounted_return.variance, returns.var(), rtol=1e-4
        )


def test_the_policy_that_learns_is_the_one_that_acted_behind_the_normaliser() -> None:
    """T1: stored log-densities again from stored observations, three updates in."""
    one = setup_in(wander(), WANDER)
    state, metrics = one.run(one.fresh(), one.rates(learning_rate=0.0), 3)
    trajectory = rerun(one, state)
    parameters = jax.tree.map(lambda x: x[0], state.learner.parameters)
    policy = one.agent.policy(parameters["policy"], trajectory.observation)
    again = log_prob(policy, trajectory.action)
    np.testing.assert_allclose(again, trajectory.log_prob, atol=1e-5)
    assert metrics["approx_kl"].max() < 1e-9
    assert (metrics["clip_fraction"] == 0).all()
    assert (metrics["outer_kl"] == 0).all()
