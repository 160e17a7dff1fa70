"""An entropy-regularised bandit with a softmax policy, in closed form.

One of the two tasks where optimum, gradient, Fisher information and KL are known
exactly. The objective is J(π) = ⟨μ, π⟩ + τH(π) with π = softmax(logits); it has one
optimum, π* ∝ exp(μ/τ), and everywhere J* − J = τ·KL(π ‖ π*), so that a natural-gradient
step in the logits is exactly a step on a quadratic of curvature τ.

Logits have shape [..., arm]; leading axes are kept.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.arithmetic import Number, check_finite, check_nonnegative, check_positive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bandit:
    """One step, k arms, Gaussian rewards, entropy in the objective.

    Attributes:
        means: μ, the mean reward of each arm.
        reward_sd: standard deviation of the reward given the arm.
        temperature: τ > 0, the weight of the entropy.
    """

    means: tuple[float, ...]
    reward_sd: Number
    temperature: Number

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", tuple(float(mean) for mean in self.means))
        if len(self.means) < 2:
            msg = f"means has {len(self.means)} arms; a bandit needs at least 2."
            raise ValueError(msg)
        check_finite("means", np.array(self.means))
        check_nonnegative("reward_sd", self.reward_sd)
        check_positive("temperature", self.temperature)

    def value(self, logits: ArrayLike) -> Number:
        """J(π) = ⟨μ, π⟩ + τH(π), per leading index."""
        log_pi = self._log_policy(logits)
        return _sum(np.exp(log_pi) * (np.array(self.means) - self.temperature * log_pi))

    def optimum(self) -> tuple[Array, float]:
        """The best policy softmax(μ/τ) and its value J* = τ·log Σ exp(μ/τ)."""
        scaled = np.array(self.means) / self.temperature
        top = scaled.max()
        best = self.temperature * (top + np.log(np.exp(scaled - top).sum()))
        return policy(scaled), float(best)

    def gap(self, logits: ArrayLike) -> Number:
        """J* − J(π) = τ·KL(π ‖ π*), per leading index."""
        self._log_policy(logits)
        return self.temperature * kl(logits, np.array(self.means) / self.temperature)

    def gradient(self, logits: ArrayLike) -> Array:
        """∂J/∂logits = π ⊙ (μ − τ log π − J).

        The natural gradient F⁺∂J is μ − τ·logits, up to a constant shift.
        """
        log_pi = self._log_policy(logits)
        worth = np.array(self.means) - self.temperature * log_pi
        pi = np.exp(log_pi)
        return pi * (worth - (pi * worth).sum(-1, keepdims=True))

    def gradient_noise(
        self,
        logits: ArrayLike,
        baseline: Number | None = None,
        *,
        sampled_entropy: bool = False,
    ) -> Array:
        """Covariance of one sample's gradient estimate.

        The estimate is ĝ = (w − baseline)·(e_i − π), with arm i drawn from π and e_i
        its unit vector; w is the reward, to which the exact gradient of τH(π) is added
        without noise, or reward − τ log π_i if the entropy is sampled too. With
        m_i = E[w | i] − baseline and second moments c_i = π_i(m_i² + reward_sd²),

            Cov = diag(c) − cπᵀ − πcᵀ + (Σc)ππᵀ − ḡḡᵀ,   ḡ = π ⊙ (m − ⟨π, m⟩)

        Args:
            logits: shape [..., arm].
            baseline: subtracted from w; the policy's mean of w if not given.
            sampled_entropy: whether w includes −τ log π_i.

        Returns:
            Shape [..., arm, arm]; the rows sum to 0.
        """
        log_pi = self._log_policy(logits)
        pi = np.exp(log_pi)
        worth = np.array(self.means) - self.temperature * log_pi * sampled_entropy
        mean = (pi * worth).sum(-1, keepdims=True)
        worth = worth - (mean if baseline is None else baseline)
        spread = pi * (worth**2 + self.reward_sd**2)
        drift = pi * (worth - (pi * worth).sum(-1, keepdims=True))
        cross = _outer(spread, pi)
        total = spread.sum(-1)[..., None, None]
        square = total * _outer(pi, pi) - _outer(drift, drift)
        return _diagonal(spread) - cross - np.swapaxes(cross, -1, -2) + square

    def _log_policy(self, logits: ArrayLike) -> Array:
        log_pi = _log_softmax(logits)
        if log_pi.shape[-1] != len(self.means):
            arms = len(self.means)
            msg = f"logits have {log_pi.shape[-1]} arms; this bandit has {arms}."
            raise ValueError(msg)
        return log_pi


def standard() -> Bandit:
    """The ten-armed instance that the results of this project refer to."""
    # default_rng(0).normal(size=10) to six decimals, written out for other languages.
    means = (
        0.12573, -0.132105, 0.640423, 0.1049, -0.535669,
        0.361595, 1.304, 0.947081, -0.703735, -1.265421,
    )  # fmt: skip
    return Bandit(means=means, reward_sd=1.0, temperature=0.2)


def policy(logits: ArrayLike) -> Array:
    """π = softmax(logits)."""
    return np.exp(_log_softmax(logits))


def entropy(logits: ArrayLike) -> Number:
    """H(π) = −Σ π log π, in nats, per leading index."""
    log_pi = _log_softmax(logits)
    return -_sum(np.exp(log_pi) * log_pi)


def fisher(logits: ArrayLike) -> Array:
    """Fisher information of the logits, diag(π) − ππᵀ; singular along (1, …, 1)."""
    pi = policy(logits)
    return _diagonal(pi) - _outer(pi, pi)


def kl(logits_1: ArrayLike, logits_2: ArrayLike) -> Number:
    """KL(π₁ ‖ π₂) in nats, per leading index; the leading axes broadcast."""
    first, second = _log_softmax(logits_1), _log_softmax(logits_2)
    if first.shape[-1] != second.shape[-1]:
        arms = f"{first.shape[-1]} and {second.shape[-1]}"
        msg = f"logits_1 and logits_2 have {arms} arms; they must have the same number."
        raise ValueError(msg)
    return _sum(np.exp(first) * (first - second))


def _log_softmax(logits: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(logits, dtype=np.float64))
    check_finite("logits", values)
    values = values - values.max(-1, keepdims=True)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def _sum(values: Array) -> Number:
    return values.sum(-1)[()]


def _outer(left: Array, right: Array) -> Array:
    return left[..., :, None] * right[..., None, :]


def _diagonal(values: Array) -> Array:
    return values[..., None] * np.eye(values.shape[-1])
