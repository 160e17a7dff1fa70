"""Policies and critics, and how they turn a batch of observations into numbers.

Policy and critic are separate networks; `Agent` bundles their `apply` functions so
that the rest of the trainer never sees flax.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fullscale.config import RunConfig
from fullscale.distributions import Categorical, Distribution, Gaussian
from fullscale.environments.protocol import Box, Environment

Parameters = dict  # {"policy": ..., "value": ...}: PyTrees of arrays


class Torso(nn.Module):
    """Fully connected tanh layers, orthogonal initialisation with gain √2."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Float[Array, "*batch width"]:
        """Features of a batch of observations."""
        for width in self.widths:
            init = nn.initializers.orthogonal(math.sqrt(2.0))
            x = nn.tanh(nn.Dense(width, kernel_init=init, param_dtype=x.dtype)(x))
        return x


class GaussianHead(nn.Module):
    """State-independent standard deviation, trained or fixed, around given means."""

    initial_std: float
    learn_std: bool

    @nn.compact
    def __call__(self, mean: Float[Array, "*batch action"]) -> Gaussian:
        """Attach the standard deviation to the means."""
        start = math.log(self.initial_std)
        shape = mean.shape[-1:]
        if self.learn_std:
            init = nn.initializers.constant(start, mean.dtype)
            log_std = self.param("log_std", init, shape)
        else:
            log_std = jnp.full(shape, start, mean.dtype)
        log_std = jnp.broadcast_to(jnp.asarray(log_std, mean.dtype), mean.shape)
        return Gaussian(mean=mean, log_std=log_std)


class Policy(nn.Module):
    """Observation → action distribution; a linear map without bias if no widths."""

    widths: tuple[int, ...] | None
    action_size: int
    continuous: bool
    initial_std: float
    learn_std: bool

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Distribution:
        """Action distribution of a batch of observations."""
        if self.widths is None:
            init, bias = nn.initializers.zeros, False
        else:
            init, bias = nn.initializers.orthogonal(0.01), True
            x = Torso(self.widths)(x)
        out = nn.Dense(
            self.action_size, use_bias=bias, kernel_init=init, param_dtype=x.dtype
        )(x)
        if not self.continuous:
            return Categorical(logits=out)
        return GaussianHead(self.initial_std, self.learn_std)(out)


class Critic(nn.Module):
    """Observation → value; quadratic in the observation if no widths."""

    widths: tuple[int, ...] | None

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        """Values of a batch of observations, in units of return."""
        if self.widths is None:
            init, x = nn.initializers.zeros, _quadratic_features(x)
        else:
            init, x = nn.initializers.orthogonal(1.0), Torso(self.widths)(x)
        return nn.Dense(1, kernel_init=init, param_dtype=x.dtype)(x)[..., 0]


@dataclasses.dataclass(frozen=True)
class Agent:
    """The functions of a run's networks.

    Attributes:
        init: key → parameters {"policy", "value"}; consumes the key.
        policy: (policy parameters, observations) → action distribution.
        value: (value parameters, observations) → values.
    """

    init: Callable[[PRNGKeyArray], Parameters]
    policy: Callable[..., Distribution]
    value: Callable[..., Float[Array, "..."]]


def make_agent(config: RunConfig, environment: Environment) -> Agent:
    """Networks of the configured kind, sized for the environment."""
    widths = config.hidden_sizes if config.network == "mlp" else None
    continuous = isinstance(environment.action, Box)
    policy = Policy(
        widths,
        environment.action.size,
        continuous,
        config.initial_std,
        config.learn_std,
    )
    critic = Critic(widths)
    example = jnp.zeros((1, environment.observation_size))

    def init(key: PRNGKeyArray) -> Parameters:
        policy_key, value_key = jax.random.split(key)
        return {
            "policy": policy.init(policy_key, example).get("params", {}),
            "value": critic.init(value_key, example)["params"],
        }

    def act(params: Any, x: Array) -> Distribution:
        return policy.apply({"params": params}, x)  # type: ignore[return-value]

    def judge(params: Any, x: Array) -> Array:
        return critic.apply({"params": params}, x)  # type: ignore[return-value]

    return Agent(init=init, policy=act, value=judge)


def _quadratic_features(x: Float[Array, "*batch obs"]) -> Float[Array, "*batch f"]:
    """Products x_i x_j with i ≤ j."""
    rows, columns = jnp.triu_indices(x.shape[-1])
    return x[..., rows] * x[..., columns]
