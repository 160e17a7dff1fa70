"""The update as a whole: σ, ratio 1, device independence, seeds, one compile."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale import distributions, keys, mesh, rollout
from fullscale.config import ConfigError, RunConfig
from fullscale.iteration import iteration, start
from fullscale.loss import DEVICE
from fullscale.measure import outer_kl
from fullscale.state import Learner, Worlds
from fullscale.update import outer_step
from tests.support.trainer import (
    METERED_LQR,
    SMALL_BANDIT,
    SMALL_LQR,
    SMALL_REACHER,
    Setup,
    copy,
    setup,
    vector,
)

ALL = [SMALL_BANDIT, SMALL_LQR, SMALL_REACHER]
names = [config.environment for config in ALL]


def moved(one: Setup, sigma: float) -> tuple[np.ndarray, float]:
    """θ − θ_k of the policy and the outer KL of one update at this σ."""
    before = one.fresh()
    after, metrics = one.run(before, one.rates(outer_learning_rate=sigma), 1)
    change = vector(after.learner.parameters["policy"])
    change -= vector(before.learner.parameters["policy"])
    return change, float(metrics["outer_kl"][0, 0])


@pytest.mark.parametrize("config", ALL, ids=names)
def test_halving_sigma_halves_the_outer_step(config: RunConfig) -> None:
    one = setup(config)
    whole, kl = moved(one, 1.0)
    half, half_kl = moved(one, 0.5)
    np.testing.assert_allclose(half, whole / 2, rtol=1e-4, atol=1e-6)
    # Exactly fourfold for a Gaussian of fixed spread; to leading order elsewhere.
    tolerance = {"lqr": 1e-4, "bandit": 0.05, "reacher": 0.05}[config.environment]
    np.testing.assert_allclose(half_kl, kl / 4, rtol=tolerance)


def test_sigma_leaves_critic_and_optimiser_at_their_inner_values() -> None:
    one = setup(SMALL_LQR)
    states = [
        one.run(one.fresh(), one.rates(outer_learning_rate=s), 1)[0] for s in (1.0, 0.3)
    ]
    for part in (
        lambda s: s.learner.parameters["value"],
        lambda s: s.learner.optimiser,
    ):
        first, second = (vector(part(state)) for state in states)
        np.testing.assert_array_equal(first, second)


def test_the_outer_step_is_the_formula() -> None:
    one = setup(SMALL_LQR)

    def at(*values: float) -> Learner:
        policy = {"w": jnp.asarray(values)}
        return Learner({"policy": policy, "value": ()}, None, None, None)

    for sigma, expected in ((0.25, [1.5, 1.0]), (1.0, [3.0, -2.0])):
        rates = one.rates(outer_learning_rate=sigma)
        rates = jax.tree.map(lambda column: column[0], rates)
        got = outer_step(SMALL_LQR, at(1.0, 2.0), at(3.0, -2.0), rates)
        np.testing.assert_array_equal(got.parameters["policy"]["w"], expected)


@pytest.mark.parametrize("config", ALL, ids=names)
def test_unchanged_parameters_give_ratio_one_and_kl_zero(config: RunConfig) -> None:
    """Recomputed at the same shapes exactly; against stored log-probs to 1e-5."""
    one = setup(config)
    state = jax.tree.map(lambda x: x[0], one.fresh())
    blocks = jnp.arange(config.num_blocks)
    parameters = state.learner.parameters

    @jax.jit
    def collect(worlds: Worlds, key: jax.Array) -> tuple:
        _, trajectory, _ = rollout.rollout(
            one.environment, one.agent, parameters, worlds, key, blocks,
            config.rollout_length,
        )  # fmt: skip
        policy = one.agent.policy(parameters["policy"], trajectory.observation)
        return trajectory, distributions.log_prob(policy, trajectory.action)

    trajectory, again = collect(state.worlds, jax.random.key(3))
    np.testing.assert_allclose(again, trajectory.log_prob, atol=1e-5)
    recompute = jax.jit(
        lambda: distributions.log_prob(
            one.agent.policy(parameters["policy"], trajectory.observation),
            trajectory.action,
        )
    )
    np.testing.assert_array_equal(np.exp(recompute() - recompute()), 1.0)
    rows = trajectory.observation.reshape(-1, one.environment.observation_size)
    spec = jax.sharding.PartitionSpec()
    kl = jax.jit(
        jax.shard_map(
            lambda x: outer_kl(
                one.agent, parameters["policy"], parameters["policy"], x, len(rows)
            ),
            mesh=mesh.make_mesh(1),
            in_specs=spec,
            out_specs=spec,
        )
    )(rows)
    assert float(kl) == 0.0


@pytest.mark.parametrize(
    "config", [SMALL_BANDIT, METERED_LQR, SMALL_REACHER], ids=names
)
def test_one_and_four_devices_agree(config: RunConfig) -> None:
    results = []
    for devices in (1, 4):
        one = setup(config, devices)
        state, metrics = one.run(one.fresh(), one.rates(), 1)
        results.append((vector(state.learner.parameters), metrics))
    (theta_1, metrics_1), (theta_4, metrics_4) = results
    difference = np.linalg.norm(theta_4 - theta_1)
    assert difference <= 1e-5 * np.linalg.norm(theta_1)
    for name, values in metrics_1.items():
        np.testing.assert_allclose(metrics_4[name], values, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("config", [SMALL_LQR, SMALL_BANDIT], ids=["lqr", "bandit"])
def test_one_and_four_devices_agree_in_double_precision(config: RunConfig) -> None:
    with jax.enable_x64(new_val=True):
        thetas = []
        for devices in (1, 4):
            one = setup.__wrapped__(config, devices)
            state, _ = one.run(one.fresh(), one.rates(), 1)
            assert jax.tree.leaves(state.learner.parameters)[0].dtype == jnp.float64
            thetas.append(vector(state.learner.parameters))
    difference = np.linalg.norm(thetas[1] - thetas[0])
    assert difference <= 1e-10 * np.linalg.norm(thetas[0])
    assert np.linalg.norm(thetas[0]) > 0


def test_vmapped_seeds_equal_the_loop() -> None:
    one = setup(SMALL_LQR)
    together, _ = one.run(one.fresh(5, 3), one.rates(), 2)
    for index in range(3):
        alone, _ = one.run(one.fresh(5 + index), one.rates(), 2)
        pick = jax.tree.map(lambda x, i=index: x[i], together.learner.parameters)
        np.testing.assert_allclose(
            vector(pick), vector(alone.learner.parameters), rtol=1e-5, atol=1e-6
        )


def test_seeds_on_devices_of_their_own_equal_the_vmapped_ones() -> None:
    """Four seeds on 1, 2, 4 devices, and on 4 devices of which two share a seed."""
    config = dataclasses.replace(SMALL_LQR, num_seeds=4)
    results = []
    for devices in (1, 2, 4):
        one = setup(config, devices)
        state, metrics = one.run(one.fresh(0, 4), one.rates(), 2)
        assert metrics["outer_kl"].shape == (2, 4)
        results.append(vector(state.learner.parameters))
    pair = setup(dataclasses.replace(SMALL_LQR, num_seeds=2), 4)
    state, _ = pair.run(pair.fresh(0, 2), pair.rates(), 2)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)
    leaves = jax.tree.leaves(state.learner.parameters)
    one = setup(config, 1)
    reference, _ = one.run(one.fresh(0, 4), one.rates(), 2)
    for leaf, whole in zip(
        leaves, jax.tree.leaves(reference.learner.parameters), strict=True
    ):
        np.testing.assert_allclose(leaf, whole[:2], rtol=1e-4, atol=1e-6)


def test_seeds_differ() -> None:
    one = setup(SMALL_LQR)
    state, metrics = one.run(one.fresh(0, 2), one.rates(), 1)
    kernel = np.asarray(state.learner.parameters["policy"]["Dense_0"]["kernel"])
    assert not np.allclose(kernel[0], kernel[1])
    assert metrics["outer_kl"].shape == (1, 2)


def test_updates_draw_anew() -> None:
    """Whatever environments show after each of three updates was not there before."""
    one = setup(SMALL_LQR)
    state, seen = one.fresh(), []
    for _ in range(3):
        state, _ = one.run(state, one.rates(learning_rate=0.0), 1)
        seen.append(np.asarray(state.worlds.observation).reshape(16, -1))
    rows = np.concatenate(seen)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_chunks_do_not_change_the_run() -> None:
    one = setup(SMALL_LQR)
    whole, history = one.run(one.fresh(), one.rates(), 4)
    first, a = one.run(one.fresh(), one.rates(), 1)
    second, b = one.run(first, one.rates(), 3)
    np.testing.assert_array_equal(
        vector(whole.learner.parameters), vector(second.learner.parameters)
    )
    for name, values in history.items():
        np.testing.assert_array_equal(np.concatenate([a[name], b[name]]), values)


@pytest.mark.parametrize("config", ALL, ids=names)
def test_a_run_compiles_once(config: RunConfig) -> None:
    """Also for the second chunk, other counts, and other rates."""
    one = setup.__wrapped__(config, capacity=5)
    state = one.fresh()
    for count, sigma in ((2, 1.0), (1, 0.5), (3, 0.25)):
        rates = one.rates(outer_learning_rate=sigma, clip_epsilon=sigma)
        state, _ = one.chunk(state, rates, jnp.int32(count))
    assert one.chunk._cache_size() == 1


def test_jitted_equals_unjitted() -> None:
    """One update of the plain Python functions against the compiled one."""
    one = setup(SMALL_BANDIT)
    compiled, _ = one.run(one.fresh(), one.rates(), 1)
    blocks = jnp.arange(SMALL_BANDIT.num_blocks)
    parts = (SMALL_BANDIT, one.environment, one.agent)
    key = keys.base_keys(0, 1)[0]
    spec = jax.sharding.PartitionSpec()

    def update(key: jax.Array) -> object:
        rates = jax.tree.map(lambda column: column[0], one.rates())
        begun = start(*parts, key, blocks)
        state, _ = iteration(*parts, begun, rates, blocks, jnp.int32(0))
        return state.learner.parameters

    grid = mesh.make_mesh(1)
    mapped = jax.shard_map(
        update, mesh=grid, in_specs=spec, out_specs=spec, check_vma=False
    )
    plain = mapped(key)
    np.testing.assert_allclose(
        vector(plain), vector(compiled.learner.parameters), rtol=1e-5, atol=1e-6
    )


def test_devices_that_do_not_exist_or_fit_are_refused() -> None:
    assert mesh.choose_devices(SMALL_LQR, None) == 4
    assert mesh.choose_devices(SMALL_LQR, 2) == 2
    for wanted in (0, 3, 5):
        with pytest.raises(ConfigError, match=f"devices = {wanted} should be one of"):
            mesh.choose_devices(SMALL_LQR, wanted)


def test_the_mesh_axis_is_the_losses() -> None:
    assert mesh.make_mesh(2).axis_names == (mesh.SEED, DEVICE)


def test_metrics_of_an_update_are_what_is_promised() -> None:
    one = setup(METERED_LQR)
    _, metrics = one.run(one.fresh(), one.rates(), 1)
    assert set(metrics) == {
        "outer_kl", "policy_loss", "value_loss", "entropy", "clip_fraction",
        "approx_kl", "grad_norm", "explained_variance", "episode_return",
        "episode_length", "exact_return", "anchor_age", "skipped_gradient_steps",
        "nonfinite_gradients", "nonfinite_rewards", "nonfinite_observations",
        "nonfinite_environment", "outer_noise_kl", "outer_signal_kl", "noise_scale",
        "noise_trace", "gradient_square",
        *(f"kl_to_update_{10**decade}" for decade in range(10)),
    }  # fmt: skip
    assert metrics["clip_fraction"][0, 0] >= 0
    assert metrics["approx_kl"][0, 0] >= 0


def test_a_copy_survives_donation() -> None:
    one = setup(SMALL_LQR)
    state = one.fresh()
    one.chunk(copy(state), one.rates(), jnp.int32(1))
    assert np.isfinite(vector(state.learner.parameters)).all()
