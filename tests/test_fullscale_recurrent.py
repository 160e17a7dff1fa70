"""The recurrent layer and agent alone: against flax, a loop, and across episodes."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from fullscale.agent import Agent, Carry, Stretch
from fullscale.distributions import log_prob
from fullscale.environments import make_environment
from fullscale.layers import GatedRecurrence
from fullscale.network import make_agent
from fullscale.presets import preset

TIME, BATCH, FEATURES, WIDTH = 5, 3, 4, 6
LAYER = GatedRecurrence(WIDTH)
layer = jax.jit(LAYER.apply)


@functools.cache
def draw(seed: int) -> tuple:
    """(parameters, carry, inputs) of a layer with nothing special about them."""
    keys = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.normal(keys[0], (TIME, BATCH, FEATURES))
    carry = jax.random.normal(keys[1], (BATCH, WIDTH))
    params = LAYER.init(keys[2], carry, x, jnp.zeros((TIME, BATCH), bool))
    params = jax.tree.map(
        lambda p: p + 0.1 * jnp.cos(jnp.arange(p.size)).reshape(p.shape), params
    )
    return params, carry, x


def flax_parameters(params: dict) -> dict:
    """Our parameters under the names of flax's cell."""
    own = params["params"]
    kernels = jnp.split(own["input"]["kernel"], 3, axis=1)
    biases = jnp.split(own["input"]["bias"], 3)
    recurrent = jnp.split(own["recurrent"], 3, axis=1)
    cell = {
        f"i{gate}": {"kernel": k, "bias": b}
        for gate, k, b in zip("rzn", kernels, biases, strict=True)
    }
    cell |= {f"h{g}": {"kernel": k} for g, k in zip("rzn", recurrent, strict=True)}
    cell["hn"]["bias"] = own["bias"]
    return {"params": cell}


def test_one_step_is_that_of_flax() -> None:
    params, carry, x = draw(0)
    never = jnp.zeros((1, BATCH), bool)
    after, features = layer(params, carry, x[:1], never)
    expected, _ = nn.GRUCell(WIDTH).apply(flax_parameters(params), carry, x[0])
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after, features[-1])


@given(st.lists(st.booleans(), min_size=TIME * BATCH, max_size=TIME * BATCH))
def test_unrolling_is_the_loop_of_steps_with_resets_before_them(starts: list) -> None:
    """The slow twin: numpy in double precision, one environment at a time."""
    params, carry, x = draw(1)
    own = jax.tree.map(lambda p: np.asarray(p, np.float64), params["params"])
    inputs = np.asarray(x, np.float64)
    start = np.asarray(starts).reshape(TIME, BATCH)
    after, features = map(np.asarray, layer(params, carry, x, jnp.asarray(start)))
    for env in range(BATCH):
        h = np.asarray(carry[env], np.float64)
        for time in range(TIME):
            h = np.zeros(WIDTH) if start[time, env] else h
            h = numpy_step(own, h, inputs[time, env])
            np.testing.assert_allclose(features[time, env], h, atol=2e-6)
        np.testing.assert_allclose(after[env], h, atol=2e-6)


def numpy_step(own: dict, h: np.ndarray, x: np.ndarray) -> np.ndarray:
    r, z, c = np.split(x @ own["input"]["kernel"] + own["input"]["bias"], 3)
    u_r, u_z, u_c = np.split(h @ own["recurrent"], 3)
    reset, keep = special.expit(r + u_r), special.expit(z + u_z)
    return (1 - keep) * np.tanh(c + reset * (u_c + own["bias"])) + keep * h


def test_nothing_before_a_start_is_remembered_and_what_follows_is() -> None:
    params, carry, x = draw(2)
    start = jnp.zeros((TIME, BATCH), bool).at[2].set(True)
    _, features = layer(params, carry, x, start)
    _, other = layer(params, carry + 1.0, x.at[1].add(1.0), start)
    assert (np.asarray(features[:2]) != np.asarray(other[:2])).all()
    np.testing.assert_array_equal(features[2:], other[2:])
    _, other = layer(params, carry, x.at[2].add(1.0), start)
    assert (np.asarray(features[2:]) != np.asarray(other[2:])).all()


