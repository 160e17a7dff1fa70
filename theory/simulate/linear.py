"""Linear loops, exact in distribution, jumping from checkpoint to checkpoint.

A linear loop with Gaussian noise stays Gaussian, so the state after k more updates can
be drawn at once, given the state before: 10¹² transitions cost no more than 10³. The
joint law over all checkpoints is that of the step-by-step loop.
"""

from dataclasses import dataclass

import numpy as np

from theory.arithmetic import (
    Number,
    check_finite,
    check_nonnegative,
    check_positive,
    whole_number,
)
from theory.outer.loop import Loop
from theory.outer.plain import Multiplicative
from theory.simulate.checkpoints import positive_count, recorded_updates
from theory.simulate.jumps import Jump, one_update, transposed

NUMBERS_AT_ONCE = 2**18  # what fits a cache; any number gives the same result


@dataclass(frozen=True)
class LinearPaths:
    """Simulated runs of a linear loop, at checkpoints.

    Attributes:
        updates: updates before each checkpoint, shape [*knob, checkpoint].
        samples_per_update: n, shape [*knob].
        states: the acting policy x and the reference r (for loops without one: x again,
            or for heavy ball the previous x), shape [*knob, seed, checkpoint, 2];
            inf where an unstable loop overflowed.
        expected_kl: cumulative KL Σ ½(x'−x)² up to each checkpoint, every stretch
            between two checkpoints replaced by its expectation given the state at its
            start; shape [*knob, seed, checkpoint].
    """

    updates: np.ndarray
    samples_per_update: np.ndarray
    states: np.ndarray
    expected_kl: np.ndarray

    @property
    def acting(self) -> np.ndarray:
        """x, shape [*knob, seed, checkpoint]."""
        return self.states[..., 0]

    @property
    def reference(self) -> np.ndarray:
        """r, shape [*knob, seed, checkpoint]."""
        return self.states[..., 1]

    @property
    def transitions(self) -> np.ndarray:
        """Updates times n, shape [*knob, checkpoint]; int64, exact, for whole n."""
        n = self.samples_per_update[..., None]
        whole = bool(np.all(n == np.floor(n)))
        return self.updates * (n.astype(np.int64) if whole else n)


def simulate_linear(
    loop: Loop,
    updates: Number,
    noise_variance: Number,
    samples_per_update: Number,
    *,
    initial: Number = 0,
    seeds: int,
    seed: int = 0,
) -> LinearPaths:
    """Runs of a linear loop with Gaussian gradient noise, recorded at checkpoints.

        z(k + j) = M^j z(k) + N(0, S_j),   S_j = Σ_{i<j} M^i ggᵀ (M^i)ᵀ σ²/n

    Exact in distribution for any gap j, in a time that grows with log j (derived here).
    The KL is a sum of squares along the way, which no finite jump draws exactly: it is
    replaced by its expectation given the checkpoints before. Its mean is exact; its
    variance is too small, by the part that averages out over the updates.

        >>> from theory import outer
        >>> from theory.simulate import checkpoints, simulate_linear
        >>> loop = outer.ewma_proximal([0.1, 0.2], 1.0, com_updates=3)
        >>> when = checkpoints(1e12, 2048)
        >>> simulate_linear(loop, when, 4.0, 2048, initial=1, seeds=10).acting.shape
        (2, 10, 100)

    Args:
        loop: any loop of `theory.outer` but `multiplicative`; knobs are its arrays.
        updates: when to record, shape [*knob, checkpoint], not decreasing.
        noise_variance: σ², of one sample's gradient, shape [*knob].
        samples_per_update: n; an update's gradient has variance σ²/n; shape [*knob].
        initial: x at the start, shape [*knob]; the reference starts there too, and
            heavy ball at rest.
        seeds: how many runs per knob setting.
        seed: of the random numbers. The runs of a knob setting depend on this and on
            its place among the settings, not on how many settings and runs there are.

    Returns:
        The runs; [*knob] is the shape to which the loop and the arguments broadcast.

    Raises:
        ValueError: if an argument is invalid, or the loop's noise is not Gaussian.
    """
    if isinstance(loop, Multiplicative):
        msg = (
            "multiplicative noise is not Gaussian over many updates; "
            "`simulate_stepwise` runs it update by update."
        )
        raise ValueError(msg)
    check_nonnegative("noise_variance", noise_variance)
    check_positive("samples_per_update", samples_per_update)
    check_finite("initial", initial)
    seed = whole_number("seed", seed)
    runs, when = positive_count("seeds", seeds), recorded_updates(updates)
    stable, variance, samples, start, _ = np.broadcast_arrays(
        loop.stable,
        _cells("noise_variance", noise_variance),
        _cells("samples_per_update", samples_per_update),
        _cells("initial", initial),
        when[..., 0],
    )
    gaps = np.diff(when, prepend=0, axis=-1)
    gaps = np.broadcast_to(gaps, (*stable.shape, gaps.shape[-1]))
    with np.errstate(all="ignore"):
        jumps = one_update(loop, np.asarray(variance / samples)).repeated(gaps)
        jumps = Jump(*(part.reshape(-1, *part.shape[-3:]) for part in jumps))
        states, kl = _all_paths(jumps, start.ravel(), runs, seed)
    shape = (*stable.shape, runs, gaps.shape[-1])
    return LinearPaths(
        updates=np.broadcast_to(when, gaps.shape),
        samples_per_update=samples,
        states=states.reshape(*shape, 2),
        expected_kl=kl.reshape(shape),
    )


