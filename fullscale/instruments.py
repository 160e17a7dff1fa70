"""The meters: signal and noise of an outer step, and how far a run has come.

They run on some updates only (`meter_interval`); between those their numbers are NaN,
which the log writes as null.

- *Split-half.* The inner loop runs from the same θ_k on two disjoint halves of the
  environments, with minibatches of half the size, so as many gradient steps; the outer
  step is applied to both. With KL(p‖q) ≈ ½|p − q|²_F and an inner loop linear in the
  gradient, each half's noise has twice the variance of the whole batch's, so that
  noise = ¼ KL(1‖2), signal = ½ [KL(k‖1) + KL(k‖2) − KL(1‖2)]. Clipping, standardised
  advantages and Adam make it read low: noise by 3–10 % on `bandit`, 14–16 % on `lqr`,
  25 % on `reacher` with their presets, 27 % at worst (docs/meters.md). Where noise is
  most of it, noise + signal is short of `outer_kl` by as much: so a run can tell.
- *Noise scale* B_simple = tr Σ/|∇J|² at θ_k (McCandlish et al. 2018), from the policy
  gradients of the logical blocks: environments, not transitions, are the independent
  units. Numerator and denominator are unbiased and logged, for ratios of means.
- *Distance travelled.* KL(policy after update 10^j ‖ policy now), one per decade.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from fullscale import advantage, distributions
from fullscale.config import RunConfig
from fullscale.loss import DEVICE, global_mean
from fullscale.measure import thin
from fullscale.network import Agent
from fullscale.state import Batch, Learner, Rates
from fullscale.update import inner_loop, outer_step

DECADES = 10  # updates fit into 31 bits
Metrics = dict[str, Array]


class Reading(NamedTuple):
    """What is measured at θ_k.

    Attributes:
        outer_noise_kl: noise part of the outer step, nats.
        outer_signal_kl: signal part, nats; an unbiased difference, so it can be < 0.
        noise_scale: B_simple, transitions.
        noise_trace: tr Σ of one transition's share of the gradient.
        gradient_square: |∇J|², unbiased, so it can be < 0.
    """

    outer_noise_kl: Float[Array, ""]
    outer_signal_kl: Float[Array, ""]
    noise_scale: Float[Array, ""]
    noise_trace: Float[Array, ""]
    gradient_square: Float[Array, ""]


def read(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    batch: Batch,
    rates: Rates,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
) -> Reading:
    """All meters that need the batch, at θ_k. Consumes `key`."""
    noise, signal = split_half(config, agent, learner, batch, rates, key, blocks)
    trace, square = noise_scale(config, agent, learner, batch, rates, blocks)
    return Reading(noise, signal, trace / square, trace, square)


def split_half(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    batch: Batch,
    rates: Rates,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(noise, signal) of the outer step in nats; NaN if blocks cannot be halved.

    Args:
        config: sizes of the whole batch.
        agent: networks.
        learner: at θ_k.
        batch: this device's rows, with its environments fastest within a block.
        rates: traced knobs.
        key: consumed; the halves shuffle independently.
        blocks: global indices of this device's blocks.
    """
    if not config.can_be_halved:
        nothing = jnp.full((), jnp.nan)
        return nothing, nothing
    half = dataclasses.replace(
        config,
        num_envs=config.num_envs // 2,
        minibatch_size=config.minibatch_size // 2,
    )

    def policy_after(rows: Batch, own: Array) -> Any:
        after, _ = inner_loop(half, agent, learner, rows, rates, own, blocks)
        return outer_step(half, learner, after, rates).parameters["policy"]

    halves = split(config, batch, blocks.shape[0])
    moved = jax.vmap(policy_after)(halves, jax.random.split(key))
    first, second = (jax.tree.map(lambda x, i=i: x[i], moved) for i in range(2))
    observation = thin(batch.observation, config.samples_per_update)
    start, one, two = (
        agent.policy(parameters, observation)
        for parameters in (learner.parameters["policy"], first, second)
    )
    apart, *out = (
        global_mean(distributions.kl(p, q))
        for p, q in ((one, two), (start, one), (start, two))
    )
    return 0.25 * apart, 0.5 * (out[0] + out[1] - apart)


