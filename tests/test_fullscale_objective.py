"""The loss against a slow numpy twin, and what it must be in special cases."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fullscale import schedule
from fullscale.agent import Agent, Carry
from fullscale.config import ConfigError, RunConfig
from fullscale.distributions import Categorical, Gaussian, log_prob
from fullscale.loss import DEVICE, loss
from fullscale.presets import preset
from fullscale.state import Anchor, Batch, Rates

CONFIG = preset("reacher", 512, num_envs=16, rollout_length=4, minibatch_size=32)
KNOBS: dict[str, Any] = {
    "clip_epsilon": 0.15, "kl_coefficient": 0.7, "max_importance_ratio": 1.05,
    "entropy_coefficient": 0.05, "value_coefficient": 0.4, "value_clip": 0.2,
}  # fmt: skip
ROWS, INPUTS, ACTIONS = 24, 3, 2


def rates(config: RunConfig = CONFIG, **changes: float) -> Rates:
    found = jax.tree.map(lambda column: column[0], schedule.rates(config, [0]))
    return found._replace(**{name: jnp.asarray(v) for name, v in changes.items()})


def gaussian(parameters: Any, x: jax.Array) -> Gaussian:
    mean = x @ parameters["w"]
    return Gaussian(mean, jnp.broadcast_to(parameters["s"], mean.shape))


def categorical(parameters: Any, x: jax.Array) -> Categorical:
    return Categorical(x @ parameters["w"])


def bare_agent(kind: str) -> Agent:
    """A linear policy and critic whose numbers are all on the table."""

    def never(*_: object) -> Any:
        raise AssertionError

    return Agent(
        init=never,
        policy=gaussian if kind == "gaussian" else categorical,
        value=lambda parameters, x: x @ parameters,
        see=lambda x: x,
        carry=lambda shape: Carry((), ()),
        act=never,
        judge=never,
    )


def parameters(kind: str, seed: int, near: Any = None) -> Any:
    """Policy parameters, near others if given."""
    rng = np.random.default_rng(seed)
    width = ACTIONS if kind == "gaussian" else 5
    found = {"w": rng.normal(size=(INPUTS, width))}
    if kind == "gaussian":
        found["s"] = rng.normal(size=ACTIONS) * 0.3
    if near is not None:
        found = {k: np.asarray(near[k]) + 0.1 * v for k, v in found.items()}
    return {k: jnp.asarray(v, jnp.float32) for k, v in found.items()}


def make_rows(kind: str, behaviour: Any, seed: int = 5) -> Batch:
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(ROWS, INPUTS)), jnp.float32)
    action = jnp.asarray(
        rng.normal(size=(ROWS, ACTIONS))
        if kind == "gaussian"
        else rng.integers(0, 5, ROWS)
    )
    policy = bare_agent(kind).policy(behaviour, x)
    target, value, reward = jnp.asarray(rng.normal(size=(3, ROWS)), jnp.float32)
    return Batch(x, action, log_prob(policy, action), reward, target, value)


# The twin: one row after the other, from scipy's densities.


def density(kind: str, p: Any, x: np.ndarray, action: Any) -> float:
    location = x @ np.asarray(p["w"], np.float64)
    if kind == "gaussian":
        spread = np.exp(np.asarray(p["s"], np.float64))
        return float(stats.norm.logpdf(action, location, spread).sum())
    return float(location[action] - np.log(np.exp(location).sum()))


def divergence(kind: str, p: Any, q: Any, x: np.ndarray) -> float:
    """KL(p ‖ q), as in textbooks."""
    a, b = (x @ np.asarray(z["w"], np.float64) for z in (p, q))
    if kind == "gaussian":
        s, t = (np.exp(np.asarray(z["s"], np.float64)) for z in (p, q))
        terms = np.log(t / s) + (s**2 + (a - b) ** 2) / (2 * t**2) - 0.5
        return float(terms.sum())
    f, g = (np.exp(z) / np.exp(z).sum() for z in (a, b))
    return float((f * np.log(f / g)).sum())


def spread_of(kind: str, p: Any, x: np.ndarray) -> float:
    """Entropy."""
    if kind == "gaussian":
        return float(stats.norm.entropy(scale=np.exp(np.asarray(p["s"]))).sum())
    z = np.exp(x @ np.asarray(p["w"], np.float64))
    return float(stats.entropy(z))


def twin(
    config: RunConfig, kind: str, theta: Any, critic: Any, r: Any | None, batch: Batch
) -> dict[str, float]:
    """L and its parts; `r` is the anchor, None for the behaviour policy's own."""
    sums = dict.fromkeys(
        ("surrogate", "value", "entropy", "clipped", "k3", "capped"), 0.0
    )
    for i in range(ROWS):
        x, action = (
            np.asarray(batch.observation[i], np.float64),
            np.asarray(batch.action[i]),
        )
        b = float(batch.log_prob[i])
        a = float(batch.advantage[i])
        anchor = b if r is None else density(kind, r, x, action)
        now = density(kind, theta, x, action)
        ratio, raw = math.exp(now - anchor), math.exp(anchor - b)
        weight = min(raw, KNOBS["max_importance_ratio"])
        eps = KNOBS["clip_epsilon"]
        if config.surrogate == "clip":
            clipped = min(max(ratio, 1 - eps), 1 + eps)
            term = weight * min(ratio * a, clipped * a)
        else:
            assert r is not None
            penalty = KNOBS["kl_coefficient"] * divergence(kind, r, theta, x)
            term = weight * ratio * a - penalty
        v = float(x @ np.asarray(critic, np.float64))
        old, target = float(batch.value[i]), float(batch.target[i])  # type: ignore[index]
        error = (v - target) ** 2
        if config.value_clip < math.inf:
            near = old + min(max(v - old, -KNOBS["value_clip"]), KNOBS["value_clip"])
            error = max(error, (near - target) ** 2)
        sums["surrogate"] += term
        sums["value"] += 0.5 * error
        sums["entropy"] += spread_of(kind, theta, x)
        sums["clipped"] += abs(ratio - 1) > eps
        sums["k3"] += math.exp(now - b) - 1 - (now - b)
        sums["capped"] += raw > KNOBS["max_importance_ratio"]
    mean = {name: total / ROWS for name, total in sums.items()}
    mean["loss"] = (
        -mean["surrogate"]
        + KNOBS["value_coefficient"] * mean["value"]
        - KNOBS["entropy_coefficient"] * mean["entropy"]
    )
    return mean


