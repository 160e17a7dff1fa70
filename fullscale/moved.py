"""How far a switch to another configuration by itself moves the policy."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fullscale import distributions, normalise, snapshot
from fullscale.agent import Agent
from fullscale.arrays import Arrays, nest, under, zeros
from fullscale.config import ConfigError, RunConfig
from fullscale.environments import make_environment
from fullscale.network import make_agent
from fullscale.state import Normaliser, TrainState
from fullscale.widen import widen

POLICY = "learner/parameters/policy/"
ROUNDING = 1e-6  # nats that rounding cannot explain
MEMORY_STEPS = 4  # steps over which policies with a memory are compared


class Moved(NamedTuple):
    """What the switch itself does to the policy, per seed, in nats.

    Over the observations in which the new run's environments start; policies with a
    memory see them several times in a row.

    Attributes:
        kl: KL(checkpoint's policy ‖ new policy), both at the new network's width (new
            units are silent in the former): exactly 0 unless the configuration changes
            what the parameters compute.
        rounding: KL(checkpoint's policy ‖ the same at the new width): a sum over more
            numbers, of which the new ones are 0, may round otherwise.
    """

    kl: Float[np.ndarray, " seed"]
    rounding: Float[np.ndarray, " seed"]


def moved(
    before: RunConfig, after: RunConfig, arrays: Arrays, state: TrainState
) -> Moved:
    """Measure it.

    Args:
        before: the checkpoint's configuration.
        after: the new run's.
        arrays: of the checkpoint, by path.
        state: the new run's first.

    Raises:
        ConfigError: this kind of network does not compute the same when it is wider.
    """
    new = snapshot.host_arrays(state)
    silent = widen(under(arrays, POLICY), zeros(under(new, POLICY)))
    as_wide = dataclasses.replace(before, hidden_sizes=after.hidden_sizes)
    seen = jax.device_get(state.worlds.observation)
    wide = _Actor.of(as_wide, {**arrays, **silent})
    kl = _kl(wide, _Actor.of(after, new), seen)
    rounding = _kl(_Actor.of(before, arrays), wide, seen)
    if not rounding.max() < ROUNDING:
        raise ConfigError(
            f"hidden_sizes = {list(after.hidden_sizes)} should be the checkpoint's, "
            f"{list(before.hidden_sizes)}: a network = {after.network!r} of this kind "
            f"cannot be made wider (it moves by {rounding.max():.3g} nats)"
        )
    return Moved(kl, rounding)


class _Actor(NamedTuple):
    """A policy with what it acts through, arrays [seed, …]."""

    agent: Agent
    policy: dict
    normaliser: Normaliser | None

    @classmethod
    def of(cls, config: RunConfig, arrays: Arrays) -> "_Actor":
        return cls(
            make_agent(config, make_environment(config)),
            nest(arrays, POLICY),
            normalise.from_dict(nest(arrays, "normaliser/")),
        )


def _kl(first: _Actor, second: _Actor, seen: Any) -> np.ndarray:
    def one(policies: list, normalisers: list, x: Any) -> Any:
        agents = [
            normalise.seeing(actor.agent, normaliser)
            for actor, normaliser in zip((first, second), normalisers, strict=True)
        ]
        steps = MEMORY_STEPS if agents[0].stretch else 1
        return policy_kl((agents[0], agents[1]), (policies[0], policies[1]), x, steps)

    policies = [first.policy, second.policy]
    normalisers = [first.normaliser, second.normaliser]
    return np.asarray(jax.jit(jax.vmap(one))(policies, normalisers, seen))


def policy_kl(
    agents: tuple[Agent, Agent], policies: tuple[Any, Any], observation: Any, steps: int
) -> Any:
    """Mean KL(first ‖ second) of two policies that see the same, step after step.

    Args:
        agents: of the two.
        policies: their parameters.
        observation: of the environment, [..., obs].
        steps: how often it is seen.
    """
    shape = observation.shape[:-1]
    carries = [agent.carry(shape).policy for agent in agents]
    total = jnp.zeros(())
    for step in range(steps):
        said = []
        for i, (agent, policy) in enumerate(zip(agents, policies, strict=True)):
            first = jnp.full(shape, step == 0)
            out, carries[i] = agent.act(
                policy, carries[i], agent.see(observation), first
            )
            said.append(out)
        total = total + distributions.kl(*said).mean()
    return total / steps
