"""Policies and critics with a memory: a GRU layer between tanh layers and head.

Policy and critic are separate networks with a carry each. A row of a batch is a stretch
of consecutive transitions and the carries before it, as the policy that acted left
them: under other parameters they are a little stale, and gradients end where a stretch
begins. The anchor of PPO-EWMA starts from the same carries.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from fullscale.agent import Agent, Carry, Parameters, Stretch, seer
from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.layers import (
    GatedRecurrence,
    PolicyHead,
    Product,
    Torso,
    product_of,
    value_head,
)
from fullscale.precision import full

Head = Callable[[Array], Any]
Unroll = Callable[..., tuple[Any, Array]]


class Recurrent(nn.Module):
    """Tanh layers, one GRU layer of the last width, and a head."""

    widths: tuple[int, ...]
    head: Head
    product: Product = None

    @nn.compact
    def __call__(
        self,
        carry: Float[Array, "*batch width"],
        x: Float[Array, "time *batch obs"],
        start: Bool[Array, "time *batch"],
    ) -> tuple[Any, Float[Array, "*batch width"]]:
        """(What the head says at every step [time, …], carry after the last one)."""
        x = Torso(self.widths[:-1], self.product)(x)
        layer = GatedRecurrence(self.widths[-1], self.product)
        carry, x = layer(carry, x, start)
        return self.head(x), carry


def make_agent(config: RunConfig, environment: Environment) -> Agent:
    """A recurrent policy and critic, sized for the environment."""
    product = product_of(config.compute_precision)
    head = PolicyHead(environment.action, config.initial_std, config.learn_std)
    policy = Recurrent(config.hidden_sizes, head, product)
    critic = Recurrent(config.hidden_sizes, value_head, product)
    width = config.hidden_sizes[-1]
    zero = jnp.zeros((1, width))
    example = (zero, jnp.zeros((1, 1, environment.observation_size)))

    def init(key: PRNGKeyArray) -> Parameters:
        keys = jax.random.split(key)
        start = jnp.ones((1, 1), bool)
        return {
            name: net.init(own, *example, start)["params"]
            for name, net, own in zip(
                ("policy", "value"), (policy, critic), keys, strict=True
            )
        }

    def carry(shape: tuple[int, ...]) -> Carry:
        return Carry(*(jnp.zeros((*shape, width)) for _ in range(2)))

    act, judge = unrolled(policy), unrolled(critic)
    return Agent(
        init=init,
        policy=lambda params, rows: _over_rows(act, params, rows.carry.policy, rows),
        value=lambda params, rows: _over_rows(judge, params, rows.carry.value, rows),
        see=seer(config.storage_precision),
        carry=carry,
        act=one_step(act),
        judge=one_step(judge),
        stretch=config.segment,
    )


def unrolled(net: Recurrent) -> Unroll:
    """(parameters, carry, observations, starts) → (outputs [time, …], carry)."""

    def unroll(params: Any, carry: Array, x: Array, start: Array) -> tuple[Any, Array]:
        return net.apply({"params": params}, carry, full(x), start)  # type: ignore[return-value]

    return unroll


def one_step(unroll: Unroll) -> Unroll:
    """The same for a single step, without time axis."""

    def step(params: Any, carry: Array, x: Array, start: Array) -> tuple[Any, Array]:
        out, carry = unroll(params, carry, x[None], start[None])
        return jax.tree.map(lambda y: y[0], out), carry

    return step


def _over_rows(unroll: Unroll, params: Any, carry: Array, rows: Stretch) -> Any:
    """Outputs [row, time, …] of a batch of stretches."""
    x, start = (y.swapaxes(0, 1) for y in (rows.observation, rows.start))
    out, _ = unroll(params, carry, x, start)
    return jax.tree.map(lambda y: y.swapaxes(0, 1), out)
