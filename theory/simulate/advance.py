"""The compiled part of the step-by-step simulator: lanes that advance together.

A lane is one run of one knob setting. Lanes are the last axis of every array, so that
one instruction advances several; each is a function of its own key and knobs alone.
JAX is imported inside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from theory.simulate.rules import Rule, State
from theory.simulate.streams import Words, normal_pair, threefry

LANES_AT_ONCE = 2**15  # what fits a cache; any number gives the same result
PAIRS_AT_ONCE = 2**11  # summed in the compiled precision before they join a double

Task = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Lanes:
    """Knobs and keys of lanes.

    Attributes:
        knobs: by name, shape [lane].
        settings: number of the lane's knob setting, uint32 [lane].
        runs: number of the lane's run, uint32 [lane].
        seed: of all.
    """

    knobs: dict[str, np.ndarray]
    settings: np.ndarray
    runs: np.ndarray
    seed: int

    @classmethod
    def of(cls, settings: dict[str, np.ndarray], runs: int, seed: int) -> "Lanes":
        """All runs of all settings, the runs of a setting side by side."""
        count = len(settings["samples_per_update"])
        setting, run = np.indices((count, runs), dtype=np.uint32).reshape(2, -1)
        knobs = {name: value[setting] for name, value in settings.items()}
        return cls(knobs, setting, run, seed)

    def parts(self) -> Iterator["Lanes"]:
        """In equal parts of at most `LANES_AT_ONCE`, up to one."""
        count = -(-len(self.runs) // LANES_AT_ONCE)
        for part in np.array_split(np.arange(len(self.runs)), count):
            knobs = {name: value[part] for name, value in self.knobs.items()}
            yield Lanes(knobs, self.settings[part], self.runs[part], self.seed)


def run(
    rule: Rule, task: Task, lanes: Lanes, start: np.ndarray, when: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lanes from the start to the last checkpoint.

    Args:
        rule: how a state moves.
        task: curvatures and noise variances, shape [coordinate], and noise slope.
        lanes: what to run.
        start: x, shape [coordinate].
        when: updates before each checkpoint, shape [checkpoint].

    Returns:
        x and mean x², shape [lane, checkpoint, coordinate]; mean KL, shape
        [lane, checkpoint].
    """
    begin, two, one = compiled(rule)
    words = [
        np.array([lanes.seed >> shift & 0xFFFFFFFF], np.uint32) for shift in (32, 0)
    ]
    key = threefry((words[0], words[1]), (lanes.settings, lanes.runs))
    state = begin(np.repeat(start[:, None], len(lanes.runs), axis=1))
    recorded = []
    for first, last in zip([0, *when[:-1]], when, strict=True):
        square, kl = np.zeros((len(start), len(lanes.runs))), np.zeros(len(lanes.runs))
        for where in _stretches(int(first), int(last)):
            program = two if len(where) == 2 else one
            state, sums = program(state, lanes.knobs, key, task, *where)
            square += np.asarray(sums[0], np.float64)
            kl += np.asarray(sums[1], np.float64)
        updates = max(int(last - first), 1)
        x = np.asarray(state[0], np.float64)
        recorded.append((x.T, square.T / updates, kl / updates))
    policy, squares, kls = (
        np.stack(part, axis=1) for part in zip(*recorded, strict=True)
    )
    return policy, squares, kls


def _stretches(first: int, last: int) -> Iterator[tuple[np.integer, ...]]:
    """Cut [first, last) into (first pair, how many pairs) and (single update,)."""
    while first < last:
        if first % 2 or last - first == 1:
            yield (np.uint32(first),)
            first += 1
        else:
            pairs = min((last - first) // 2, PAIRS_AT_ONCE)
            yield np.uint32(first // 2), np.int32(pairs)
            first += 2 * pairs


@lru_cache(maxsize=32)
def compiled(rule: Rule) -> tuple[Any, Any, Any]:
    """Of a rule, for many lanes: the start, pairs of updates, and one update.

    Returns:
        `begin(x)`; `two(state, knobs, key, task, pair, count)`, which makes the updates
        2·pair, …, 2·(pair + count) − 1; `one(state, knobs, key, task, index)`. The last
        two return the state and the sums of x² and KL. All are jitted.
    """
    import jax

    def begin(x: Any) -> State:
        return tuple(rule.start(x))

    def two(
        state: State, knobs: Any, key: Words, task: Any, pair: Any, count: Any
    ) -> Any:
        def body(index: Any, carry: Any) -> Any:
            normals = _normals(carry[0][0], key, pair + jax.numpy.uint32(index))
            for half in normals:
                carry = update(rule, carry, knobs, task, half)
            return carry

        return jax.lax.fori_loop(0, count, body, (state, _nothing(state[0])))

    def one(state: State, knobs: Any, key: Words, task: Any, index: Any) -> Any:
        first, second = _normals(state[0], key, index // np.uint32(2))
        half = jax.numpy.where(index % np.uint32(2) == 0, first, second)
        return update(rule, (state, _nothing(state[0])), knobs, task, half)

    def over_lanes(function: Any, axes: tuple[int | None, ...]) -> Any:
        return jax.jit(jax.vmap(function, in_axes=axes, out_axes=-1))

    shared = (-1, -1, -1, None, None)
    return (
        over_lanes(begin, (-1,)),
        over_lanes(two, (*shared, None)),
        over_lanes(one, shared),
    )


def _nothing(x: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    return jnp.zeros_like(x), jnp.zeros_like(x[0])


def _normals(x: Any, key: Words, pair: Any) -> tuple[Any, Any]:
    """The two normals of a pair of updates, for every coordinate."""
    coordinates = np.arange(len(x), dtype=np.uint32)
    return normal_pair(threefry(key, (coordinates, pair)))


def update(rule: Rule, carry: Any, knobs: Any, task: Any, normals: Any) -> Any:
    """One update of one lane: noise, gradient, rule, and what is summed."""
    import jax.numpy as jnp

    state, (square, kl) = carry
    curvatures, variances, slope = task
    x = state[0]
    spread = jnp.sqrt((variances + slope * x * x) / knobs["samples_per_update"])
    gradient = curvatures * x + spread * normals.astype(x.dtype)
    state = rule.step(state, gradient, knobs)
    moved = state[0] - x
    return state, (square + state[0] ** 2, kl + jnp.sum(moved * moved) / 2)
