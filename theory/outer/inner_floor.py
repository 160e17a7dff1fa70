"""The noise of minibatches: what an inner loop adds to the noise of its batch.

A batch of n samples is passed over E times in minibatches of m, reshuffled for every
pass, K = E·n/m gradient steps in all. If the loop forgets nothing within a pass, each
sample weighs the same and the batch's noise s² = σ²/n is all there is, that of
`effective_step`. If it forgets, w = α(h + 1/η) per gradient step, the last samples
weigh more, and the update carries noise that no larger batch averages away.
"""

from typing import NamedTuple

import numpy as np

from theory.arithmetic import (
    Number,
    align,
    check_nonnegative,
    check_positive,
    decided,
    where,
    whole_number,
)
from theory.outer.inner import effective_step
from theory.outer.moments import AffineMap, LinearMap, Row, moment_map


def inner_floor(
    learning_rate: Number,
    curvature: Number,
    outer_step: Number,
    noise_variance: Number,
    minibatch_size: Number,
) -> Number:
    """E x² of PPO's acting policy as n → ∞ with the inner loop unchanged.

    The inner loop then forgets its start up to x/(1+a) and fluctuates about it with
    the variance T = ασ²η/(m(1+a)(2−w)) of `sgd` on the penalised surrogate, so that
    V = V/(1+a)² + T (derived here):

        V = ασ²(1+a)/(m·h(2+a)(2−w)),   a = ηh, w = α(h + 1/η)

    ≈ ασ²/(4mh) for small a and w: set by learning rate and minibatch size alone, not
    by n, E or η. The exact level at finite n is that of `sgd` with `effective_step`,
    times `minibatch_excess`; this is its limit once a pass of n/m steps is longer than
    the memory 1/w, and a lower bound of it for w ≤ 1.

    In this model, more samples per update at fixed α and m lower the level from that of
    E passes the penalty does not bind, αEσ²/(2mh), by at most 2E. PPO-EWMA's acting
    policy, whose anchor does not follow the fluctuation, can come down to T.

    Args:
        learning_rate: α > 0, with w < 2.
        curvature: h > 0.
        outer_step: η > 0, the inverse weight of the penalty; inf is no penalty, where
            the formula is `sgd` with the step α and batch m.
        noise_variance: σ² ≥ 0, of one sample's gradient.
        minibatch_size: m > 0.

    Returns:
        V; exact for exact numbers, inf in cells with w ≥ 2.

    Raises:
        ValueError: if an argument is out of range, or w ≥ 2 for scalars.
    """
    check_positive("learning_rate", learning_rate)
    check_positive("curvature", curvature)
    check_nonnegative("noise_variance", noise_variance)
    check_positive("minibatch_size", minibatch_size)
    weight = _weight(outer_step)
    alpha, h, weight, noise, m = align(
        learning_rate, curvature, weight, noise_variance, minibatch_size
    )
    room = 2 - alpha * (h + weight)
    if not isinstance(room, np.ndarray) and decided(room > 0) is False:
        msg = (
            f"learning_rate is {learning_rate}; it must be below {2 / (h + weight)}, "
            "where the inner loop is stable."
        )
        raise ValueError(msg)
    # (1+a)/(2+a) = (1/η + h)/(2/η + h) holds for η = ∞ too.
    share = (weight + h) / (2 * weight + h)
    return where(room > 0, lambda: alpha * noise * share / (m * h * room), np.inf)