def evaluate(function: Any, *arguments: Any) -> Any:
    """A function of one device's rows, called on the only device."""
    one = jax.tree.map(lambda x: jnp.asarray(x)[None], arguments)
    found = jax.jit(jax.vmap(function, axis_name=DEVICE))(*one)
    return jax.tree.map(lambda x: x[0], found)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
@pytest.mark.parametrize("decoupled", [1, 0])
@pytest.mark.parametrize("surrogate", ["clip", "kl"])
@pytest.mark.parametrize("clipped", [1, 0])
def test_the_loss_equals_the_twin(
    kind: str, decoupled: int, surrogate: str, clipped: int
) -> None:
    config = dataclasses.replace(
        CONFIG, surrogate=surrogate, value_clip=0.2 if clipped else math.inf
    )
    behaviour = parameters(kind, 0)
    anchor, theta = (parameters(kind, seed, near=behaviour) for seed in (1, 2))
    critic = jnp.asarray([0.3, -0.2, 0.5])
    batch = make_rows(kind, behaviour)
    weight = Anchor(jnp.zeros(1), jnp.float32(3.0), jnp.float32(1.0))
    proximal: Any = (anchor, weight) if decoupled else (behaviour, None)
    if surrogate == "clip" and not decoupled:
        proximal = None
    given_rows = batch if clipped else batch._replace(value=None)

    def of(theta: Any, critic: Any, rows: Batch) -> Any:
        both = {"policy": theta, "value": critic}
        return loss(config, bare_agent(kind), both, proximal, rows, rates(**KNOBS))

    total, info = evaluate(of, theta, critic, given_rows)
    r = anchor if decoupled else (behaviour if surrogate == "kl" else None)
    expected = twin(config, kind, theta, critic, r, batch)
    if not decoupled:
        assert expected["capped"] == 0.0
    found = {
        "loss": total,
        "surrogate": -info.policy_loss,
        "value": info.value_loss,
        "entropy": info.entropy,
        "clipped": info.clip_fraction,
        "k3": info.approx_kl,
        "capped": info.importance_cap_fraction,
    }
    for name, value in found.items():
        np.testing.assert_allclose(
            value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_the_twin_clips_and_caps_somewhere() -> None:
    """Else the comparison above would show little."""
    behaviour = parameters("gaussian", 0)
    r, theta = (parameters("gaussian", seed, near=behaviour) for seed in (1, 2))
    batch = make_rows("gaussian", behaviour)
    found = twin(CONFIG, "gaussian", theta, jnp.zeros(3), r, batch)
    assert 0 < found["clipped"] < 1
    assert 0 < found["capped"] < 1


@pytest.mark.parametrize("decoupled", [1, 0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_at_the_behaviour_policy_the_gradient_is_the_policy_gradient(
    decoupled: int, epsilon: float
) -> None:
    """Whole also at ε = 0, and with an anchor that is the policy (W = 1)."""
    theta = parameters("gaussian", 0)
    batch, agent = make_rows("gaussian", theta), bare_agent("gaussian")
    average = Anchor(jnp.zeros(1), jnp.float32(1.0), jnp.float32(0.0))
    proximal = (theta, average) if decoupled else None
    now = rates(clip_epsilon=epsilon, entropy_coefficient=0.0)

    def of(theta: Any, rows: Batch) -> Any:
        both = {"policy": theta, "value": jnp.zeros(3)}
        return loss(CONFIG, agent, both, proximal, rows, now)[0]

    def ascend(theta: Any) -> Any:
        density = log_prob(agent.policy(theta, batch.observation), batch.action)
        return -(batch.advantage * density).mean()

    rows = batch._replace(value=None)
    found = evaluate(jax.grad(of), theta, rows)
    expected = jax.jit(jax.grad(ascend))(theta)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
        assert np.abs(value).max() > 1e-3


def test_the_penalty_of_a_fixed_spread_is_half_the_squared_distance() -> None:
    """S without advantages: −c |Δmean|²/2s², and its gradient pulls back."""
    config = dataclasses.replace(CONFIG, surrogate="kl")
    anchor = parameters("gaussian", 0)
    theta = {**anchor, "w": anchor["w"] + 0.1}
    batch = make_rows("gaussian", anchor)
    batch = batch._replace(advantage=jnp.zeros(ROWS), value=None)
    now = rates(kl_coefficient=2.0, entropy_coefficient=0.0, value_coefficient=0.0)

    def of(theta: Any, rows: Batch) -> Any:
        both = {"policy": theta, "value": jnp.zeros(3)}
        return loss(config, bare_agent("gaussian"), both, (anchor, None), rows, now)[0]

    x, spread = np.asarray(batch.observation), np.exp(np.asarray(anchor["s"]))
    apart = x @ np.full((INPUTS, ACTIONS), 0.1)
    total, slope = evaluate(jax.value_and_grad(of), theta, batch)
    expected = 2.0 * (apart**2 / (2 * spread**2)).sum(-1).mean()
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    pull = 2.0 * x.T @ (apart / spread**2) / ROWS
    np.testing.assert_allclose(slope["w"], pull, rtol=1e-4, atol=1e-5)


def test_a_spread_that_the_penalty_needs_is_required() -> None:
    config = dataclasses.replace(CONFIG, surrogate="kl")
    batch = make_rows("gaussian", parameters("gaussian", 0))
    both = {"policy": parameters("gaussian", 1), "value": jnp.zeros(3)}
    with pytest.raises(AssertionError, match="needs the anchor's distribution"):
        evaluate(
            lambda b: loss(config, bare_agent("gaussian"), both, None, b, rates())[0],
            batch,
        )
    with pytest.raises(ConfigError, match="surrogate = 'trust' should be one of"):
        dataclasses.replace(CONFIG, surrogate="trust")
