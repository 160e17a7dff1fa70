"""The calibration designs: which cells are run, and which are held out.

A cell is a configuration at one budget; each has its own runs (no truncation of a
longer one) and its own seeds. A held-out cell is run only after its forecast is on
record. The designs are part of the record: changing one means a new calibration.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fullscale.config import RunConfig
from fullscale.presets import preset

MIN_UPDATES = 16  # a cell with fewer updates is not part of a design


@dataclass(frozen=True, kw_only=True)
class Design:
    """Training and held-out cells of a domain.

    Attributes:
        domain: the environment.
        asymptote: optimal score where it is known (`theory`), else None.
        law: family that is fitted; "saturating" where the smallest budgets hardly
            train, so that the bias must begin at the untrained gap.
        pace: "theory" (a run learns as fast as its DDR says) or "fitted" (terms that
            earn their place in cross-validation are added).
        seeds: seeds per cell.
        training: cells the laws are fitted on.
        held_out: cells the laws are judged on.
    """

    domain: str
    asymptote: float | None
    law: str
    pace: str
    seeds: int
    training: tuple[RunConfig, ...]
    held_out: tuple[RunConfig, ...]


def cells(
    domain: str, seeds: int, first_seed: int, grid: Mapping[str, tuple]
) -> tuple[RunConfig, ...]:
    """The full cross of `grid`, less the cells with fewer than `MIN_UPDATES` updates.

    Every budget has its own seeds: the i-th of the grid starts at first_seed + 1000 i.
    """
    names, levels = zip(*grid.items(), strict=True)
    result = []
    for values in itertools.product(*levels):
        knobs = dict(zip(names, values, strict=True))
        seed = first_seed + 1000 * grid["budget"].index(knobs["budget"])
        samples = knobs["num_envs"] * preset(domain, 10**9).rollout_length
        if knobs["budget"] >= MIN_UPDATES * samples:
            result.append(preset(domain, num_seeds=seeds, seed=seed, **knobs))
    return tuple(result)


def lqr_design() -> Design:
    """`lqr`: N × σ × ε at three budgets; held out: budget ×4, and σ = 1/8."""
    seeds = 8
    training = cells(
        "lqr",
        seeds,
        0,
        {
            "num_envs": (32, 64, 128, 256, 512, 1024),
            "outer_learning_rate": (1.0, 0.5, 0.25),
            "clip_epsilon": (0.2, 0.05),
            "budget": (2**16, 2**18, 2**20),
        },
    )
    recipe = {
        "num_envs": (64, 128, 256, 512, 1024, 2048),
        "outer_learning_rate": (1.0,),
        "clip_epsilon": (0.2,),
        "budget": (2**22,),
    }
    other_knobs = {
        "num_envs": (64, 512),
        "outer_learning_rate": (0.25,),
        "clip_epsilon": (0.2, 0.05),
        "budget": (2**22,),
    }
    new_sigma = {
        "num_envs": (64, 256),
        "outer_learning_rate": (0.125,),
        "clip_epsilon": (0.2,),
        "budget": (2**20, 2**22),
    }
    held_out = tuple(
        config
        for first, grid in (
            (10_000, recipe),
            (20_000, other_knobs),
            (30_000, new_sigma),
        )
        for config in cells("lqr", seeds, first, grid)
    )
    from theory import lqr

    _, optimum = lqr.standard().optimum()
    return Design(
        domain="lqr",
        asymptote=float(optimum),
        law="saturating",
        pace="fitted",
        seeds=seeds,
        training=training,
        held_out=held_out,
    )


DESIGNS = MappingProxyType({"lqr": lqr_design})