def minibatch_excess(
    learning_rate: Number,
    curvature: Number,
    outer_step: Number,
    minibatches: Number,
    update_epochs: Number,
) -> Number:
    """φ ≥ 1, by which minibatches multiply PPO's level over that of its batch's noise.

    With M minibatches per pass, w = α(h + 1/η) and ρ = (1−w)^M, the mean over
    reshufflings of the update's noise is φ·η_out²s² (derived here; exact):

        φ = 1 + (Mw/(2−w) − (1−ρ)/(1+ρ))·(1+ρ^E)/(1−ρ^E)

    φ − 1 ≈ (Mw)²/(12E) where the memory 1/w is longer than a pass, and → Mw/(2−w),
    which is ∝ n and makes `inner_floor`, where it is shorter. Holds for transitions
    dealt anew in each pass as for whole minibatches dealt anew. (Passes in one fixed
    order would give Mw(1+ρ)/((2−w)(1−ρ)), the same for E = 1 and more otherwise.)

    Args:
        learning_rate: α > 0.
        curvature: h > 0.
        outer_step: η > 0, the inverse weight of the penalty; inf is no penalty.
        minibatches: M = n/m ≥ 1 per pass, whole.
        update_epochs: E ≥ 1 passes, whole.

    Returns:
        φ; exact for exact numbers, inf in cells with w ≥ 2 and M > 1.

    Raises:
        ValueError: if an argument is out of range, or w ≥ 2 and M > 1 for scalars.
    """
    check_positive("learning_rate", learning_rate)
    check_positive("curvature", curvature)
    weight = _weight(outer_step)
    M, E = _counts(minibatches, update_epochs)
    alpha, h, weight, M, E = align(learning_rate, curvature, weight, M, E)
    w = alpha * (h + weight)
    possible = (w < 2) | (M == 1)
    if not isinstance(possible, np.ndarray) and decided(possible) is False:
        msg = f"learning_rate is {learning_rate}; it must be below {2 / (h + weight)}."
        raise ValueError(msg)
    # 1 − (1−w)^K without cancellation, for one pass and for all.
    one, whole = (
        w * effective_step(outer_step, alpha, h, passes * M) / alpha
        for passes in (1, E)
    )

    def excess() -> Number:
        return (M * w / (2 - w) - one / (2 - one)) * (2 - whole) / whole

    return where(possible, lambda: 1 + where(M > 1, excess, 0 * w), np.inf)


class Noise(NamedTuple):
    """What one update's noise is made of, for a loop with state (x, r).

    Attributes:
        loading: B, the state's response to the noise of the batch as a whole.
        scatter: by `pairs`, the further covariance per unit variance of a minibatch.
    """

    loading: Row
    scatter: Row


def minibatch_noise(
    gradient_step: LinearMap, minibatches: Number, update_epochs: Number
) -> Noise:
    """The noise of one update of a loop whose gradient step is z' = Mz + gξ.

    A sample met at gradient step k of K moves the state by b_k = M^(K−1−k)g. With the
    mean b̄_e over a pass, reshuffled passes give the update's noise the covariance

        (σ²/n)·BBᵀ + (σ²/m)·Σ_e Σ_k∈e (b_k − b̄_e)(b_k − b̄_e)ᵀ,   B = Σ_k b_k

    : the batch's shared noise, and the scatter of the weights within a pass (derived
    here; exact).

    Args:
        gradient_step: M and g, of exact numbers, floats or arrays.
        minibatches: n/m ≥ 1 per pass, whole.
        update_epochs: E ≥ 1 passes, whole.

    Returns:
        B and the scatter; exact for exact numbers.

    Raises:
        ValueError: if a count is not whole or 0.
    """
    M, E = _counts(minibatches, update_epochs)
    one_pass = AffineMap(*gradient_step).repeated(M)
    every = moment_map(*gradient_step, 1).repeated(M * E).offset
    means = moment_map(*one_pass, 1).repeated(E).offset
    scatter = tuple(total - part / M for total, part in zip(every, means, strict=True))
    return Noise(one_pass.repeated(E).offset, scatter)


def _counts(minibatches: Number, update_epochs: Number) -> tuple[Number, Number]:
    counts = []
    for name, value in (
        ("minibatches", minibatches),
        ("update_epochs", update_epochs),
    ):
        count = whole_number(name, value)
        if np.any(count == 0):
            msg = f"{name} is {value}; it must be at least 1."
            raise ValueError(msg)
        counts.append(count)
    return counts[0], counts[1]


def _weight(outer_step: Number) -> Number:
    """1/η, 0 for no penalty."""
    (eta,) = align(outer_step)
    finite = eta != np.inf
    check_positive("outer_step", where(finite, lambda: eta, 1))
    return where(finite, lambda: 1 / eta, 0)
