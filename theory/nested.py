"""The stationary state of the whole nested loop, for an optimiser that is linear.

Inner loop on reshuffled minibatches, averaged proximal policy or none, outer learning
rate and momentum: exact, from the closed forms and one 2×2 or 4×4 Lyapunov equation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from theory.knobs import Cells
from theory.outer.damped import damped
from theory.outer.inner import effective_step, ewma_gradient
from theory.outer.inner_ewma import ewma_inner
from theory.outer.inner_floor import minibatch_noise
from theory.outer.lyapunov import stationary_covariance
from theory.outer.moments import LinearMap, Rows
from theory.outer.plain import sgd

Array = NDArray[np.float64]

LARGE = 1e100


class Nested(NamedTuple):
    """Second moments of a stationary state, shape [cell]; inf where there is none.

    Attributes:
        acting: E x² of the policy at the end of an update.
        reference: E r² of the proximal policy then.
        step: E (x' − x)².
        shared_acting: E x² from the noise of whole batches alone.
        shared_reference: E r² likewise.
        effective: e, the step of the plain loop with the same Σ_t E r_t from x₀ = r₀.
    """

    acting: Array
    reference: Array
    step: Array
    shared_acting: Array
    shared_reference: Array
    effective: Array


def nested(given: Cells) -> Nested:
    """The stationary state of PPO, or with a `com` of PPO-EWMA.

    Args:
        given: knobs and task.

    Returns:
        The state.
    """
    with np.errstate(all="ignore"):
        return _reset(given) if given.com is None else _averaged(given, given.com)


def _reset(given: Cells) -> Nested:
    """PPO: the inner loop is one outer step, its minibatches multiply the noise."""
    eta, alpha, h = given.eta, given.alpha, given.h
    step = effective_step(eta, alpha, h, given.gradient_steps)
    one = LinearMap(((1 - alpha * (h + 1 / eta),),), (-alpha,))
    (scatter,) = minibatch_noise(one, given.minibatches, given.epochs).scatter
    excess = 1 + given.minibatches * scatter / step**2
    sound = np.isfinite(excess) & (step > 0)
    loop = damped(sgd(np.where(sound, step, 3 / h), h), given.sigma, given.mu)
    found = loop.stationary(given.noise, given.n)
    shared = np.where(sound, found.acting_variance, np.inf)
    acting = np.where(sound, shared * excess, np.inf)
    moved = np.where(sound, found.step_second_moment * excess, np.inf)
    effective = given.sigma * step / (1 - given.mu)
    return Nested(acting, acting, moved, shared, shared, effective)


def _averaged(given: Cells, com: Array) -> Nested:
    """PPO-EWMA: the linear map of the inner loop, and its two kinds of noise."""
    eta, h, alpha, steps = given.eta, given.h, given.alpha, given.gradient_steps
    grown = ewma_inner(alpha, h, alpha / eta, com, steps).linear_map().matrix
    sound = np.all([np.abs(entry) < LARGE for row in grown for entry in row], axis=0)
    alpha = np.where(sound, alpha, 0.1 / (h + 1 / eta))
    one = ewma_gradient(alpha, h, alpha / eta, com)
    whole = ewma_inner(alpha, h, alpha / eta, com, steps)
    loop = damped(whole, given.sigma, given.mu)
    found = loop.stationary(given.noise, given.n)
    scatter = minibatch_noise(one.linear_map(), given.minibatches, given.epochs).scatter
    scale = given.sigma**2 * given.noise / given.m
    further = _driven(loop.linear_map().matrix, [scale * part for part in scatter])
    shared = found.acting_variance, found.reference_variance
    total = *shared, found.step_second_moment
    parts = (one + two for one, two in zip(total, further, strict=True))
    effective = given.sigma * _speed(whole.linear_map()) / (h * (1 - given.mu))
    moments = [np.where(sound, value, np.inf) for value in (*parts, *shared)]
    return Nested._make([*moments, effective])


def _speed(update: LinearMap) -> Array:
    """1/Σ_t r_t from x₀ = r₀ = 1, without noise."""
    (a, b), (c, d) = update.matrix
    return ((1 - a) * (1 - d) - b * c) / (1 - a + c)


def _driven(matrix: Rows, noise: list[Array]) -> tuple[Array, Array, Array]:
    """E x², E r², E (x'−x)² where (x, r) is driven by noise of moments xx, xr, rr."""
    xx, xr, rr = noise
    gain = ((1, 0), (0, 1), (0, 0), (0, 0))[: len(matrix)]
    P = stationary_covariance(matrix, gain, ((xx, xr), (xr, rr)))
    columns = [np.asarray(entry) for entry in matrix[0]]
    away = np.stack(np.broadcast_arrays(columns[0] - 1, *columns[1:]), axis=-1)
    step = np.einsum("...i,...ij,...j->...", away, P, away) + xx
    return P[..., 0, 0], P[..., 1, 1], np.where(np.isfinite(step), step, np.inf)
