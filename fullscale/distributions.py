"""Action distributions as PyTrees: sample, log-density, entropy and exact KL.

`Gaussian` has a diagonal covariance that may be shared by all states; `Categorical`
is over integers, `MultiCategorical` over vectors of independent ones. The last axis of
parameters and of vector actions is the action's; all others are batch.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

_LOG_TAU = 1.8378770664093453  # log 2π


class Gaussian(NamedTuple):
    """Diagonal Gaussian. Units: those of the action.

    Attributes:
        mean: means [..., action].
        log_std: logarithms of the standard deviations, like `mean`.
    """

    mean: Float[Array, "*batch action"]
    log_std: Float[Array, "*batch action"]


class Categorical(NamedTuple):
    """Distribution over the integers 0 … choices−1.

    Attributes:
        logits: unnormalised log-probabilities [..., choices].
    """

    logits: Float[Array, "*batch choices"]


class MultiCategorical(NamedTuple):
    """Independent integers, component i from 0 … choices[i]−1.

    The sizes are those of the arrays, so that nothing static has to travel.

    Attributes:
        logits: for each component, unnormalised log-probabilities [..., choices].
    """

    logits: tuple[Float[Array, "*batch choices"], ...]

    @property
    def components(self) -> tuple[Categorical, ...]:
        """The distribution of each component."""
        return tuple(Categorical(logits) for logits in self.logits)


Distribution = Gaussian | Categorical | MultiCategorical


def sample(key: PRNGKeyArray, distribution: Distribution) -> Array:
    """Draw one action per batch element; consumes `key`."""
    if isinstance(distribution, Gaussian):
        mean = distribution.mean
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + jnp.exp(distribution.log_std) * noise
    if isinstance(distribution, MultiCategorical):
        parts = distribution.components
        keys = jax.random.split(key, len(parts))
        return jnp.stack([sample(k, p) for k, p in zip(keys, parts, strict=True)], -1)
    return jax.random.categorical(key, distribution.logits)


def log_prob(
    distribution: Distribution,
    action: Float[Array, "*batch action"] | Int[Array, "..."],
) -> Float[Array, "*batch"]:
    """Log-density (log-probability) of the action, in nats."""
    if isinstance(distribution, Gaussian):
        scaled = (action - distribution.mean) * jnp.exp(-distribution.log_std)
        terms = -0.5 * jnp.square(scaled) - distribution.log_std - 0.5 * _LOG_TAU
        return terms.sum(-1)
    if isinstance(distribution, MultiCategorical):
        parts = enumerate(distribution.components)
        return _total(log_prob(part, action[..., i]) for i, part in parts)
    log_p = jax.nn.log_softmax(distribution.logits)
    return jnp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]


def entropy(distribution: Distribution) -> Float[Array, "*batch"]:
    """Entropy in nats (differential for `Gaussian`)."""
    if isinstance(distribution, Gaussian):
        return (distribution.log_std + 0.5 * (1.0 + _LOG_TAU)).sum(-1)
    if isinstance(distribution, MultiCategorical):
        return _total(map(entropy, distribution.components))
    log_p = jax.nn.log_softmax(distribution.logits)
    return -(jnp.exp(log_p) * log_p).sum(-1)


def kl(first: Distribution, second: Distribution) -> Float[Array, "*batch"]:
    """Exact KL(first ‖ second) in nats; exactly 0 for equal arguments."""
    if isinstance(first, Gaussian) and isinstance(second, Gaussian):
        log_ratio = first.log_std - second.log_std
        distance = (first.mean - second.mean) * jnp.exp(-second.log_std)
        terms = jnp.expm1(2.0 * log_ratio) - 2.0 * log_ratio + jnp.square(distance)
        return 0.5 * terms.sum(-1)
    if isinstance(first, Categorical) and isinstance(second, Categorical):
        return _categorical_kl(first.logits, second.logits)
    if isinstance(first, MultiCategorical) and isinstance(second, MultiCategorical):
        pairs = zip(first.components, second.components, strict=True)
        return _total(kl(*pair) for pair in pairs)
    raise TypeError(f"no KL between {type(first).__name__} and {type(second).__name__}")


def _categorical_kl(
    first: Float[Array, "*batch choices"], second: Float[Array, "*batch choices"]
) -> Float[Array, "*batch"]:
    """Σ p (e^d − 1 − d) with d = log q − log p: as Σ(q − p) = 0, it is −Σ p d.

    Every term is of second order and not negative, so that steps of 1e-9 nats are read
    to some 1 % in single precision, in which −Σ p d alone is wrong by 1e-7 nats.
    """
    log_p, log_q = map(jax.nn.log_softmax, (first, second))
    p, d = jnp.exp(log_p), log_q - log_p
    near = p * (jnp.expm1(jnp.minimum(d, 1.0)) - d)
    return jnp.where(d < 1.0, near, jnp.exp(log_q) - p - p * d).sum(-1)


def _total(terms: Iterable[Array]) -> Array:
    """Sum over independent components."""
    return functools.reduce(jnp.add, terms)
