"""Running moments against numpy in double precision over everything seen so far."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import mesh, normalise, snapshot, summary
from fullscale.config import ConfigError, RunConfig
from fullscale.environments import make_environment
from fullscale.loss import DEVICE
from fullscale.network import make_agent
from fullscale.normalise import Moments, Normaliser
from fullscale.presets import preset
from fullscale.score import evaluate
from tests.support.small_worlds import wander

merge = jax.jit(normalise.merge)
OBS = 3


def config_of(**changes: object) -> RunConfig:
    return preset("reacher", 10**6, **changes)


def run(batches: list[np.ndarray]) -> Moments:
    """Merge batch after batch, from the beginning."""
    now = normalise.start(config_of(normalise_observations=True), OBS)
    assert now is not None
    assert now.observation is not None
    moments = now.observation
    for updates, batch in enumerate(batches):
        mean = batch.mean(0)
        new = Moments(jnp.asarray(mean), jnp.asarray(np.square(batch - mean).mean(0)))
        moments = merge(moments, new, jnp.int32(updates))
    return moments


@given(
    st.lists(st.integers(0, 2**31), min_size=1, max_size=6),
    st.floats(-1e4, 1e4, width=32),
    st.floats(0.125, 8, width=32),
)
def test_merged_moments_are_those_of_all_batches_together(
    seeds: list[int], offset: float, spread: float
) -> None:
    """At an offset of 1e4 standard deviations single precision still suffices."""
    draws = [np.random.default_rng(s).normal(size=(50, OBS)) for s in seeds]
    batches = [(offset + spread * d).astype(np.float32) for d in draws]
    whole = np.concatenate(batches).astype(np.float64)
    got = run(batches)
    error = 1e-6 * abs(offset) + 1e-5 * spread
    np.testing.assert_allclose(got.mean, whole.mean(0), atol=error)
    np.testing.assert_allclose(
        got.variance, whole.var(0), rtol=1e-3, atol=10 * spread * error
    )


def test_the_first_merge_forgets_where_it_started() -> None:
    new = Moments(jnp.asarray([3.0]), jnp.asarray([1e-12]))
    got = merge(Moments(jnp.zeros(1), jnp.ones(1)), new, jnp.int32(0))
    np.testing.assert_array_equal(got.mean, new.mean)
    np.testing.assert_array_equal(got.variance, new.variance)


def test_counting_goes_on_at_large_numbers_of_updates() -> None:
    old = Moments(jnp.ones(1), jnp.ones(1))
    got = merge(old, Moments(jnp.ones(1) + 1, jnp.ones(1)), jnp.int32(2**31 - 2))
    np.testing.assert_allclose(got.mean, 1.0, atol=1e-6)
    assert np.isfinite(got.variance).all()


def test_devices_with_other_means_are_one_batch() -> None:
    draws = np.random.default_rng(0).normal(size=(4, 60, OBS)).astype(np.float32)
    draws += 1e4 + 5 * np.arange(4, dtype=np.float32)[:, None, None]
    spec = jax.sharding.PartitionSpec(DEVICE)

    def whole(x: jax.Array) -> Moments:
        mean = x[0].mean(0, keepdims=True)
        local = Moments(mean[0], jnp.square(x[0] - mean).mean(0))
        return normalise.over_devices(local)

    mapped = jax.shard_map(
        whole,
        mesh=mesh.make_mesh(4),
        in_specs=spec,
        out_specs=jax.sharding.PartitionSpec(),
    )
    got = jax.jit(mapped)(jnp.asarray(draws))
    together = draws.reshape(-1, OBS).astype(np.float64)
    np.testing.assert_allclose(got.mean, together.mean(0), rtol=1e-6)
    np.testing.assert_allclose(got.variance, together.var(0), rtol=1e-3)


def test_what_does_not_vary_is_only_centred_and_outliers_are_clipped() -> None:
    moments = Moments(
        mean=jnp.asarray([1e4, 0.1, 0.0]), variance=jnp.asarray([1.0, 1e-18, 0.0])
    )
    np.testing.assert_array_equal(normalise.scale(moments), [1.0, 1.0, 1.0])
    agent = make_agent(config_of(), make_environment(config_of()))
    eyes = normalise.seeing(agent, Normaliser(jnp.int32(1), moments, None))
    seen = eyes.see(jnp.asarray([[1e4 + 2.5, 0.35, 700.0]]))
    np.testing.assert_allclose(seen, [[2.5, 0.25, normalise.LIMIT]], atol=1e-3)
    assert normalise.seeing(agent, None) is agent
    assert normalise.seeing(agent, Normaliser(jnp.int32(1), None, moments)) is agent


def test_discounted_returns_are_the_loop() -> None:
    draw = np.random.default_rng(1)
    reward, done = draw.normal(size=(9, 2, 3)), draw.random((9, 2, 3)) < 0.3
    before, discount = draw.normal(size=(2, 3)), 0.9
    found, after = jax.jit(normalise.discounted_returns)(
        *(
            jnp.asarray(x, jnp.float32) if x.dtype != bool else x
            for x in (reward, done)
        ),
        jnp.asarray(before, jnp.float32),
        jnp.float32(discount),
    )
    past = before.copy()
    for time in range(9):
        past = discount * past + reward[time]
        np.testing.assert_allclose(found[time], past, atol=1e-5)
        past = np.where(done[time], 0.0, past)
    np.testing.assert_allclose(after, past, atol=1e-5)


def test_rewards_are_divided_and_not_shifted() -> None:
    moments = Moments(jnp.asarray(7.0), jnp.asarray(4.0))
    reward = jnp.asarray([[1.0, -3.0]])
    got = normalise.rewards(Normaliser(jnp.int32(1), None, moments), reward)
    np.testing.assert_allclose(got, [[0.5, -1.5]])
    assert normalise.rewards(None, reward) is reward


def test_nothing_is_kept_where_nothing_is_normalised() -> None:
    assert normalise.start(config_of(), OBS) is None
    assert normalise.after(None, None, None) is None
    assert normalise.as_dict(None) == {}
    assert normalise.from_dict({}) is None


def two_seeds(**changes: object) -> Normaliser:
    """What a state holds after some updates, with a leading seed axis."""
    normaliser = normalise.start(config_of(**changes), 2)
    assert normaliser is not None
    draw = lambda x: jnp.arange(1, 2 * x.size + 1, dtype=x.dtype).reshape(2, *x.shape)  # noqa: E731
    return jax.tree.map(draw, normaliser)


@pytest.mark.parametrize("which", ["normalise_observations", "normalise_rewards"])
def test_written_and_read_back(which: str, tmp_path: Path) -> None:
    """Through the parameters' file, and by the paths that checkpoints have."""
    normaliser = two_seeds(**{which: True})
    written = normalise.as_dict(normaliser)
    assert len(written) == 2
    summary.write_parameters(tmp_path, {"policy": {}, "normaliser": written})
    read = summary.read_parameters(tmp_path)["normaliser"]
    by_path = snapshot.by_path(jax.device_get({"normaliser": normaliser}))
    for found in (read, summary.nested(by_path)["normaliser"]):
        again = normalise.from_dict(found)
        jax.tree.map(np.testing.assert_array_equal, again, normaliser)