def _all_paths(
    jumps: Jump, start: np.ndarray, runs: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(x, r), [knob, seed, checkpoint, 2], and KL, a few knobs at a time."""
    knobs, length, size, _ = jumps.increment.shape
    states, kl = np.empty((knobs, runs, length, 2)), np.empty((knobs, runs, length))
    together = max(1, NUMBERS_AT_ONCE // (runs * length * size))
    for first in range(0, knobs, together):
        few = slice(first, first + together)
        some = Jump(*(part[few] for part in jumps))
        paths = _walk(some, start[few], _normals(some, runs, seed, first))
        states[few, ..., 0] = paths[..., 0] + paths[..., 1]
        states[few, ..., 1] = paths[..., 0]
        kl[few] = _expected_kl(some, start[few], paths)
    states[~np.isfinite(states)] = np.inf
    kl[~np.isfinite(kl)] = np.inf
    return states, kl


def _normals(jumps: Jump, runs: int, seed: int, first: int) -> np.ndarray:
    """Independent normals, [knob, seed, checkpoint, state]; a stream for each knob."""
    knobs, length, size, _ = jumps.increment.shape
    normals = np.empty((knobs, runs, length, size))
    for knob in range(knobs):
        stream = np.random.SeedSequence(seed, spawn_key=(first + knob,))
        np.random.default_rng(stream).standard_normal(out=normals[knob])
    return normals


def _walk(jumps: Jump, start: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """The states (r, x − r, …) at the checkpoints, written over the normals."""
    increments, roots = transposed(jumps.increment), transposed(_root(jumps.covariance))
    state = np.zeros_like(normals[:, :, 0])
    state[..., 0] = start[:, None]
    for index in range(normals.shape[2]):
        noise = normals[:, :, index] @ roots[:, index]
        state = state + state @ increments[:, index] + noise
        normals[:, :, index] = state
    return normals


def _expected_kl(jumps: Jump, start: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Cumulative KL, [knob, seed, checkpoint], given where each jump starts."""
    first = np.zeros_like(states[:, :, :1])
    first[..., 0] = start[:, None, None]
    before = np.concatenate([first, states[:, :, :-1]], axis=2)
    kl = np.zeros(states.shape[:-1]) + jumps.kl_offset[:, None, :, 0, 0]
    for i, j in np.ndindex(jumps.kl_form.shape[-2:]):
        kl += jumps.kl_form[:, None, :, i, j] * before[..., i] * before[..., j]
    return np.cumsum(kl, axis=-1)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Lower-triangular L with LLᵀ = S, for S positive semidefinite up to rounding.

    Args:
        covariance: S, shape [..., state, state]; singular ones are allowed.

    Returns:
        L of the same shape: Cholesky's, with columns of 0 where nothing is left.
    """
    left = np.array(covariance, dtype=np.float64)
    lower = np.zeros_like(left)
    for j in range(left.shape[-1]):
        pivot = np.sqrt(np.maximum(left[..., j, j], 0))[..., None]
        lower[..., j:, j] = np.where(pivot > 0, left[..., j:, j] / pivot, 0)
        left -= lower[..., :, j, None] * lower[..., None, :, j]
    return lower


def _cells(name: str, value: Number) -> np.ndarray:
    try:
        return np.asarray(value, dtype=np.float64)
    except TypeError:
        msg = f"{name} is {value}; a simulation needs numbers."
        raise ValueError(msg) from None
