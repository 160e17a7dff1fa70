"""`theory.lqr` as the task of an outer loop: rollouts with random termination.

The parameters are the gain, flattened by rows. Near the optimum a natural step on the
objective per transition is descent with the curvature 2σ_u²(R + γBᵀP*B) ⊗ I, whichever
states are visited.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from theory import lqr
from theory.arithmetic import Number, one_number, whole_number
from theory.exact_loops.tasks import (
    Array,
    Batch,
    Generator,
    Task,
    count_of,
    is_exact,
    starting_point,
)


@dataclass(frozen=True, eq=False)
class Rollouts(Task):
    """Environments that run on from update to update, and generalised advantages.

        δ_t = r_t + V(x_{t+1}) − V(x_t),   A_t = Σ_k λ^k δ_{t+k}  within an episode

    with V the exact value of the acting policy (0 after termination): no bias for any
    λ, and λ = 0 makes the noise of successive transitions uncorrelated. λ = 1 is Monte
    Carlo with a bootstrap at the end of the rollout.

    Attributes:
        system: the linear system.
        rollout_length: T, transitions per environment and update; n/T environments.
        decay: λ.
        initial: the flattened gain before the first update; K = 0 if not given.
    """

    system: lqr.Lqr
    rollout_length: int = 32
    decay: float = 0.95
    initial: ArrayLike | None = None

    def __post_init__(self) -> None:
        if whole_number("rollout_length", self.rollout_length) < 1:
            msg = f"rollout_length is {self.rollout_length}; it must be at least 1."
            raise ValueError(msg)
        if not 0 <= one_number("decay", self.decay) <= 1:
            msg = f"decay is {self.decay}; it must be between 0 and 1."
            raise ValueError(msg)

    @property
    def start(self) -> Array:
        """`initial`, or no control."""
        return starting_point(self.initial, np.zeros(self.system.B.size))

    @property
    def optimum(self) -> Array:
        """K*, flattened."""
        return self.system.optimum()[0].ravel()

    @property
    def best_value(self) -> float:
        """J*."""
        return self.system.optimum()[1]

    @property
    def episode_length(self) -> float:
        """1/termination."""
        return float(1 / self.system.termination)

    def gap(self, parameters: Array) -> Array:
        """J* − J, shape [seed]; inf for an unstable gain."""
        return np.asarray(self.system.gap(self._gain(parameters)))

    def kl(self, before: Array, after: Array) -> Array:
        """KL(before ‖ after) over the states that `before` visits, nats, [seed]."""
        return np.asarray(self.system.kl(self._gain(before), self._gain(after)))

    def gradient(self, parameters: Array) -> Array:
        """(1−γ)·∂J/∂K, shape [seed, action·state]."""
        gradient = self.system.gradient(self._gain(parameters))
        return self.system.termination * gradient.reshape(parameters.shape)

    def natural(self, parameters: Array, gradient: Array) -> Array:
        """σ_u²·G·(E xxᵀ)⁻¹ for the gradient G, shape [seed, action·state]."""
        visited = self.system.state_covariance(self._gain(parameters))
        columns = np.swapaxes(self._gain(gradient), -1, -2)
        solved = np.swapaxes(np.linalg.solve(visited, columns), -1, -2)
        return self.system.action_sd**2 * solved.reshape(parameters.shape)

    def proximal(
        self, parameters: Array, anchor: Array, gradient: Array, outer_step: Number
    ) -> Array:
        """K' that maximises ⟨G, K'−K⟩ − ½|K'−K|²_C − ½|K'−K_anchor|²_F/η.

        C = 2(R + γBᵀPB) ⊗ E xxᵀ is the exact curvature of the advantage in K', over the
        states that K visits, so that with Ĝ = F⁻¹G and W = 2σ_u²(R + γBᵀPB)

            (ηW + I)(K' − K) = ηĜ − (K − K_anchor)
        """
        gain = self._gain(parameters)
        p = self.system.value_matrix(gain)
        inner = self.system.R + self.system.discount * self.system.B.T @ p @ (
            self.system.B
        )
        pull = 2 * outer_step * self.system.action_sd**2 * inner + np.eye(len(inner.T))
        wanted = outer_step * self.natural(parameters, gradient) - parameters + anchor
        moved = np.linalg.solve(pull, self._gain(wanted))
        return parameters + moved.reshape(parameters.shape)

    def estimate(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Array, Any]:
        """Mean A·∇log π over the rollouts."""
        if is_exact(samples):
            return self.gradient(parameters), world
        batch, world = self.sample(parameters, samples, world, generator)
        return self.weighted_score(parameters, batch, batch.advantages), world

    def sample(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Batch, Any]:
        """T transitions of n/T environments; the first ones start new episodes."""
        number, seeds = count_of(samples), len(parameters)
        envs, rest = divmod(number, self.rollout_length)
        if rest:
            msg = (
                f"samples_per_update is {number}; "
                f"it must be a multiple of the rollout length, {self.rollout_length}."
            )
            raise ValueError(msg)
        states = len(self.system.A)
        if world is None:
            world = generator.normal(size=(seeds, envs, states))
        gain = self._gain(parameters)
        visited, actions, ended = self._rolled_out(gain, world, generator)
        advantages = self._advantages(gain, visited, actions, ended)
        batch = Batch(
            states=_by_sample(visited[:-1]),
            actions=_by_sample(actions),
            advantages=_by_sample(advantages[..., None])[..., 0],
            log_policy=np.empty((seeds, number)),
            units=np.repeat(np.arange(envs), self.rollout_length),
        )
        batch.log_policy[:] = self.log_policy(parameters, batch)
        return batch, visited[-1]

    def log_policy(self, parameters: Array, batch: Batch) -> Array:
        """−½|u + Kx|²/σ_u², shape [seed, sample]; constants left out."""
        off = self._deviation(parameters, batch)
        return -np.einsum("...i,...i->...", off, off) / (2 * self.system.action_sd**2)

    def scores(self, parameters: Array, batch: Batch) -> Array:
        """−(u + Kx)xᵀ/σ_u², shape [seed, sample, action·state]."""
        off = self._deviation(parameters, batch)
        outer = off[..., :, None] * batch.states[..., None, :]
        flat = outer.reshape(*off.shape[:2], -1)
        return -flat / self.system.action_sd**2

    def weighted_score(self, parameters: Array, batch: Batch, weights: Array) -> Array:
        """Mean over the samples of weight·∇log π, shape [seed, action·state]."""
        off = self._deviation(parameters, batch) * weights[..., None]
        total = np.swapaxes(off, -1, -2) @ batch.states
        scale = weights.shape[1] * self.system.action_sd**2
        return -total.reshape(parameters.shape) / scale

    def _rolled_out(
        self, gain: Array, start: Array, generator: Generator
    ) -> tuple[Array, Array, Any]:
        """States [time+1, seed, env, state], actions and ends [time, seed, env]."""
        system, length = self.system, self.rollout_length
        policy, shape = np.swapaxes(gain, -1, -2), start.shape
        visited = np.empty((length + 1, *shape))
        actions = np.empty((length, *shape[:-1], system.B.shape[1]))
        explore = system.action_sd * generator.normal(size=actions.shape)
        noise = system.state_sd * generator.normal(size=(length, *shape))
        ended = generator.random((length, *shape[:-1])) < system.termination
        visited[0] = start
        for t in range(length):
            actions[t] = explore[t] - visited[t] @ policy
            visited[t + 1] = visited[t] @ system.A.T + actions[t] @ system.B.T
            visited[t + 1] += noise[t]
            over = ended[t]
            fresh = generator.normal(size=(int(over.sum()), shape[-1]))
            visited[t + 1][over] = fresh
        return visited, actions, ended

    def _advantages(
        self, gain: Array, visited: Array, actions: Array, ended: Any
    ) -> Array:
        """A of every transition, shape [time, seed, env]."""
        system = self.system
        p = system.value_matrix(gain)
        constant = -np.trace(p, axis1=-2, axis2=-1) - system.value(gain)
        values = -_quadratic(visited, p) - np.asarray(constant)[:, None]
        rewards = -_quadratic(visited[:-1], system.Q) - _quadratic(actions, system.R)
        going = 1.0 - ended
        advantages = rewards + going * values[1:] - values[:-1]
        for t in range(len(advantages) - 2, -1, -1):
            advantages[t] += self.decay * going[t] * advantages[t + 1]
        return advantages

    def _deviation(self, parameters: Array, batch: Batch) -> Array:
        """U + Kx, shape [seed, sample, action]."""
        policy = np.swapaxes(self._gain(parameters), -1, -2)
        return batch.actions + batch.states @ policy

    def _gain(self, parameters: Array) -> Array:
        return parameters.reshape(*parameters.shape[:-1], *self.system.B.shape[::-1])


def _quadratic(vectors: Array, matrix: Array) -> Array:
    return np.einsum("...i,...i->...", vectors @ matrix, vectors)


def _by_sample(values: Array) -> Array:
    """[time, seed, env, ...] as [seed, env·time, ...], an environment together."""
    moved = np.moveaxis(values, 0, 2)
    return np.ascontiguousarray(moved).reshape(
        moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:]
    )
