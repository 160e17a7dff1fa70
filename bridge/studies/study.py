"""A study as its file says it: arms, scales, and effects predicted with a number.

*Scientific* knobs are what the arms vary, *nuisance* ones what is averaged over (seeds)
and *fixed* ones what is alike everywhere: the environment's preset and a scale's table.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from fullscale.config import RunConfig

# Of "difference" and "ratio", what no effect would be.
COMPARISONS: Mapping[str, float | None] = MappingProxyType(
    {"difference": 0.0, "ratio": 1.0, "slope": 0.0, "value": None}
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration of one arm on one task; its seeds are trained together.

    Attributes:
        task: environment.
        arm: name of the arm.
        config: what is trained.
        parent: arm whose last checkpoint it starts from; empty: from nothing.
        fresh_optimiser: with a parent, whether the optimiser's state starts anew.
    """

    task: str
    arm: str
    config: RunConfig
    parent: str = ""
    fresh_optimiser: bool = False


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One predicted number, and the range outside which it is refuted.

    Attributes:
        name: what is said, in words.
        task: environment on which.
        measure: what is compared, a name of `measures.MEASURES`.
        comparison: "ratio" or "difference" (of the first arm to the second), "slope"
            (of log measure over log x, one x per arm) or "value" (of one arm).
        arms: which.
        x: of a slope: a knob, or another measure.
        predicted: the number.
        low: the prediction survives only above it.
        high: and below this.
        source: where the number comes from.
    """

    name: str
    task: str
    measure: str
    comparison: str
    arms: tuple[str, ...]
    predicted: float
    low: float
    high: float
    source: str
    x: str = ""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is run and what it should show, at one scale.

    Attributes:
        name: of its file.
        scale: "laptop", "gpu" or "cluster".
        question: in one sentence.
        claim: of the literature, with its source.
        scientific: knobs that the arms vary.
        nuisance: what is averaged over.
        cells: parents first.
        effects: predictions.
        notes: what a reader should know besides.
    """

    name: str
    scale: str
    question: str
    claim: str
    scientific: tuple[str, ...]
    nuisance: tuple[str, ...]
    cells: tuple[Cell, ...]
    effects: tuple[Effect, ...]
    notes: str = ""

    def record(self) -> dict[str, object]:
        """What is predicted of which runs, and its own SHA-256; prose left out."""
        said = {
            "format": "ppo-outer-loop/study",
            "version": 1,
            "name": self.name,
            "scale": self.scale,
            "cells": [
                {**asdict(cell), "config": cell.config.content_hash()}
                for cell in self.cells
            ],
            "effects": [_finite(asdict(effect)) for effect in self.effects],
        }
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return {**said, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _finite(values: dict[str, object]) -> dict[str, object]:
    """JSON has no infinity: an open end is its name."""
    return {
        key: str(value) if isinstance(value, float) and math.isinf(value) else value
        for key, value in values.items()
    }
