"""A linear-Gaussian policy on a linear system with random termination, exactly.

One of the two tasks where optimum, gradient, Fisher information and KL are known
exactly, this one with states, time and a return:

    x₀ ~ N(0, I),   u = −Kx + σ_u·ε,   reward −(xᵀQx + uᵀRu),   x' = Ax + Bu + σ_x·w

After each reward the episode ends with probability 1 − γ, so that γ is a discount of
the undiscounted return. A gain K has shape [..., action, state]; leading axes are kept.

Derived here (policy evaluation by Bellman's equation, gradient as in Fazel et al. 2018
with a discount). With C = A − BK, valid while the spectral radius of √γ·C is below 1:

    P = Q + KᵀRK + γCᵀPC                         value matrix, V(x) = −xᵀPx − c
    c = [σ_u² tr R + γ(σ_x² tr P + σ_u² tr BᵀPB)]/(1−γ)
    S = I + (γ/(1−γ))(σ_x² I + σ_u² BBᵀ) + γCSCᵀ  sum over an episode of E xxᵀ
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_discrete_are

from theory.arithmetic import Number, check_finite, check_nonnegative, check_positive

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lqr:
    """A linear system, quadratic costs, and the policy's fixed standard deviation.

    Attributes:
        A: state matrix [state, state].
        B: input matrix [state, action].
        Q: state cost [state, state], symmetric, not negative.
        R: action cost [action, action], symmetric, positive.
        state_sd: σ_x, standard deviation of the state noise.
        action_sd: σ_u, standard deviation of the policy.
        termination: 1 − γ, probability that an episode ends after a transition.
    """

    A: Array
    B: Array
    Q: Array
    R: Array
    state_sd: Number
    action_sd: Number
    termination: Number

    def __post_init__(self) -> None:
        for name in ("A", "B", "Q", "R"):
            matrix = np.array(getattr(self, name), dtype=np.float64)
            check_finite(name, matrix)
            matrix.setflags(write=False)
            object.__setattr__(self, name, matrix)
        states, actions = self.B.shape
        right = {"A": (states, states), "Q": (states, states), "R": (actions, actions)}
        for name, shape in right.items():
            found = getattr(self, name).shape
            if found != shape:
                msg = (
                    f"{name} has shape {found}; with B of {self.B.shape} it is {shape}."
                )
                raise ValueError(msg)
        _check_cost("Q", self.Q, least=0.0)
        _check_cost("R", self.R, least=np.finfo(float).tiny)
        check_nonnegative("state_sd", self.state_sd)
        check_positive("action_sd", self.action_sd)
        if not 0 < self.termination < 1:
            msg = f"termination is {self.termination}; it must be between 0 and 1."
            raise ValueError(msg)

    @property
    def discount(self) -> Number:
        """γ, the probability that an episode goes on."""
        return 1 - self.termination

    def stable(self, gain: ArrayLike) -> Number:
        """Whether the return is finite: spectral radius of √γ(A − BK) below 1."""
        modes = np.linalg.eigvals(self._closed(self._gain(gain)))
        return (np.abs(modes).max(-1) < 1)[()]

    def value_matrix(self, gain: ArrayLike) -> Array:
        """P, with V(x) = −xᵀPx − c.

        Returns:
            Shape [..., state, state], symmetric.

        Raises:
            ValueError: if a gain is unstable.
        """
        k = self._stable_gain(gain)
        cost = self.Q + _transposed(k) @ self.R @ k
        return _geometric_sum(_transposed(self._closed(k)), cost)

    def value(self, gain: ArrayLike) -> Number:
        """J(K) = −tr P − c, the expected return of an episode.

        Returns:
            J per leading index; −inf for an unstable gain.
        """
        k = self._gain(gain)
        stable = self.stable(k)
        p = self.value_matrix(_where(stable, k, self._best_gain))
        acting = self.R + self.discount * self.B.T @ p @ self.B
        noise = self.action_sd**2 * _trace(acting)
        noise += self.discount * self.state_sd**2 * _trace(p)
        return np.where(stable, -_trace(p) - noise / self.termination, -np.inf)[()]

    def optimum(self) -> tuple[Array, float]:
        """The best gain K* and its value J*, at this standard deviation.

        K* solves the discrete algebraic Riccati equation of (√γ·A, √γ·B, Q, R).

        Returns:
            K*, shape [action, state], and J*.
        """
        best = self._best_gain.copy()
        return best, float(self.value(best))

    def gap(self, gain: ArrayLike) -> Number:
        """J* − J(K) = tr[(K−K*)ᵀ(R + γBᵀP*B)(K−K*)·S_K], without cancellation.

        Returns:
            The gap per leading index; inf for an unstable gain.
        """
        k = self._gain(gain)
        stable, best = self.stable(k), self._best_gain
        k = _where(stable, k, best)
        change = k - best
        p = self.value_matrix(best)
        weight = self.R + self.discount * self.B.T @ p @ self.B
        lost = _trace(_transposed(change) @ weight @ change @ self._episode_moment(k))
        return np.where(stable, lost, np.inf)[()]

    def gradient(self, gain: ArrayLike) -> Array:
        """∂J/∂K = −2[(R + γBᵀPB)K − γBᵀPA]·S.

        Returns:
            The same shape.

        Raises:
            ValueError: if a gain is unstable.
        """
        k = self._stable_gain(gain)
        forward = self.discount * self.B.T @ self.value_matrix(k)
        residual = (self.R + forward @ self.B) @ k - forward @ self.A
        return -2.0 * residual @ self._episode_moment(k)

    def state_covariance(self, gain: ArrayLike) -> Array:
        """E xxᵀ over the states visited when episodes follow one another: (1−γ)S.

        Returns:
            Shape [..., state, state]; the mean is 0.

        Raises:
            ValueError: if a gain is unstable.
        """
        return self.termination * self._episode_moment(self._stable_gain(gain))

    def fisher(self, gain: ArrayLike) -> Array:
        """Fisher information of K per transition, I ⊗ (1−γ)S/σ_u².

        Returns:
            Shape [..., action·state, action·state], for K flattened by rows
            (`gain.ravel()`: the state index runs fastest).

        Raises:
            ValueError: if a gain is unstable.
        """
        visited = self.state_covariance(gain) / self.action_sd**2
        return np.asarray(np.kron(np.eye(self.B.shape[1]), visited), dtype=np.float64)

    def kl(
        self, first: ArrayLike, second: ArrayLike, states: ArrayLike | None = None
    ) -> Number:
        """KL between the policies of two gains, ½|(K₁−K₂)x|²/σ_u², in nats.

        Args:
            first: K₁, shape [..., action, state].
            second: K₂, likewise.
            states: shape [state_index, state]; without it the mean over the states
                that K₁ visits.

        Returns:
            The mean per leading index, or with `states` shape [..., state_index].

        Raises:
            ValueError: if the mean is asked for and K₁ is unstable.
        """
        k = self._gain(first)
        change = (k - self._gain(second)) / self.action_sd
        if states is None:
            visited = self.state_covariance(k)
            return _trace(change @ visited @ _transposed(change)) / 2
        moved = np.asarray(states, dtype=np.float64) @ _transposed(change)
        return (moved**2).sum(-1)[()] / 2

    def _episode_moment(self, k: Array) -> Array:
        start = np.eye(self.A.shape[0])
        entering = self.state_sd**2 * start + self.action_sd**2 * self.B @ self.B.T
        fresh = start + self.discount / self.termination * entering
        return _geometric_sum(self._closed(k), fresh)

    def _closed(self, k: Array) -> Array:
        return np.sqrt(self.discount) * (self.A - self.B @ k)

    @cached_property
    def _best_gain(self) -> Array:
        scale = np.sqrt(self.discount)
        p = solve_discrete_are(scale * self.A, scale * self.B, self.Q, self.R)
        forward = self.discount * self.B.T @ p
        return np.linalg.solve(self.R + forward @ self.B, forward @ self.A)

    def _gain(self, gain: ArrayLike) -> Array:
        k = np.asarray(gain, dtype=np.float64)
        shape = self.B.shape[::-1]
        if k.shape[-2:] != shape:
            msg = f"gain has shape {k.shape}; its last axes must be {shape}."
            raise ValueError(msg)
        check_finite("gain", k)
        return k

    def _stable_gain(self, gain: ArrayLike) -> Array:
        k = self._gain(gain)
        if not np.all(self.stable(k)):
            radius = np.abs(np.linalg.eigvals(self._closed(k))).max()
            msg = (
                f"gain makes the spectral radius of √γ(A − BK) {radius:.6g}; "
                "it must be below 1 for the return to be finite."
            )
            raise ValueError(msg)
        return k


def instance(seed: int, states: int, actions: int) -> Lqr:
    """A random instance: A normal, scaled to spectral radius .95, then B half-normal.

    Args:
        seed: of `numpy.random.default_rng`, which draws A first and B second.
        states: dimension of the state.
        actions: dimension of the action.

    Returns:
        The instance, with Q = .1·I, R = .05·I, state noise .1, policy noise .3 and
        termination .05.
    """
    generator = np.random.default_rng(seed)
    dynamics = generator.normal(size=(states, states))
    dynamics *= 0.95 / np.abs(np.linalg.eigvals(dynamics)).max()
    return Lqr(
        A=dynamics,
        B=0.5 * generator.normal(size=(states, actions)),
        Q=0.1 * np.eye(states),
        R=0.05 * np.eye(actions),
        state_sd=0.1,
        action_sd=0.3,
        termination=0.05,
    )


def standard() -> Lqr:
    """The four-state, two-action instance that the results of this project refer to."""
    return instance(seed=3, states=4, actions=2)


def _geometric_sum(matrix: Array, start: Array) -> Array:
    """X = start + M·X·Mᵀ, solved as a linear system; leading axes broadcast."""
    size = matrix.shape[-1]
    lead = np.broadcast_shapes(matrix.shape[:-2], start.shape[:-2])
    pairs = np.einsum("...ik,...jl->...ijkl", matrix, matrix)
    system = np.eye(size**2) - pairs.reshape(*matrix.shape[:-2], size**2, size**2)
    right = np.broadcast_to(start, (*lead, size, size)).reshape(*lead, size**2, 1)
    total = np.linalg.solve(system, right).reshape(*lead, size, size)
    return (total + _transposed(total)) / 2


def _check_cost(name: str, matrix: Array, least: float) -> None:
    if not np.array_equal(matrix, matrix.T):
        msg = f"{name} is not symmetric; a cost must be."
        raise ValueError(msg)
    smallest = np.linalg.eigvalsh(matrix).min()
    if smallest < least:
        right = "above 0" if least else "not below 0"
        msg = f"{name} has the eigenvalue {smallest}; all must be {right}."
        raise ValueError(msg)


def _where(stable: Number, gain: Array, other: Array) -> Array:
    return np.where(np.asarray(stable)[..., None, None], gain, other)


def _transposed(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


def _trace(matrix: Array) -> Number:
    return np.trace(matrix, axis1=-2, axis2=-1)
