"""Transient and plateau: the expected gap of loops, update by update."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from theory.arithmetic import (
    Number,
    check_nonnegative,
    check_positive,
    whole_number,
)
from theory.figures.canvas import canvas, colour
from theory.outer import Loop

DRAWN = 1e6


def transient_and_plateau(
    loops: Mapping[str, Loop],
    *,
    initial: Number,
    noise_variance: Number,
    samples_per_update: Number,
    updates: Number,
) -> Figure:
    """The expected gap ½h·E x² of loops against updates, and where each stops.

    Exact: the transient is `Loop.second_moment`, the dashed level `Loop.stationary`.
    A loop without a stationary state is drawn without a level, until it has grown by
    10⁶, and says so in its label.

    Args:
        loops: label → loop, of scalar knobs and positive curvature.
        initial: E x² at the start.
        noise_variance: σ², the variance of one sample's gradient.
        samples_per_update: n.
        updates: the last update drawn.

    Returns:
        One panel, both axes logarithmic, with one line per loop.

    Raises:
        ValueError: if there is no loop, a loop has array knobs or no curvature, or a
            number is invalid.
    """
    if not loops:
        raise ValueError("loops is empty; give at least one loop.")
    check_nonnegative("initial", initial)
    check_nonnegative("noise_variance", noise_variance)
    check_positive("samples_per_update", samples_per_update)
    last = whole_number("updates", updates)
    if last < 1:
        raise ValueError(f"updates is {updates}; it must be at least 1.")
    times = np.unique(np.geomspace(1, last, 200).astype(np.int64))
    figure, (axes,) = canvas()
    first = max(float(initial), float(noise_variance / samples_per_update))
    for index, (label, loop) in enumerate(loops.items()):
        if np.ndim(loop.curvature):
            raise ValueError(f"loop {label!r} has array knobs; draw one setting each.")
        check_positive(f"the curvature of loop {label!r}", loop.curvature)
        half = float(loop.curvature) / 2
        moments = loop.second_moment(initial, times, noise_variance, samples_per_update)
        text = label if loop.stable else f"{label} (unstable)"
        gap = np.where(moments < DRAWN * first, half * moments, np.nan)
        axes.plot(times, gap, color=colour(index), label=text)
        if loop.stable:
            level = loop.stationary(noise_variance, samples_per_update).loss
            axes.axhline(float(level), color=colour(index), ls="--", lw=1)
    axes.set(xscale="log", yscale="log", xlabel="updates", ylabel="expected gap")
    axes.legend(frameon=False)
    return figure