def split(config: RunConfig, batch: Batch, blocks: int) -> Batch:
    """Even and odd environments of every block, leading axes [half, row]."""
    envs = config.num_envs // config.num_blocks

    def cut(x: Array) -> Array:
        x = x.reshape(blocks, -1, envs // 2, 2, *x.shape[1:])
        return jnp.moveaxis(x, 3, 0).reshape(2, -1, *x.shape[4:])

    return jax.tree.map(cut, batch)


def noise_scale(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    batch: Batch,
    rates: Rates,
    blocks: Int[Array, " block"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(tr Σ, |∇J|²) of the policy gradient at θ_k; NaN with one block.

    tr Σ = (E|g_b|² − |g|²)/(1/n_b − 1/n) and |∇J|² = (n|g|² − n_b E|g_b|²)/(n − n_b),
    with g_b the gradient of one block's n_b transitions and g that of all n.
    """
    small, big = config.samples_per_update // config.num_blocks, config.num_blocks
    own = blocks.shape[0]
    scaled = batch.advantage
    if config.normalise_advantages:
        scaled = advantage.standardise(scaled[None])[0]
    rows = jax.tree.map(
        lambda x: x.reshape(own, -1, *x.shape[1:]), batch._replace(advantage=scaled)
    )
    vector, unravel = ravel_pytree(learner.parameters["policy"])
    vector = jax.lax.pcast(vector, DEVICE, to="varying")  # gradients stay this block's
    gradient = partial(_policy_gradient, agent, unravel, vector, rates)

    def add(sums: tuple[Array, Array], block: Batch) -> tuple[tuple, None]:
        g = gradient(block)
        return (sums[0] + g, sums[1] + jnp.square(g).sum()), None

    zero = jnp.zeros_like(vector), jnp.zeros_like(vector[0])
    zero = jax.tree.map(lambda z: z + 0.0 * vector[0], zero)
    (total, squares), _ = jax.lax.scan(add, zero, rows)
    whole = jnp.square(jax.lax.psum(total, DEVICE) / big).sum()
    each = jax.lax.psum(squares, DEVICE) / big
    return two_batch(each, whole, small, small * big)


def _policy_gradient(
    agent: Agent, unravel: Any, vector: Array, rates: Rates, rows: Batch
) -> Float[Array, " policy_parameter"]:
    def ascend(vector: Array) -> Array:
        policy = agent.policy(unravel(vector), rows.observation)
        log_prob = distributions.log_prob(policy, rows.action)
        entropy = distributions.entropy(policy).mean()
        return (rows.advantage * log_prob).mean() + rates.entropy_coefficient * entropy

    return jax.grad(ascend)(vector)


def two_batch(
    small_square: Float[Array, ""],
    big_square: Float[Array, ""],
    small: int,
    big: int,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(tr Σ, |G|²), both unbiased, from mean square norms at two batch sizes."""
    if small == big:
        nothing = jnp.full_like(big_square, jnp.nan)
        return nothing, nothing
    trace = (small_square - big_square) / (1.0 / small - 1.0 / big)
    ratio = big / small
    return trace, (ratio * big_square - small_square) / (ratio - 1.0)


def freeze(
    frozen: Float[Array, "decade policy_parameter"], policy: Any, update: Int[Array, ""]
) -> Float[Array, "decade policy_parameter"]:
    """Keep the policy if it is that after update 1, 10, 100, …."""
    vector, _ = ravel_pytree(policy)
    now = update == 10 ** jnp.arange(DECADES, dtype=update.dtype)
    return jnp.where(now[:, None], vector[None], frozen)


def travelled(
    config: RunConfig,
    agent: Agent,
    frozen: Float[Array, "decade policy_parameter"],
    policy: Any,
    batch: Batch,
    update: Int[Array, ""],
) -> Float[Array, " decade"]:
    """KL(frozen policy ‖ policy) in nats for each decade; NaN for those to come."""
    _, unravel = ravel_pytree(policy)
    observation = thin(batch.observation, config.samples_per_update)
    current = agent.policy(policy, observation)
    filled = (10 ** jnp.arange(DECADES, dtype=update.dtype) <= update).sum()

    def measure(decade: Array, found: Array) -> Array:
        then = agent.policy(unravel(frozen[decade]), observation)
        return found.at[decade].set(global_mean(distributions.kl(then, current)))

    nothing = jnp.full_like(frozen[:, 0], jnp.nan) + 0.0 * frozen[:, 0]
    return jax.lax.fori_loop(0, filled, measure, nothing)
