"""`theory.bandit` as the task of an outer loop: sampled arms, or every arm tried.

The parameters are the logits, up to a common shift. At the optimum every arm is worth
the same, so that a sampled advantage is reward noise alone and Σ = sd²·F exactly: the
natural constant of gap ∝ DDR^(−½) is then sd·√((arms − 1)/8).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from theory import bandit
from theory.arithmetic import Number
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
class SampledArms(Task):
    """Arms drawn from the policy; w = reward − τ log π is what an arm turned out worth.

        A = w − J(π),   ĝ = mean A·(e_i − π),   F⁺ĝ = ĝ/π

    The critic is the exact J and the entropy is sampled with the reward. An arm of
    which n·π is not large is seldom seen, and then moves its logit far: natural steps
    need n·min π ≫ 1 for a plateau to be near the law.

    Attributes:
        bandit: the task.
        initial: logits before the first update, shape [arm]; uniform if not given.
    """

    bandit: bandit.Bandit
    initial: ArrayLike | None = None

    @property
    def start(self) -> Array:
        """`initial`, or the uniform policy."""
        return starting_point(self.initial, np.zeros(len(self.bandit.means)))

    @property
    def optimum(self) -> Array:
        """μ/τ, less its mean."""
        logits = np.array(self.bandit.means) / self.bandit.temperature
        return logits - logits.mean()

    @property
    def best_value(self) -> float:
        """J*."""
        return self.bandit.optimum()[1]

    @property
    def episode_length(self) -> float:
        """One."""
        return 1.0

    def gap(self, parameters: Array) -> Array:
        """J* − J, shape [seed]."""
        return np.asarray(self.bandit.gap(parameters))

    def kl(self, before: Array, after: Array) -> Array:
        """KL(before ‖ after), nats, shape [seed]."""
        return np.asarray(bandit.kl(before, after))

    def gradient(self, parameters: Array) -> Array:
        """∂J/∂logits, shape [seed, arm]."""
        return self.bandit.gradient(parameters)

    def natural(self, parameters: Array, gradient: Array) -> Array:
        """F⁺·gradient = gradient/π for a gradient that sums to 0, up to a shift."""
        direction = gradient / bandit.policy(parameters)
        return direction - direction.mean(-1, keepdims=True)

    def proximal(
        self, parameters: Array, anchor: Array, gradient: Array, outer_step: Number
    ) -> Array:
        """The best π for ⟨π, ŵ⟩ + τH(π) − KL(π ‖ anchor)/η.

        With ŵ = τ·logits + F⁺ĝ its logits are (anchor + ηŵ)/(1 + ητ): variant B.
        """
        tau = self.bandit.temperature
        worth = tau * parameters + self.natural(parameters, gradient)
        return (anchor + outer_step * worth) / (1 + outer_step * tau)

    def estimate(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Array, Any]:
        """ĝ of n draws, from how often each arm came up and the sum of its rewards."""
        if is_exact(samples):
            return self.gradient(parameters), world
        number = count_of(samples)
        pi = bandit.policy(parameters)
        counts = generator.multinomial(number, pi)
        noise = np.sqrt(counts) * generator.normal(size=pi.shape)
        gained = counts * self._advantage(parameters)
        gained = (gained + float(self.bandit.reward_sd) * noise) / number
        return gained - pi * gained.sum(-1, keepdims=True), world

    def sample(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Batch, Any]:
        """Draw n arms and their advantages, in random order."""
        number, seeds = count_of(samples), len(parameters)
        pi = bandit.policy(parameters)
        drawn = generator.multinomial(number, pi)
        arms = np.repeat(np.tile(np.arange(pi.shape[-1]), seeds), drawn.ravel())
        arms = generator.permuted(arms.reshape(seeds, number), axis=1)
        noise = float(self.bandit.reward_sd) * generator.normal(size=arms.shape)
        worth = np.take_along_axis(self._advantage(parameters), arms, axis=1)
        batch = Batch(
            states=np.empty((seeds, number, 0)),
            actions=arms,
            advantages=worth + noise,
            log_policy=np.take_along_axis(np.log(pi), arms, axis=1),
            units=np.arange(number),
        )
        return batch, world

    def log_policy(self, parameters: Array, batch: Batch) -> Array:
        """The log π of the arms drawn, shape [seed, sample]."""
        log_pi = np.log(bandit.policy(parameters))
        return np.take_along_axis(log_pi, batch.actions, axis=1)

    def scores(self, parameters: Array, batch: Batch) -> Array:
        """e_i − π, shape [seed, sample, arm]."""
        pi = bandit.policy(parameters)
        return np.eye(pi.shape[-1])[batch.actions] - pi[:, None, :]

    def weighted_score(self, parameters: Array, batch: Batch, weights: Array) -> Array:
        """Mean over the samples of weight·(e_i − π), shape [seed, arm]."""
        pi = bandit.policy(parameters)
        place = np.arange(len(pi))[:, None] * pi.shape[-1] + batch.actions
        sums = np.bincount(place.ravel(), weights.ravel(), minlength=pi.size)
        sums = sums.reshape(pi.shape) / weights.shape[1]
        return sums - pi * sums.sum(-1, keepdims=True)

    def _advantage(self, parameters: Array) -> Array:
        """E[A | arm] = μ − τ log π − J, shape [seed, arm]."""
        pi = bandit.policy(parameters)
        worth = np.array(self.bandit.means) - self.bandit.temperature * np.log(pi)
        return worth - (pi * worth).sum(-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class EveryArm(SampledArms):
    """Every sample shows a reward of every arm: μ̂ = μ + ξ, ξ ~ N(0, sd²/n) per arm.

        ĝ = F(μ̂ − τ·logits),   F⁺ĝ = μ̂ − τ·logits

    Natural steps in the logits are then exactly `outer.sgd` with curvature τ and noise
    variance sd², and proximal steps exactly `outer.ewma_proximal`; with V the variance
    of a logit the gap of a plateau is ½τ·tr(F*)·V to leading order, tr F* = 1 − |π*|².
    """

    def estimate(
        self, parameters: Array, samples: Number, world: Any, generator: Generator
    ) -> tuple[Array, Any]:
        """F(μ̂ − τ·logits)."""
        pi = bandit.policy(parameters)
        worth = self._advantage(parameters)
        if not is_exact(samples):
            spread = float(self.bandit.reward_sd) / np.sqrt(count_of(samples))
            worth = worth + spread * generator.normal(size=pi.shape)
        return pi * (worth - (pi * worth).sum(-1, keepdims=True)), world
