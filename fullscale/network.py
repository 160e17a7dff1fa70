"""Feed-forward policies and critics, and the choice between kinds of networks.

Policy and critic are separate networks; `Agent` bundles their functions so that the
rest of the trainer never sees flax.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fullscale import recurrent
from fullscale.agent import Agent, Carry, Parameters, seer
from fullscale.config import FULL, ConfigError, RunConfig
from fullscale.distributions import Distribution
from fullscale.environments.protocol import Environment
from fullscale.layers import PolicyHead, Product, Torso, product_of, value_head
from fullscale.precision import full

__all__ = ["Agent", "Parameters", "make_agent"]


class Policy(nn.Module):
    """Observation → action distribution; a linear map without bias if no widths."""

    widths: tuple[int, ...] | None
    head: PolicyHead
    product: Product = None

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Distribution:
        """Action distribution of a batch of observations."""
        if self.widths is not None:
            x = Torso(self.widths, self.product)(x)
        return self.head(x)


class Critic(nn.Module):
    """Observation → value; quadratic in the observation if no widths."""

    widths: tuple[int, ...] | None
    product: Product = None

    @nn.compact
    def __call__(self, x: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        """Values of a batch of observations, in units of return."""
        if self.widths is None:
            return value_head(_quadratic_features(x), linear=True)
        return value_head(Torso(self.widths, self.product)(x))


def make_agent(config: RunConfig, environment: Environment) -> Agent:
    """Networks of the configured kind, sized for the environment.

    Raises:
        ConfigError: what policies see or earn is not what the environment's exact
            return is of.
    """
    _check_exact(config, environment)
    if config.network == "gru":
        return recurrent.make_agent(config, environment)
    linear = config.network == "linear"
    widths = None if linear else config.hidden_sizes
    product = product_of(config.compute_precision)
    head = PolicyHead(
        environment.action, config.initial_std, config.learn_std, linear=linear
    )
    policy, critic = Policy(widths, head, product), Critic(widths, product)
    example = jnp.zeros((1, environment.observation_size))

    def init(key: PRNGKeyArray) -> Parameters:
        policy_key, value_key = jax.random.split(key)
        return {
            "policy": policy.init(policy_key, example).get("params", {}),
            "value": critic.init(value_key, example)["params"],
        }

    def act(params: Any, x: Array) -> Distribution:
        return policy.apply({"params": params}, full(x))  # type: ignore[return-value]

    def judge(params: Any, x: Array) -> Array:
        return critic.apply({"params": params}, full(x))  # type: ignore[return-value]

    return Agent(
        init=init,
        policy=act,
        value=judge,
        see=seer(config.storage_precision),
        carry=lambda shape: Carry((), ()),
        act=lambda params, carry, x, start: (act(params, x), carry),
        judge=lambda params, carry, x, start: (judge(params, x), carry),
    )


def _check_exact(config: RunConfig, environment: Environment) -> None:
    if environment.exact_return is None:
        return
    name = repr(environment.name)
    if config.normalise_observations or config.storage_precision != FULL:
        raise ConfigError(
            f"normalise_observations = {config.normalise_observations}, "
            f"storage_precision = {config.storage_precision!r} should be False, "
            f"{FULL!r} on {name}: its exact return is that of policies which see "
            "observations as they are"
        )
    if config.normalise_rewards and config.entropy_coefficient:
        raise ConfigError(
            f"normalise_rewards = True should be False on {name}, whose objective has "
            "an entropy bonus that would not be divided likewise"
        )


def _quadratic_features(x: Float[Array, "*batch obs"]) -> Float[Array, "*batch f"]:
    """Products x_i x_j with i ≤ j."""
    rows, columns = jnp.triu_indices(x.shape[-1])
    return x[..., rows] * x[..., columns]
