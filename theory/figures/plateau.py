"""The plateau over centre of mass and outer step."""

from collections.abc import Callable

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from theory import outer
from theory.arithmetic import check_positive
from theory.figures.canvas import SEQUENTIAL, canvas
from theory.outer import Loop

MakeLoop = Callable[[np.ndarray, np.ndarray], Loop]
SHOWN = {"acting policy": "acting_variance", "anchor": "reference_variance"}


def _linear_anchor(step: np.ndarray, com: np.ndarray) -> Loop:
    return outer.ewma_linear(step, 1.0, com)


def plateau_map(
    make: MakeLoop = _linear_anchor,
    *,
    steps: tuple[float, float] = (0.01, 2.0),
    coms: tuple[float, float] = (0.1, 1000.0),
    resolution: int = 120,
) -> Figure:
    """Plateau E x² over centre of mass and outer step, in units of σ²/n.

    The outer step is what PPO's clip ε (or a penalty) sets. Where lines of one level
    are straight, a larger centre of mass and a smaller step are interchangeable; where
    they turn vertical, in this model, only a smaller step lowers the acting policy's
    plateau. The anchor's own plateau (right) has no such floor.

    Args:
        make: (step, com) arrays → loop of curvature 1; `ewma_linear` by default.
        steps: least and largest outer step.
        coms: least and largest centre of mass, in updates.
        resolution: grid points per axis.

    Returns:
        Two panels on one colour scale: acting policy and anchor; unstable cells blank.

    Raises:
        ValueError: if a range is not positive and increasing, or the resolution < 2.
    """
    for name, ends in (("steps", steps), ("coms", coms)):
        check_positive(name, ends)
        if not ends[0] < ends[1]:
            raise ValueError(f"{name} is {ends}; it must be (least, largest).")
    if resolution < 2:
        raise ValueError(f"resolution is {resolution}; it must be at least 2.")
    step, com = np.geomspace(*steps, resolution), np.geomspace(*coms, resolution)
    loop = make(step[:, None], com[None, :])
    state = loop.stationary(1.0, 1.0)
    levels = {name: getattr(state, field) for name, field in SHOWN.items()}
    grids = {
        name: np.where(np.isfinite(level), level, np.nan)
        for name, level in levels.items()
    }
    return _draw(step, com, grids)


def _draw(step: np.ndarray, com: np.ndarray, grids: dict[str, np.ndarray]) -> Figure:
    least = min(float(np.nanmin(grid)) for grid in grids.values())
    most = max(float(np.nanquantile(grid, 0.99)) for grid in grids.values())
    scale = LogNorm(least, most)
    lines = np.geomspace(least, most, 9)[1:-1]
    figure, panels = canvas(2)
    for axes, (name, grid) in zip(panels, grids.items(), strict=True):
        mesh = axes.pcolormesh(
            step, com, grid.T, norm=scale, cmap=SEQUENTIAL, rasterized=True
        )
        axes.contour(step, com, grid.T, levels=lines, colors="white", linewidths=0.8)
        axes.set(
            xscale="log", yscale="log", title=name, xlabel="outer step × curvature"
        )
    panels[0].set_ylabel("centre of mass (updates)")
    figure.colorbar(mesh, ax=panels, label="plateau E x² / (σ²/n)")
    return figure
