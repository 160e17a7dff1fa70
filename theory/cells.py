"""Cells: the seeds of one configuration at one budget, averaged.

A law is fitted to cells, because seeds of one configuration share its deviation from
any law. DDR is averaged as a ratio of sums (transitions over KL), never as a mean of
ratios, which the noise of KL would bias.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from theory import columns
from theory.table import RunTable, TableError, validate

MIN_BUDGETS = 3


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One entry per (configuration, budget).

    Attributes:
        config: number of the configuration.
        budget: nominal budget, transitions.
        transitions: mean number of transitions really used.
        ddr: DDR of the seeds together, transitions per nat.
        score: mean score.
        seed_variance: variance of the score between seeds; NaN for a single seed.
        num_seeds: seeds behind the means.
        knobs: varied knob → its value.
    """

    config: Int[np.ndarray, "cell"]
    budget: Int[np.ndarray, "cell"]
    transitions: Float[np.ndarray, "cell"]
    ddr: Float[np.ndarray, "cell"]
    score: Float[np.ndarray, "cell"]
    seed_variance: Float[np.ndarray, "cell"]
    num_seeds: Int[np.ndarray, "cell"]
    knobs: Mapping[str, Float[np.ndarray, "cell"]]

    def __len__(self) -> int:
        return len(self.score)

    def select(
        self, chosen: Bool[np.ndarray, "cell"] | Int[np.ndarray, "chosen"]
    ) -> "Cells":
        """The chosen cells, in the order given."""
        return Cells(
            config=self.config[chosen],
            budget=self.budget[chosen],
            transitions=self.transitions[chosen],
            ddr=self.ddr[chosen],
            score=self.score[chosen],
            seed_variance=self.seed_variance[chosen],
            num_seeds=self.num_seeds[chosen],
            knobs={name: values[chosen] for name, values in self.knobs.items()},
        )


def from_table(
    table: RunTable,
    *,
    ddr_column: str = "ddr",
    knobs: Sequence[str] | None = None,
    min_budgets: int = 1,
) -> Cells:
    """Average a run table over seeds.

    Args:
        table: the runs.
        ddr_column: "ddr" or "ddr_noise".
        knobs: the knobs to keep; all varied ones by default.
        min_budgets: refuse a table with fewer budgets.

    Raises:
        TableError: two rows are the same run, fewer budgets, several environments, a
            DDR or a number of transitions that is not positive, a score that is not
            finite, or a knob that has no logarithm.
    """
    names = table.varied() if knobs is None else tuple(knobs)
    _check(table, ddr_column, names, min_budgets)
    # Cells in the order of their content, so that the order of rows cannot matter.
    pairs = np.stack([_configurations(table), table["budget"]], axis=-1)
    keys, cell = np.unique(pairs, axis=0, return_inverse=True)
    count = np.bincount(cell)
    transitions = table["transitions"].astype(float)
    score = np.bincount(cell, table["score"]) / count
    squares = np.bincount(cell, (table["score"] - score[cell]) ** 2)
    kl = np.bincount(cell, transitions / table[ddr_column])
    total = np.bincount(cell, transitions)
    first = np.unique(cell, return_index=True)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(count > 1, squares / (count - 1), np.nan)
    return Cells(
        config=keys[:, 0],
        budget=keys[:, 1],
        transitions=total / count,
        ddr=total / kl,
        score=score,
        seed_variance=variance,
        num_seeds=count,
        knobs={name: table[name].astype(float)[first] for name in names},
    )


def _configurations(table: RunTable) -> Int[np.ndarray, "run"]:
    """A number per row for its configuration, in the order of the knobs' values."""
    numbers = table.configurations()
    first = np.unique(numbers, return_index=True)[1]
    ranks = [
        np.unique(table[name][first], return_inverse=True)[1]
        for name in columns.IDENTITY
        if name in table
    ]
    order = np.lexsort(ranks[::-1])
    return np.argsort(order)[numbers]


def _check(
    table: RunTable, ddr_column: str, knobs: Sequence[str], min_budgets: int
) -> None:
    validate(table)
    budgets = table.budgets()
    if len(budgets) < min_budgets:
        raise TableError(
            f"the run table has {len(budgets)} budgets; a fit needs {min_budgets}"
        )
    if len(set(table["environment"].tolist())) > 1:
        raise TableError("the run table holds several environments; fit one at a time")
    for name in (ddr_column, "transitions", *knobs):
        _check_positive(name, table[name])
    bad = ~np.isfinite(table["score"])
    if np.any(bad):
        raise TableError(f"score is not finite in row {np.argmax(bad)}")


def _check_positive(name: str, values: np.ndarray) -> None:
    if values.dtype.kind not in "if":
        raise TableError(f"{name!r} varies, and a fit takes numbers only")
    bad = ~(np.isfinite(values) & (values > 0))
    if np.any(bad):
        row = int(np.argmax(bad))
        raise TableError(
            f"{name} = {values[row]} in row {row} should be positive and finite"
        )
