"""Running moments of observations and discounted returns, still during an update.

An update acts and learns with the moments of the updates before it; then its own are
merged in, each update weighing alike. So the policy that learns is the one that acted.
Until the first merge the mean is 0 and the variance 1. Nothing cancels: moments are
taken around a point among the data, and differences between means are merged, as in
Chan, Golub & LeVeque (1983).
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fullscale.agent import Agent
from fullscale.config import RunConfig
from fullscale.loss import DEVICE
from fullscale.state import Moments, Normaliser

LIMIT = 10.0  # standard deviations at which normalised observations are clipped
_ROUNDING = 8.0  # a spread of so many float steps of the mean is none


def start(config: RunConfig, observation_size: int) -> Normaliser | None:
    """Before the first update; None if nothing is normalised."""
    if not (config.normalise_observations or config.normalise_rewards):
        return None

    def standard(shape: tuple[int, ...]) -> Moments:
        return Moments(jnp.zeros(shape), jnp.ones(shape))

    return Normaliser(
        updates=jnp.zeros((), jnp.int32),
        observation=standard((observation_size,))
        if config.normalise_observations
        else None,
        discounted_return=standard(()) if config.normalise_rewards else None,
    )


def scale(moments: Moments) -> Float[Array, "*size"]:
    """Standard deviations; 1 where there is none beyond rounding."""
    spread = jnp.sqrt(moments.variance)
    least = _ROUNDING * float(jnp.finfo(spread.dtype).eps) * jnp.abs(moments.mean)
    return jnp.where(spread > least, spread, 1.0)


def seeing(agent: Agent, normaliser: Normaliser | None) -> Agent:
    """The agent behind the normaliser: it sees standardised observations, ±`LIMIT`."""
    if normaliser is None or normaliser.observation is None:
        return agent
    moments = normaliser.observation

    def see(observation: Array) -> Array:
        mean, spread = (
            jnp.broadcast_to(x, observation.shape)
            for x in (moments.mean, scale(moments))
        )
        standard = jnp.clip((observation - mean) / spread, -LIMIT, LIMIT)
        return agent.see(standard)

    return dataclasses.replace(agent, see=see)


def rewards(
    normaliser: Normaliser | None, reward: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Rewards in units of the standard deviation of discounted returns."""
    if normaliser is None or normaliser.discounted_return is None:
        return reward
    return reward / scale(normaliser.discounted_return)


def discounted_returns(
    reward: Float[Array, "time *batch"],
    done: Bool[Array, "time *batch"],
    before: Float[Array, "*batch"],
    discount: Float[Array, ""],
) -> tuple[Float[Array, "time *batch"], Float[Array, "*batch"]]:
    """R ← γ R + r within each episode; 0 before its first reward.

    Args:
        reward: of each transition.
        done: whether an episode ends with it.
        before: γ-discounted return of the episodes so far, not yet times γ.
        discount: γ.

    Returns:
        R at every transition, and what to go on with.
    """

    def step(past: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, done = now
        found = discount * past + reward
        return jnp.where(done, 0.0, found), found

    after, found = jax.lax.scan(step, before, (reward, done))
    return found, after


def moments_of(x: Float[Array, "..."]) -> Moments:
    """Of all numbers of an array."""
    mean = x.mean()
    return Moments(mean, jnp.square(x - mean).mean())


def over_devices(local: Moments) -> Moments:
    """Of the data of all devices, which hold equal shares."""
    mean = jax.lax.pmean(local.mean, DEVICE)
    apart = jnp.square(local.mean - mean)
    return Moments(mean, jax.lax.pmean(local.variance + apart, DEVICE))


def merge(old: Moments, new: Moments, updates: Int[Array, ""]) -> Moments:
    """Of the data of so many updates and of one more; exactly `new` if it is the first.

    m ← m + s δ, v ← (1 − s) v + s v' + s (1 − s) δ², with s = 1/(updates + 1) and δ the
    difference of the means.
    """
    share = 1.0 / (updates.astype(old.mean.dtype) + 1.0)
    away = new.mean - old.mean
    mean = jnp.where(updates == 0, new.mean, old.mean + share * away)
    spread = share * (1.0 - share) * jnp.square(away)
    return Moments(mean, (1.0 - share) * old.variance + share * new.variance + spread)


def after(
    normaliser: Normaliser | None,
    observation: Moments | None,
    discounted_return: Moments | None,
) -> Normaliser | None:
    """With one more update's data merged in.

    Args:
        normaliser: before.
        observation: of this device's observations of the update, where normalised.
        discounted_return: likewise.
    """
    if normaliser is None:
        return None

    def merged(old: Moments | None, local: Moments | None) -> Moments | None:
        if old is None or local is None:
            return old
        return merge(old, over_devices(local), normaliser.updates)

    return Normaliser(
        updates=normaliser.updates + 1,
        observation=merged(normaliser.observation, observation),
        discounted_return=merged(normaliser.discounted_return, discounted_return),
    )


def as_dict(normaliser: Normaliser | None) -> dict:
    """Nested dictionaries of arrays, to be written; empty if nothing is normalised."""
    if normaliser is None:
        return {}
    parts = normaliser._asdict() | {
        name: part._asdict()
        for name, part in normaliser._asdict().items()
        if isinstance(part, Moments)
    }
    return {name: part for name, part in parts.items() if part is not None}


def from_dict(written: Mapping | None) -> Normaliser | None:
    """The normaliser from what `as_dict` gave; None if there was none."""
    if not written:
        return None

    def moments(name: str) -> Moments | None:
        part = written.get(name)
        return part and Moments(*(jnp.asarray(part[key]) for key in Moments._fields))

    return Normaliser(
        updates=jnp.asarray(written["updates"]),
        observation=moments("observation"),
        discounted_return=moments("discounted_return"),
    )
