"""`Agent`: what the trainer knows of a policy and a critic, with memory or without."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from fullscale.distributions import Distribution
from fullscale.precision import pack

Parameters = dict  # {"policy": ..., "value": ...}: PyTrees of arrays


class Carry(NamedTuple):
    """What networks remember of an episode so far; () where they remember nothing.

    Attributes:
        policy: of the policy.
        value: of the critic.
    """

    policy: Any
    value: Any


class Stretch(NamedTuple):
    """Consecutive transitions as networks with memory see them: one row of a batch.

    Attributes:
        observation: as seen (`Agent.see`).
        start: whether an episode starts at the transition.
        carry: of the policy that acted, before the first transition.
    """

    observation: Shaped[Array, "row time obs"]
    start: Bool[Array, "row time"]
    carry: Carry


Inputs = Any  # observations [..., obs], or a Stretch: what `Batch.observation` holds


@dataclasses.dataclass(frozen=True)
class Agent:
    """The functions of a run's networks.

    Observations are what `see` returned, always; the carry of `act` is the policy's and
    that of `judge` the critic's.

    Attributes:
        init: key → parameters {"policy", "value"}; consumes the key.
        policy: (policy parameters, inputs) → action distribution.
        value: (value parameters, inputs) → values.
        see: observations of the environment → what networks act on and what is stored.
        carry: shape of a batch of environments → `Carry` before their first episodes.
        act: (policy parameters, carry, observations, starts) → (action distribution,
            carry), one step of a batch of environments; `starts` says where an episode
            starts at this step, so that nothing before it is remembered.
        judge: (value parameters, carry, observations, starts) → (values, carry).
        stretch: transitions in a row of a batch; 0 where rows are single transitions
            without a time axis, since nothing is remembered.
    """

    init: Callable[[PRNGKeyArray], Parameters]
    policy: Callable[[Any, Inputs], Distribution]
    value: Callable[[Any, Inputs], Float[Array, "..."]]
    see: Callable[[Array], Array]
    carry: Callable[[tuple[int, ...]], Carry]
    act: Callable[..., tuple[Distribution, Any]]
    judge: Callable[..., tuple[Array, Any]]
    stretch: int = 0


def seer(storage_precision: str) -> Callable[[Array], Array]:
    """`Agent.see` at this precision: the identity, or bfloat16, packed."""
    return pack if storage_precision == "bfloat16" else _same


def _same(observation: Array) -> Array:
    return observation
