"""Learning: E epochs of minibatch gradient steps, then the outer step.

The inner loop maps θ_k to θ'; the outer step acts on the policy parameters and, in
PPO-EWMA, likewise on the anchor. Critic and optimiser state keep their inner values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key

from fullscale import advantage
from fullscale.config import RunConfig
from fullscale.loss import DEVICE, global_mean, loss
from fullscale.network import Agent
from fullscale.shuffle import minibatch_rows
from fullscale.state import Anchor, Batch, Learner, LossInfo, Rates

Objective = Callable[[Array, Anchor | None, Batch], tuple[Array, LossInfo]]


def make_optimiser(config: RunConfig) -> optax.GradientTransformation:
    """Gradient clipping by global norm and the optimiser, without learning rate."""
    if config.optimiser == "sgd":
        rule = optax.trace(config.momentum) if config.momentum else optax.identity()
    else:
        rule = optax.scale_by_adam(
            b1=config.adam_beta1, b2=config.adam_beta2, eps=config.adam_epsilon
        )
    if config.max_grad_norm == float("inf"):
        return rule
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), rule)


def start_learner(config: RunConfig, parameters: Any) -> Learner:
    """A learner before its first gradient step, its anchor the policy itself."""
    vector, _ = ravel_pytree(parameters)
    policy, _ = ravel_pytree(parameters["policy"])
    one, zero = jnp.ones((), policy.dtype), jnp.zeros((), policy.dtype)
    anchor = None if config.is_plain_ppo else Anchor(policy, one, zero)
    moving = {"policy": parameters["policy"], "anchor": anchor and anchor.vector}
    velocity = jax.tree.map(jnp.zeros_like, moving) if config.outer_momentum else None
    return Learner(parameters, make_optimiser(config).init(vector), anchor, velocity)


class Inner(NamedTuple):
    """What the inner loop carries.

    All parameters are one vector, the policy's first: one reduction over devices and
    one fused optimiser update a step.

    Attributes:
        vector: all parameters.
        optimiser: its state.
        anchor: average of past policies, or None.
        stopped: whether the KL limit was passed in this update.
    """

    vector: Float[Array, " parameter"]
    optimiser: Any
    anchor: Anchor | None
    stopped: Bool[Array, ""]


class Report(NamedTuple):
    """What gradient steps report: this device's loss parts, and global numbers.

    Attributes:
        info: the parts of the loss.
        grad_norm: norm of the whole gradient before clipping.
        anchor_age: mean age of the anchor when the step used it, in gradient steps.
        skipped: 1 where the step was not taken (KL limit, or a masked gradient).
        nonfinite: 1 where the gradient was not finite.
    """

    info: LossInfo
    grad_norm: Float[Array, "..."]
    anchor_age: Float[Array, "..."]
    skipped: Float[Array, "..."]
    nonfinite: Float[Array, "..."]


def average(
    anchor: Anchor, policy: Float[Array, " policy_parameter"], decay: Float[Array, ""]
) -> Anchor:
    """The anchor after one more gradient step: W ← 1 + βW, r ← r + (θ − r)/W.

    The weights of all policies so far, β^age, always sum to one after division by W
    (bias correction; θ₀ counts, with W₀ = 1). β = 0 makes the anchor the policy;
    W = inf leaves it where it is.
    """
    weight = 1.0 + decay * anchor.weight
    share = 1.0 / weight
    vector = anchor.vector + share * (policy - anchor.vector)
    vector = jnp.where(share == 1.0, policy, vector)
    return Anchor(vector, weight, (1.0 - share) * (anchor.age + 1.0))


def gradient_step(
    config: RunConfig,
    optimiser: optax.GradientTransformation,
    objective: Objective,
    inner: Inner,
    minibatch: Batch,
    rates: Rates,
) -> tuple[Inner, Report]:
    """One optimiser step on this device's share of a minibatch.

    Args:
        config: whether steps can be skipped.
        optimiser: turns the gradient into a direction.
        objective: (vector, anchor, minibatch) → (global loss, this device's parts).
        inner: parameters, optimiser state and anchor.
        minibatch: this device's rows.
        rates: traced knobs.

    Returns:
        What is carried on, and the report.
    """
    differentiate = jax.grad(objective, has_aux=True)
    gradient, info = differentiate(inner.vector, inner.anchor, minibatch)
    norm = jnp.linalg.norm(gradient)
    finite = jnp.isfinite(norm)
    direction, state = optimiser.update(gradient, inner.optimiser)
    vector = inner.vector - rates.learning_rate * direction
    anchor = inner.anchor
    if anchor is not None:
        anchor = average(anchor, vector[: anchor.vector.size], rates.ewma_decay)
    stopped = _stopped(config, inner, info, rates)
    after = Inner(vector, state, anchor, stopped)
    skip = stopped
    if config.nonfinite == "mask":
        skip = skip | ~finite
    if config.nonfinite == "mask" or config.target_kl < float("inf"):
        kept = inner._replace(stopped=stopped)
        after = jax.tree.map(lambda old, new: jnp.where(skip, old, new), kept, after)
    age = jnp.zeros_like(norm) if inner.anchor is None else inner.anchor.age
    return after, Report(
        info, norm, age, skip.astype(norm.dtype), (~finite).astype(norm.dtype)
    )


def _stopped(
    config: RunConfig, inner: Inner, info: LossInfo, rates: Rates
) -> Bool[Array, ""]:
    if config.target_kl == float("inf"):
        return inner.stopped
    estimate = jax.lax.pmean(info.approx_kl, DEVICE)
    return inner.stopped | (estimate > rates.target_kl)


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
        The learner at θ' (before the outer step), and the report: means over gradient
        steps and devices; sums of `skipped` and `nonfinite`.
    """
    vector, unravel = ravel_pytree(learner.parameters)
    optimiser = make_optimiser(config)
    objective = _objective(config, agent, learner, rates)
    batch = batch._replace(advantage=advantage.of_batch(config, batch.advantage))

    def step(inner: Inner, minibatch: Batch) -> tuple[Inner, Report]:
        return gradient_step(config, optimiser, objective, inner, minibatch, rates)

    def epoch(inner: Inner, index: Array) -> tuple[Inner, Report]:
        order = jax.random.fold_in(key, index)
        return jax.lax.scan(step, inner, _minibatches(config, batch, order, blocks))

    inner = Inner(vector, learner.optimiser, learner.anchor, _never(vector))
    inner, report = jax.lax.scan(epoch, inner, jnp.arange(config.update_epochs))
    learner = learner._replace(
        parameters=unravel(inner.vector),
        optimiser=inner.optimiser,
        anchor=inner.anchor,
    )
    return learner, _summary(config, report)


def _never(vector: Array) -> Bool[Array, ""]:
    """False, on the mesh axes on which the vector lies."""
    axes = tuple(jax.typeof(vector).vma)
    false = jnp.zeros((), bool)
    return jax.lax.pcast(false, axes, to="varying") if axes else false


def _objective(
    config: RunConfig, agent: Agent, learner: Learner, rates: Rates
) -> Objective:
    """The loss as a function of the vector and of what moves with it."""
    _, unravel = ravel_pytree(learner.parameters)
    _, unravel_policy = ravel_pytree(learner.parameters["policy"])
    behaviour = learner.parameters["policy"]

    def objective(
        vector: Array, anchor: Anchor | None, minibatch: Batch
    ) -> tuple[Array, LossInfo]:
        proximal: tuple[Any, Anchor | None] | None = None
        if anchor is not None:
            proximal = (unravel_policy(anchor.vector), anchor)
        elif config.surrogate == "kl":
            proximal = (behaviour, None)
        return loss(config, agent, unravel(vector), proximal, minibatch, rates)

    return objective


def _summary(config: RunConfig, report: Report) -> Report:
    age = report.anchor_age.mean()
    if config.is_plain_ppo:  # the behaviour policy: as old as the steps since
        age = jnp.full_like(age, 0.5 * (config.gradient_steps_per_update - 1))
    return Report(
        LossInfo(*(global_mean(part) for part in report.info)),
        report.grad_norm.mean(),
        age,
        report.skipped.sum(),
        report.nonfinite.sum(),
    )


def _minibatches(
    config: RunConfig, batch: Batch, key: Key[Array, ""], blocks: Int[Array, " block"]
) -> Batch:
    """This device's rows of an epoch's minibatches, leading axes [minibatch, row]."""
    rows_per_block = batch.log_prob.shape[0] // blocks.shape[0]
    rows = minibatch_rows(key, blocks, rows_per_block, config.num_minibatches)
    shuffled = jax.tree.map(lambda x: x[rows], batch)
    standardised = advantage.of_minibatches(config, shuffled.advantage, blocks.shape[0])
    return shuffled._replace(advantage=standardised)


def outer_step(
    config: RunConfig, before: Learner, after: Learner, rates: Rates
) -> Learner:
    """θ ← θ_k + σ v on policy and anchor, v ← μ v + (θ' − θ_k).

    Exactly θ' at σ = 1 without momentum. Critic, optimiser, and the anchor's weight
    and age stay as the inner loop left them.

    Args:
        config: whether there is momentum.
        before: the learner at θ_k, with the velocity of the update before.
        after: the learner after the inner loop.
        rates: σ and μ.
    """
    old, new = _moving(before), _moving(after)
    velocity, sigma = before.velocity, rates.outer_learning_rate
    if config.outer_momentum:
        velocity = jax.tree.map(
            lambda v, a, b: rates.outer_momentum * v + (b - a), velocity, old, new
        )
        moved = jax.tree.map(lambda a, v: a + sigma * v, old, velocity)
    else:
        moved = jax.tree.map(
            lambda a, b: jnp.where(sigma == 1.0, b, a + sigma * (b - a)), old, new
        )
    anchor = after.anchor
    if anchor is not None:
        anchor = anchor._replace(vector=moved["anchor"])
    parameters = {**after.parameters, "policy": moved["policy"]}
    return after._replace(parameters=parameters, anchor=anchor, velocity=velocity)


def _moving(learner: Learner) -> dict[str, Any]:
    """What the outer step moves."""
    anchor = learner.anchor
    return {
        "policy": learner.parameters["policy"],
        "anchor": None if anchor is None else anchor.vector,
    }
