"""Learning: E epochs of minibatch gradient steps, then the outer step.

The inner loop maps θ_k to θ'; the outer step θ ← θ_k + σ(θ' − θ_k) acts on the policy
parameters. Critic and optimiser state keep their inner-loop values.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from fullscale.config import RunConfig
from fullscale.loss import loss, standardise
from fullscale.network import Agent
from fullscale.shuffle import minibatch_rows
from fullscale.state import Batch, Learner, LossInfo, Rates


def make_optimiser(config: RunConfig) -> optax.GradientTransformation:
    """Gradient clipping by global norm and Adam, without the learning rate."""
    adam = optax.scale_by_adam(
        b1=config.adam_beta1, b2=config.adam_beta2, eps=config.adam_epsilon
    )
    if config.max_grad_norm == float("inf"):
        return adam
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam)


def gradient_step(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    minibatch: Batch,
    rates: Rates,
) -> tuple[Learner, tuple[LossInfo, Float[Array, ""]]]:
    """One optimiser step on this device's share of a minibatch.

    Returns:
        The learner and (loss parts, gradient norm before clipping).
    """
    if config.normalise_advantages:
        minibatch = minibatch._replace(advantage=standardise(minibatch.advantage))
    gradient, info = jax.grad(loss, has_aux=True)(
        learner.parameters, agent, minibatch, rates
    )
    direction, optimiser = make_optimiser(config).update(gradient, learner.optimiser)
    parameters = jax.tree.map(
        lambda p, d: p - rates.learning_rate * d, learner.parameters, direction
    )
    return Learner(parameters, optimiser), (info, optax.tree.norm(gradient))


def inner_loop(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    batch: Batch,
    rates: Rates,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
) -> tuple[Learner, tuple[LossInfo, Float[Array, ""]]]:
    """All epochs over the batch.

    Args:
        config: sizes.
        agent: networks.
        learner: at θ_k.
        batch: this device's transitions, block after block, leading axis [row].
        rates: traced knobs.
        key: consumed; folded with the epoch.
        blocks: global indices of this device's blocks.

    Returns:
        The learner at θ' and the means of what the gradient steps reported.
    """
    rows_per_block = batch.log_prob.shape[0] // blocks.shape[0]

    def step(learner: Learner, minibatch: Batch) -> tuple[Learner, Any]:
        return gradient_step(config, agent, learner, minibatch, rates)

    def epoch(learner: Learner, index: Array) -> tuple[Learner, Any]:
        rows = minibatch_rows(
            jax.random.fold_in(key, index),
            blocks,
            rows_per_block,
            config.num_minibatches,
        )
        return jax.lax.scan(step, learner, jax.tree.map(lambda x: x[rows], batch))

    learner, reports = jax.lax.scan(epoch, learner, jnp.arange(config.update_epochs))
    return learner, jax.tree.map(jnp.mean, reports)


def outer_step(before: Any, after: Any, sigma: Float[Array, ""]) -> Any:
    """θ_k + σ(θ' − θ_k) on every leaf; exactly θ' at σ = 1."""
    return jax.tree.map(
        lambda old, new: jnp.where(sigma == 1.0, new, old + sigma * (new - old)),
        before,
        after,
    )
