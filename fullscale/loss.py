"""The loss of one minibatch, spread over devices.

L = −mean w·S + c_v · value loss − c_e · mean H, with θ the policy, b the behaviour
policy and r the anchor (the proximal policy: b in PPO, an average of past policies in
PPO-EWMA; Hilton, Cobbe & Schulman 2022):

    w = min(π_r(a|o)/π_b(a|o), cap)       ρ = π_θ(a|o)/π_r(a|o)
    S = min(ρ A, clip(ρ, 1−ε, 1+ε) A)     "clip"
    S = ρ A − (c/w) KL(π_r ‖ π_θ)         "kl"

Means are over the *global* minibatch: each device holds an equal share of its rows, so
the mean over devices (`pmean`, inside the differentiated function, where `shard_map`
counts it once) is the mean over rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fullscale import distributions
from fullscale.config import RunConfig
from fullscale.distributions import Distribution
from fullscale.network import Agent
from fullscale.state import Anchor, Batch, LossInfo, Rates

DEVICE = "device"  # mesh axis over which environments are spread
_ROUNDING = 100.0  # ratios within so many float steps of 1 are 1


def global_mean(x: Array) -> Array:
    """Mean over all rows of all devices (equal shares)."""
    return jax.lax.pmean(x.mean(), DEVICE)


def surrogate(
    log_ratio: Float[Array, "*batch"],
    advantage: Float[Array, "*batch"],
    clip_epsilon: Float[Array, ""],
) -> Float[Array, "*batch"]:
    """min(ρ A, clip(ρ, 1−ε, 1+ε) A), with the whole gradient A ∂ρ at the tie ρ = 1.

    Written with a `where` on purpose: `minimum` would split the gradient at a tie. A
    ratio within rounding of 1 counts as 1: log-densities that are computed twice at
    other shapes differ by some float steps, and at ε = 0 these would decide.
    """
    least = _ROUNDING * float(jnp.finfo(log_ratio.dtype).eps)
    bound = jnp.maximum(clip_epsilon, least)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - bound, 1.0 + bound) * advantage
    return jnp.where(ratio * advantage <= clipped, ratio * advantage, clipped)


class Ratios(NamedTuple):
    """Log-ratios of one minibatch.

    Attributes:
        to_anchor: log π_θ/π_r.
        to_behaviour: log π_θ/π_b.
        importance: min(π_r/π_b, cap); None if the anchor is the behaviour policy.
        capped: share of importance ratios at the cap.
    """

    to_anchor: Float[Array, "*batch"]
    to_behaviour: Float[Array, "*batch"]
    importance: Float[Array, "*batch"] | None
    capped: Float[Array, ""]


def ratios(
    policy: Distribution,
    proximal: Distribution | None,
    weight: Float[Array, ""] | None,
    batch: Batch,
    rates: Rates,
) -> Ratios:
    """How the policy stands to the anchor and to the behaviour policy.

    Args:
        policy: π_θ on the batch.
        proximal: π_r; None if it is the behaviour policy.
        weight: of the anchor's average; 1 says that the anchor *is* the policy, so
            that ρ is 1 exactly. None for the behaviour policy.
        batch: actions and their log-densities under the behaviour policy.
        rates: the cap.
    """
    log_prob = distributions.log_prob(policy, batch.action)
    to_behaviour = log_prob - batch.log_prob
    if proximal is None or weight is None:
        return Ratios(to_behaviour, to_behaviour, None, jnp.zeros(()))
    anchor = distributions.log_prob(proximal, batch.action)
    anchor = jnp.where(weight == 1.0, jax.lax.stop_gradient(log_prob), anchor)
    raw = jnp.exp(anchor - batch.log_prob)
    capped = (raw > rates.max_importance_ratio).mean(dtype=raw.dtype)
    importance = jnp.minimum(raw, rates.max_importance_ratio)
    return Ratios(log_prob - anchor, to_behaviour, importance, capped)


def objective(
    config: RunConfig,
    policy: Distribution,
    proximal: Distribution | None,
    found: Ratios,
    batch: Batch,
    rates: Rates,
) -> Float[Array, "*batch"]:
    """w·S of every transition, to be maximised."""
    if config.surrogate == "clip":
        terms = surrogate(found.to_anchor, batch.advantage, rates.clip_epsilon)
        return terms if found.importance is None else found.importance * terms
    terms = jnp.exp(found.to_anchor) * batch.advantage
    terms = terms if found.importance is None else found.importance * terms
    assert proximal is not None, "a KL penalty needs the anchor's distribution"
    return terms - rates.kl_coefficient * distributions.kl(proximal, policy)


def value_error(
    value: Float[Array, "*batch"], batch: Batch, rates: Rates
) -> Float[Array, "*batch"]:
    """(V − target)², or the larger of it and that of V kept near its rollout value."""
    error = jnp.square(value - batch.target)
    if batch.value is None:
        return error
    move = jnp.clip(value - batch.value, -rates.value_clip, rates.value_clip)
    return jnp.maximum(error, jnp.square(batch.value + move - batch.target))


def loss(
    config: RunConfig,
    agent: Agent,
    parameters: Any,
    proximal: tuple[Any, Anchor | None] | None,
    batch: Batch,
    rates: Rates,
) -> tuple[Float[Array, ""], LossInfo]:
    """The loss to descend and what it is made of; `batch` is this device's share.

    `batch.advantage` is used as it is: standardise it beforehand if wanted.

    Args:
        config: which surrogate.
        agent: networks.
        parameters: {"policy", "value"}, differentiated.
        proximal: policy parameters of the anchor, and the average that it is (None for
            the behaviour policy's own parameters). None altogether: the stored
            log-densities stand for the anchor, which spares its forward pass.
        batch: this device's rows.
        rates: traced knobs.

    Returns:
        The global loss, and this device's parts of it (their means over devices are
        the global ones; they are reduced once per update, not once per step).
    """
    policy = agent.policy(parameters["policy"], batch.observation)
    anchor = None if proximal is None else agent.policy(proximal[0], batch.observation)
    average = None if proximal is None else proximal[1]
    weight = None if average is None else average.weight
    found = ratios(policy, anchor, weight, batch, rates)
    terms = objective(config, policy, anchor, found, batch, rates)
    value = agent.value(parameters["value"], batch.observation)
    outside = jnp.abs(jnp.expm1(found.to_anchor)) > rates.clip_epsilon
    k3 = jnp.expm1(found.to_behaviour) - found.to_behaviour
    info = LossInfo(
        policy_loss=-terms.mean(),
        value_loss=0.5 * value_error(value, batch, rates).mean(),
        entropy=distributions.entropy(policy).mean(),
        clip_fraction=outside.mean(dtype=value.dtype),
        approx_kl=k3.mean(),
        importance_cap_fraction=found.capped,
    )
    local = (
        info.policy_loss
        + rates.value_coefficient * info.value_loss
        - rates.entropy_coefficient * info.entropy
    )
    return jax.lax.pmean(local, DEVICE), info
