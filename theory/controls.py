"""Negative controls: plateaus that the outer step does not make, and cannot mend.

Variants of the bandit and the linear system on which a learner stops below the optimum
although its steps are as small and its noise as low as one likes: it never sees the
reward (exploration), or its policies cannot express the best one (capacity). A law or a
diagnosis that blames the outer step for these gaps is wrong.

| name | episode | what is missing |
|---|---|---|
| `bandit-sparse` | 8 pulls of `bandit`; 40 more if all are the worst | exploration |
| `bandit-rank1` | two kinds of bandit that the policy cannot tell apart | capacity |
| `lqr-sparse` | of `lqr`; pays 1 per step where |x₁| ≥ 12, nothing else | exploration |
| `lqr-rank1` | of `lqr` through one input, u = v·(.6, .8): rank 1 | capacity |

`levels` gives, for each, the value untrained, where a learner stops, and the optimum.
All derived here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from theory import bandit, lqr
from theory.arithmetic import Number
from theory.lqr import Lqr

Array = NDArray[np.float64]

PULLS, SECRET_ARM, JACKPOT = 8, 9, 40.0
THRESHOLD = 12.0
DIRECTION = (0.6, 0.8)  # of unit length
_STEPS = 600  # .95^600 < 1e-13


class Levels(NamedTuple):
    """Values of a control, in units of return.

    Attributes:
        untrained: of the policy of zero logits or zero gain.
        reachable: where a learner with a vanishing outer step ends.
        optimum: of all policies that know the state; a supremum for `lqr-sparse`.
    """

    untrained: float
    reachable: float
    optimum: float


def levels(name: str) -> Levels:
    """What is known of the control of this name.

    Raises:
        ValueError: there is no such control.
    """
    known = {
        "bandit-sparse": _sparse_bandit_levels,
        "bandit-rank1": _rank_one_bandit_levels,
        "lqr-sparse": _sparse_lqr_levels,
        "lqr-rank1": _rank_one_lqr_levels,
    }
    if name not in known:
        msg = f"name is {name!r}; there are the controls {', '.join(known)}."
        raise ValueError(msg)
    return known[name]()


def sparse_bandit_value(logits: ArrayLike) -> Number:
    """J = 8·(⟨μ,π⟩ + τH(π)) + 40·π₉⁸, per leading index [..., arm]."""
    secret = bandit.policy(logits)[..., SECRET_ARM]
    return PULLS * bandit.standard().value(logits) + JACKPOT * secret**PULLS


def sparse_bandit_maxima() -> tuple[Array, Array]:
    """Policies of the two local maxima of `bandit-sparse`: the trap, and the optimum.

    With s the secret arm and p = π_s, stationary policies are those with logits
    (μ + 40 p⁷ e_s)/τ, so that p = sigmoid((μ_s + 40 p⁷)/τ − log Σ_{i≠s} e^{μ_i/τ}).
    That is an increasing map: iterated from 0 and from 1 it ends at its least and its
    greatest fixed point. Along the best policies of given p, J'' has the sign of
    280 p⁷(1 − p) − τ, which changes at most twice: there are no more than two maxima.

    Returns:
        Two policies, each of shape [arm].
    """
    task = bandit.standard()
    scaled = np.array(task.means) / task.temperature
    others = special.logsumexp(np.delete(scaled, SECRET_ARM))

    def settled(secret: float) -> Array:
        for _ in range(1000):
            paid = JACKPOT * secret ** (PULLS - 1) / task.temperature
            secret = float(special.expit(scaled[SECRET_ARM] + paid - others))
        logits = scaled.copy()
        logits[SECRET_ARM] += JACKPOT * secret ** (PULLS - 1) / task.temperature
        return bandit.policy(logits)

    return settled(0.0), settled(1.0)


def rank_one_bandit() -> bandit.Bandit:
    """What `bandit-rank1` is to its policies: the bandit of the mean means.

    Either kind, μ or μ in reverse order, comes with probability ½ and is not seen:
    the logits of both are one feature (1) times one row of weights, a matrix of rank 1.
    So J = ½ Σ_kind ⟨μ_kind, π⟩ + τH(π), whose optimum is the bandit's with mean means.
    """
    task = bandit.standard()
    means = np.array(task.means)
    return bandit.Bandit(
        means=tuple((means + means[::-1]) / 2),
        reward_sd=task.reward_sd,
        temperature=task.temperature,
    )


def sparse_lqr_value(gain: ArrayLike) -> float:
    """J = Σ_t γᵗ P(|x_t,1| ≥ 12) of one gain [action, state], also an unstable one.

    x_t,1 is normal with mean 0 and variance s_t² = |v_t|² + Σ_{j<t} (σ_u²|Bᵀv_j|² +
    σ_x²|v_j|²), v_j = (Cᵀ)ʲe₁, C = A − BK. With K = −κBᵀe₁e₁ᵀ and κ → ∞ all s_t with
    t ≥ 1 grow without bound: the supremum is P(|x_0,1| ≥ 12) + γ/(1−γ).
    """
    system = lqr.standard()
    closed = system.A - system.B @ np.asarray(gain, dtype=np.float64)
    direction, entered, total = np.eye(len(closed))[0], 0.0, 0.0
    for step in range(_STEPS):
        own = direction @ direction
        far = special.erfc(THRESHOLD / np.sqrt(2.0 * (own + entered)))
        total += system.discount**step * far
        acted = system.B.T @ direction
        entered += system.action_sd**2 * (acted @ acted) + system.state_sd**2 * own
        direction = np.clip(closed.T @ direction, -1e100, 1e100)
    return float(total)


def rank_one_lqr() -> Lqr:
    """`lqr-rank1`: the standard system behind one input v, u = v·(.6, .8).

    K = (.6, .8)ᵀk has rank 1; costs of u are costs of v, since (.6, .8) has length 1.
    The optimum among such gains is that of a system with one input, by its Riccati
    equation.
    """
    system = lqr.standard()
    along = np.array(DIRECTION)[:, None]
    return Lqr(
        A=system.A,
        B=system.B @ along,
        Q=system.Q,
        R=along.T @ system.R @ along,
        state_sd=system.state_sd,
        action_sd=system.action_sd,
        termination=system.termination,
    )


def _sparse_bandit_levels() -> Levels:
    trap, best = (float(sparse_bandit_value(np.log(p))) for p in sparse_bandit_maxima())
    return Levels(float(sparse_bandit_value(np.zeros(10))), trap, best)


def _rank_one_bandit_levels() -> Levels:
    """The optimum knows the kind, and both kinds have the same best value."""
    task = rank_one_bandit()
    _, reachable = task.optimum()
    _, best = bandit.standard().optimum()
    return Levels(float(task.value(np.zeros(10))), reachable, best)


def _sparse_lqr_levels() -> Levels:
    system = lqr.standard()
    untrained = sparse_lqr_value(np.zeros(system.B.shape[::-1]))
    start = float(special.erfc(THRESHOLD / np.sqrt(2.0)))
    best = start + float(system.discount / system.termination)
    return Levels(untrained, untrained, best)


def _rank_one_lqr_levels() -> Levels:
    """The optimum has both inputs, and the noise of the one, so that they compare."""
    task, system = rank_one_lqr(), lqr.standard()
    gain, _ = system.optimum()
    value = system.value_matrix(gain)
    entering = system.action_sd**2 * np.outer(DIRECTION, DIRECTION)
    acting = np.trace(
        entering @ (system.R + system.discount * system.B.T @ value @ system.B)
    )
    drifting = system.discount * system.state_sd**2 * np.trace(value)
    best = -np.trace(value) - (acting + drifting) / system.termination
    _, reachable = task.optimum()
    return Levels(float(task.value(np.zeros((1, 4)))), reachable, float(best))