def test_scores_are_of_policies_that_see_through_their_own_normaliser() -> None:
    """Seed by seed the same as behind that seed's moments, which stay what they are."""
    environment, config = wander(), config_of(hidden_sizes=(4,), evaluation_episodes=8)
    agent = make_agent(config, environment)
    policy = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2))["policy"]
    policy = jax.tree.map(lambda p: p + 0.3, policy)
    normaliser = two_seeds(normalise_observations=True)
    score = evaluate(config, environment, agent, policy, None, normaliser)["score"]
    plain = evaluate(config, environment, agent, policy)["score"]
    assert (score != plain).all()
    for seed in range(2):
        pick = functools.partial(jax.tree.map, lambda x, s=seed: x[s : s + 1])
        eyes = normalise.seeing(agent, jax.tree.map(lambda x, s=seed: x[s], normaliser))
        alone = evaluate(config, environment, eyes, pick(policy))["score"]
        np.testing.assert_allclose(alone, score[seed], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"environment": "lqr", "normalise_observations": True}, "'lqr'"),
        ({"environment": "lqr", "storage_precision": "bfloat16"}, "'bfloat16'"),
        ({"environment": "bandit", "normalise_rewards": True}, "entropy bonus"),
    ],
)
def test_exact_returns_of_other_policies_are_refused(changes: dict, named: str) -> None:
    config = preset(changes.pop("environment"), 10**6, **changes)
    with pytest.raises(ConfigError, match=named):
        make_agent(config, make_environment(config))
