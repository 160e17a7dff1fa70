"""Learning: E epochs of minibatch gradient steps, then the outer step.

The inner loop maps θ_k to θ'; the outer step θ ← θ_k + σ(θ' − θ_k) acts on the policy
parameters. Critic and optimiser state keep their inner-loop values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from fullscale.config import RunConfig
from fullscale.loss import global_mean, loss, standardise
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


class Flat(NamedTuple):
    """What the inner loop carries: all parameters as one vector, and Adam's moments.

    One vector means one reduction over devices and one fused optimiser update a step.
    """

    vector: Float[Array, " parameter"]
    optimiser: Any


class Report(NamedTuple):
    """What gradient steps report: this device's loss parts, the global norm."""

    info: LossInfo
    grad_norm: Float[Array, "..."]


def gradient_step(
    optimiser: optax.GradientTransformation,
    objective: Callable[[Array, Batch], tuple[Array, LossInfo]],
    flat: Flat,
    minibatch: Batch,
    learning_rate: Float[Array, ""],
) -> tuple[Flat, Report]:
    """One optimiser step on this device's share of a minibatch.

    Args:
        optimiser: turns the gradient into a direction.
        objective: (vector, minibatch) → (global loss, this device's parts).
        flat: parameters and optimiser state.
        minibatch: this device's rows.
        learning_rate: step along the direction.

    Returns:
        What is carried on, and the report (gradient norm before clipping).
    """
    gradient, info = jax.grad(objective, has_aux=True)(flat.vector, minibatch)
    direction, state = optimiser.update(gradient, flat.optimiser)
    vector = flat.vector - learning_rate * direction
    return Flat(vector, state), Report(info, jnp.linalg.norm(gradient))


def inner_loop(
    config: RunConfig,
    agent: Agent,
    learner: Learner,
    batch: Batch,
    rates: Rates,
    key: Key[Array, ""],
    blocks: Int[Array, " block"],
) -> tuple[Learner, Report]:
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
    vector, unravel = ravel_pytree(learner.parameters)
    optimiser = make_optimiser(config)

    def objective(vector: Array, minibatch: Batch) -> tuple[Array, LossInfo]:
        return loss(unravel(vector), agent, minibatch, rates)

    def step(flat: Flat, minibatch: Batch) -> tuple[Flat, Report]:
        return gradient_step(optimiser, objective, flat, minibatch, rates.learning_rate)

    def epoch(flat: Flat, index: Array) -> tuple[Flat, Report]:
        order = jax.random.fold_in(key, index)
        return jax.lax.scan(step, flat, _minibatches(config, batch, order, blocks))

    epochs = jnp.arange(config.update_epochs)
    flat, report = jax.lax.scan(epoch, Flat(vector, learner.optimiser), epochs)
    learner = Learner(unravel(flat.vector), flat.optimiser)
    means = Report(
        LossInfo(*(global_mean(part) for part in report.info)), report.grad_norm.mean()
    )
    return learner, means


def _minibatches(
    config: RunConfig, batch: Batch, key: Key[Array, ""], blocks: Int[Array, " block"]
) -> Batch:
    """This device's rows of an epoch's minibatches, leading axes [minibatch, row].

    The advantages' moments are of each whole minibatch, over all devices.
    """
    rows_per_block = batch.log_prob.shape[0] // blocks.shape[0]
    rows = minibatch_rows(key, blocks, rows_per_block, config.num_minibatches)
    shuffled = jax.tree.map(lambda x: x[rows], batch)
    if not config.normalise_advantages:
        return shuffled
    return shuffled._replace(advantage=standardise(shuffled.advantage))


def outer_step(before: Any, after: Any, sigma: Float[Array, ""]) -> Any:
    """θ_k + σ(θ' − θ_k) on every leaf; exactly θ' at σ = 1."""
    return jax.tree.map(
        lambda old, new: jnp.where(sigma == 1.0, new, old + sigma * (new - old)),
        before,
        after,
    )