def test_gradients_end_at_a_start() -> None:
    params, carry, x = draw(3)
    start = jnp.zeros((TIME, BATCH), bool).at[3, 0].set(True)

    def last(x: jax.Array) -> jax.Array:
        return layer(params, carry, x, start)[1][-1].sum()

    gradient = np.asarray(jax.grad(last)(x))
    assert (gradient[:3, 0] == 0).all()
    assert (gradient[3:, 0] != 0).all()
    assert (gradient[:, 1:] != 0).all()


def test_each_gate_starts_orthogonal_towards_the_carry() -> None:
    params = LAYER.init(jax.random.key(0), *draw(0)[1:], jnp.zeros((TIME, BATCH), bool))
    for block in jnp.split(params["params"]["recurrent"], 3, axis=1):
        np.testing.assert_allclose(block.T @ block, np.eye(WIDTH), atol=1e-5)


CONFIG = preset(
    "reacher", 10**6, num_envs=6, rollout_length=10, minibatch_size=30,
    network="gru", hidden_sizes=(7, 5), segment_length=5,
)  # fmt: skip


def agent_and_parameters() -> tuple[Agent, dict]:
    agent = make_agent(CONFIG, make_environment(CONFIG))
    parameters = agent.init(jax.random.key(0))
    spread = lambda p: p + 0.3 * jnp.sin(jnp.arange(p.size)).reshape(p.shape)  # noqa: E731
    return agent, jax.tree.map(spread, parameters)


def test_a_batch_of_stretches_is_step_after_step() -> None:
    """`policy` and `value` on stretches against `act` and `judge`, starts included."""
    agent, parameters = agent_and_parameters()
    keys = jax.random.split(jax.random.key(1), 4)
    rows, time = 4, 6
    x = jax.random.normal(keys[0], (rows, time, 8))
    start = jax.random.bernoulli(keys[1], 0.3, (rows, time))
    carry = jax.tree.map(
        lambda c: jax.random.normal(keys[2], c.shape), agent.carry((rows,))
    )
    action = jax.random.normal(keys[3], (rows, time, 2))
    stretch = Stretch(x, start, carry)
    policy = jax.jit(agent.policy)(parameters["policy"], stretch)
    value = jax.jit(agent.value)(parameters["value"], stretch)
    act, judge = jax.jit(agent.act), jax.jit(agent.judge)
    for t in range(time):
        now = (x[:, t], start[:, t])
        one, memory = act(parameters["policy"], carry.policy, *now)
        said, judgement = judge(parameters["value"], carry.value, *now)
        carry = Carry(memory, judgement)
        np.testing.assert_allclose(said, value[:, t], atol=1e-5)
        np.testing.assert_allclose(
            log_prob(one, action[:, t]), log_prob(policy, action)[:, t], atol=2e-5
        )


def test_the_agent_says_how_long_rows_are_and_starts_from_nothing() -> None:
    agent, _ = agent_and_parameters()
    assert agent.stretch == 5
    carry = agent.carry((2, 3))
    for part in carry:
        assert part.shape == (2, 3, 5)
        assert not part.any()


@pytest.mark.parametrize("network", ["mlp", "linear"])
def test_feed_forward_networks_carry_nothing(network: str) -> None:
    config = preset("reacher", 10**6, network=network)
    agent = make_agent(config, make_environment(config))
    assert agent.stretch == 0
    assert agent.carry((2, 3)) == Carry((), ())
    parameters = agent.init(jax.random.key(0))
    x, start = jnp.ones((3, 8)), jnp.ones(3, bool)
    policy, carry = agent.act(parameters["policy"], (), x, start)
    same = agent.policy(parameters["policy"], x)
    jax.tree.map(np.testing.assert_array_equal, policy, same)
    value, other = agent.judge(parameters["value"], (), x, start)
    np.testing.assert_array_equal(value, agent.value(parameters["value"], x))
    assert carry == other == ()
