"""Outer loops run update by update, all seeds side by side, with exact records."""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from theory.arithmetic import Number, check_finite
from theory.exact_loops.rules import Rule, State
from theory.exact_loops.tasks import Array, Generator, Task, count_of, is_exact
from theory.simulate.checkpoints import positive_count, recorded_updates


@dataclass(frozen=True, eq=False)
class ExactRuns:
    """What the runs of one rule did; a mean is over the updates since the last record.

    A run that leaves the region where the return is finite, or is not finite itself,
    stops there: its gap is inf from then on, and its policy stays what it was before.

    Attributes:
        updates: updates before each record, int64 [record].
        samples_per_update: n.
        best_value: J*.
        gap: J* − J of the acting policy at the record, shape [seed, record].
        mean_gap: its mean over the stretch, likewise.
        mean_anchor_gap: mean gap of the anchor, likewise.
        outer_kl: mean exact KL(policy before ‖ policy after an update), likewise.
        acting: policies at the record, shape [seed, record, parameter].
        anchors: anchors at the record, likewise.
    """

    updates: NDArray[np.int64]
    samples_per_update: Number
    best_value: float
    gap: Array
    mean_gap: Array
    mean_anchor_gap: Array
    outer_kl: Array
    acting: Array
    anchors: Array

    @property
    def value(self) -> Array:
        """J at the records, shape [seed, record]."""
        return self.best_value - self.gap

    @property
    def transitions(self) -> Array:
        """Transitions before each record, shape [record]."""
        return np.asarray(self.updates * self.samples_per_update, dtype=np.float64)

    @property
    def ddr(self) -> Array:
        """Transitions per nat over each stretch, shape [seed, record]."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.samples_per_update / self.outer_kl)

    def plateau(self) -> "Plateau":
        """Means over the second half of the updates.

        Raises:
            ValueError: if no stretch between records lies in the second half.
        """
        lengths = np.diff(self.updates, prepend=0)
        kept = (self.updates - lengths >= self.updates[-1] // 2) & (lengths > 0)
        if not kept.any():
            msg = (
                f"updates is {self.updates.tolist()}; "
                "the plateau needs a record half-way or later, besides the last."
            )
            raise ValueError(msg)
        weights = lengths[kept] / lengths[kept].sum()
        gap, anchor, kl = (
            values[:, kept] @ weights
            for values in (self.mean_gap, self.mean_anchor_gap, self.outer_kl)
        )
        return Plateau(gap, anchor, kl, self.samples_per_update)


@dataclass(frozen=True, eq=False)
class Plateau:
    """A plateau, seed by seed.

    Attributes:
        gap: mean gap of the acting policy, shape [seed].
        anchor_gap: mean gap of the anchor, likewise.
        outer_kl: mean KL per update, likewise.
        samples_per_update: n.
    """

    gap: Array
    anchor_gap: Array
    outer_kl: Array
    samples_per_update: Number

    @property
    def ddr(self) -> float:
        """Transitions per nat, of all seeds together."""
        return float(self.samples_per_update / self.outer_kl.mean())

    @property
    def constant(self) -> float:
        """gap·√DDR, of all seeds together."""
        return float(self.gap.mean() * np.sqrt(self.ddr))

    @property
    def constants(self) -> Array:
        """gap·√DDR seed by seed, to tell its scatter; shape [seed]."""
        with np.errstate(divide="ignore"):
            return self.gap * np.sqrt(self.samples_per_update / self.outer_kl)


def run_loop(
    task: Task,
    rule: Rule,
    samples_per_update: Number,
    updates: Number,
    seeds: int,
    generator: Generator,
    progress: Callable[[int], None] = lambda updates: None,
) -> ExactRuns:
    """Run a rule on a task, once per seed.

        task = EveryArm(bandit.standard())
        rule = natural_gradient(0.5)
        runs = run_loop(task, rule, 100, 2000, 64, np.random.default_rng(0))
        plateau = runs.plateau()
        plateau.gap.mean(), plateau.outer_kl.mean() / (2 * 0.5)  # nearly equal

    Args:
        task: `SampledArms`, `EveryArm`, `Rollouts` or one's own.
        rule: of `theory.exact_loops.rules` or `.clipped`, or one's own.
        samples_per_update: n, whole; inf for exact gradients, where the rule takes one
            gradient per update.
        updates: when to record, shape [record], increasing (`theory.simulate.
            checkpoints` spaces them evenly in the logarithm); a single number K records
            half-way and at K.
        seeds: how many runs.
        generator: of all random numbers; the runs share it, side by side.
        progress: called at every record with the number of updates made.

    Returns:
        The records.

    Raises:
        ValueError: if an argument is invalid or the start has no finite return.
    """
    when = _records(updates)
    lanes = _Lanes.begun(task, rule, samples_per_update, seeds)
    recorded = []
    for first, last in itertools.pairwise([0, *when.tolist()]):
        lanes, means = lanes.after(last - first, generator)
        figures = np.array([lanes.gap, *means])
        recorded.append((figures, lanes.state.acting, lanes.state.anchor))
        progress(last)
    figures, acting, anchors = zip(*recorded, strict=True)
    gap, mean_gap, mean_anchor_gap, outer_kl = np.stack(figures, axis=-1)
    return ExactRuns(
        updates=when,
        samples_per_update=samples_per_update,
        best_value=task.best_value,
        gap=gap,
        mean_gap=mean_gap,
        mean_anchor_gap=mean_anchor_gap,
        outer_kl=outer_kl,
        acting=np.stack(acting, axis=1),
        anchors=np.stack(anchors, axis=1),
    )


@dataclass(frozen=True, eq=False)
class _Lanes:
    """All seeds at one time.

    Attributes:
        task: the task.
        rule: the rule.
        samples: n.
        state: acting policies, anchors and memories.
        gap: of the acting policies, shape [seed]; inf for runs that have ended.
    """

    task: Task
    rule: Rule
    samples: Number
    state: State
    gap: Array

    @classmethod
    def begun(cls, task: Task, rule: Rule, samples: Number, seeds: int) -> "_Lanes":
        """Every seed at the task's start."""
        if not is_exact(samples):
            count_of(samples)
        number = positive_count("seeds", seeds)
        check_finite("start", task.start)
        acting = np.repeat(task.start[None], number, axis=0)
        gap = task.gap(acting)
        if not np.isfinite(gap).all():
            msg = f"start is {task.start.tolist()}; its return must be finite."
            raise ValueError(msg)
        state = State(acting, acting.copy(), rule.memory(acting), None)
        return cls(task, rule, samples, state, gap)

    def after(self, updates: int, generator: Generator) -> tuple["_Lanes", Array]:
        """Some updates later; mean gap, anchor's gap and KL on the way, [3, seed]."""
        if updates == 0:
            anchored = self.task.gap(self.state.anchor)
            return self, np.array([self.gap, anchored, 0 * anchored])
        lanes, total = self, np.zeros((3, len(self.gap)))
        for _ in range(updates):
            lanes, figures = lanes.updated(generator)
            total += figures
        return lanes, total / updates

    def updated(self, generator: Generator) -> tuple["_Lanes", Array]:
        """One update; gap, anchor's gap and KL, shape [3, seed]."""
        old = self.state
        with np.errstate(all="ignore"):  # of runs that diverge, or have ended
            new = self.rule.step(self.task, old, self.samples, generator)
        whole = np.isfinite(new.acting) & np.isfinite(new.anchor)
        alive = np.isfinite(self.gap) & whole.all(-1)
        acting = np.where(alive[:, None], new.acting, old.acting)
        gap = np.where(alive, self.task.gap(acting), np.inf)
        kept = np.isfinite(gap)[:, None]
        acting = np.where(kept, acting, old.acting)
        anchor = np.where(kept, new.anchor, old.anchor)
        alone = new.anchor is new.acting
        anchor_gap = gap if alone else self.task.gap(anchor)
        moved = self.task.kl(old.acting, acting)
        state = new._replace(acting=acting, anchor=anchor)
        lanes = dataclasses.replace(self, state=state, gap=gap)
        return lanes, np.array([gap, anchor_gap, moved])


def _records(updates: Number) -> NDArray[np.int64]:
    """When to record: increasing counts, or half-way and at the end."""
    when = recorded_updates(updates)
    if np.ndim(updates) == 0:
        when = np.unique([when[-1] // 2, when[-1]])
    if when.ndim != 1 or np.any(np.diff(when) == 0):
        msg = f"updates is {updates}; it must be a list that increases."
        raise ValueError(msg)
    return when
