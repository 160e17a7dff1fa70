"""What an environment is to the trainer: two functions over a batch, and sizes.

`reset` and `step` act on a batch of environments that share one key, so that native
environments draw all their noise at once. `step` never resets by itself: it returns the
true next observation and says apart whether the episode *terminated* (no future
reward) or was *truncated* (a time limit; the future is bootstrapped).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float


@dataclasses.dataclass(frozen=True)
class Box:
    """Real actions of a given size, clipped to [low, high] by the environment."""

    size: int
    low: float = -float("inf")
    high: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Integer actions 0 … size−1."""

    size: int


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors of integers; component i is one of 0 … sizes[i]−1."""

    sizes: tuple[int, ...]


class Step(NamedTuple):
    """Outcome of one step of a batch of environments.

    Attributes:
        state: next environment states (PyTree, leading axis env).
        observation: true next observation, also at the end of an episode.
        reward: reward of the transition.
        terminated: the episode ended and nothing follows.
        truncated: the episode was cut by a time limit.
    """

    state: Any
    observation: Float[Array, "env obs"]
    reward: Float[Array, " env"]
    terminated: Bool[Array, " env"]
    truncated: Bool[Array, " env"]


@dataclasses.dataclass(frozen=True)
class Environment:
    """An environment by its functions.

    Attributes:
        name: the name in the configuration.
        observation_size: length of the observation vector.
        action: action space.
        horizon: time limit in transitions; None if episodes are never truncated.
        reset: (key, number) → (states, observations); consumes the key.
        step: (key, states, actions) → Step; consumes the key.
        elapse: (states, transitions [env]) → states whose episodes are that old
            already, for the time limit only; needed where there is one.
        exact_return: policy parameters → exact J, where it is known; else None.
    """

    name: str
    observation_size: int
    action: Box | Discrete | MultiDiscrete
    horizon: int | None
    reset: Callable[..., tuple[Any, Array]]
    step: Callable[..., Step]
    elapse: Callable[[Any, Array], Any] | None = None
    exact_return: Callable[[Any], Array] | None = None

    def __post_init__(self) -> None:
        if (self.horizon is None) != (self.elapse is None):
            raise ValueError(
                f"environment {self.name!r} has horizon = {self.horizon} and elapse = "
                f"{self.elapse}; one needs the other"
            )
