"""Stability map: how large a step each loop bears."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from theory import outer
from theory.arithmetic import Number, check_positive
from theory.figures.canvas import GREY, canvas, colour


def stability_map(
    *,
    largest_com: Number = 1000.0,
    penalty: Number = 0.5,
    noise_slope: Number = 1.0,
    largest_samples: Number = 1000.0,
) -> Figure:
    """The largest stable dimensionless step a = ηh of every loop; curvature h = 1.

    Left, against 1 + c, the memory of an anchor with centre of mass c or of a momentum
    μ = c/(1+c): in this model averaging *into* the step (`ewma_linear`) halves the
    limit, momentum doubles it, and the exact surrogate (`ewma_proximal`) has none.
    Right, against samples per update, for noise that grows with distance
    (`multiplicative`): the one loop here in which samples buy stability.

    Args:
        largest_com: right end of the left panel, c > 0.
        penalty: κ of `ewma_gradient`, per gradient step.
        noise_slope: κ of `multiplicative`, the growth of the noise variance with x².
        largest_samples: right end of the right panel, n > 1.

    Returns:
        Two panels.

    Raises:
        ValueError: if a number is not finite and positive.
    """
    for name, value in (
        ("largest_com", largest_com),
        ("penalty", penalty),
        ("noise_slope", noise_slope),
    ):
        check_positive(name, value)
    check_positive("largest_samples - 1", largest_samples - 1)
    figure, (left, right) = canvas(2)
    _memory(left, largest_com, penalty)
    _samples(right, noise_slope, largest_samples)
    return figure


def _memory(axes: Axes, largest_com: Number, penalty: Number) -> None:
    com = np.geomspace(1, 1 + largest_com, 200) - 1
    step = np.ones_like(com)
    loops: dict[str, outer.Loop] = {
        "plain descent": outer.sgd(step, 1.0),
        "momentum c/(1+c)": outer.heavy_ball(step, 1.0, com / (1 + com)),
        "anchor, linear step": outer.ewma_linear(step, 1.0, com),
        f"anchor per gradient step, κ = {penalty:g}": outer.ewma_gradient(
            step, 1.0, penalty, com
        ),
    }
    for index, (label, loop) in enumerate(loops.items()):
        limit = np.broadcast_to(loop.stability_limit, com.shape)
        axes.plot(1 + com, limit, color=colour(index), label=label)
    axes.text(
        0.98, 0.06, "anchor, exact surrogate: stable at every step",
        transform=axes.transAxes, ha="right", color=GREY,
    )  # fmt: skip
    axes.set(xscale="log", xlabel="memory 1 + c (updates)")
    axes.set(ylabel="largest stable step × curvature", ylim=(0, 5.9))
    axes.legend(frameon=False, loc="upper left")


def _samples(axes: Axes, noise_slope: Number, largest: Number) -> None:
    samples = np.geomspace(1, largest, 200)
    limit = outer.multiplicative(1.0, 1.0, noise_slope, samples).stability_limit
    axes.plot(samples, limit, color=colour(0))
    axes.axhline(2, color=GREY, ls="--", lw=1)
    axes.fill_between(samples, 0, limit, color=colour(0), alpha=0.15, lw=0)
    axes.text(0.98, 0.1, "stable", transform=axes.transAxes, ha="right")
    axes.text(0.02, 0.93, "constant noise", transform=axes.transAxes, color=GREY)
    axes.set(xscale="log", xlabel="samples per update", ylim=(0, 2.2))
    axes.set_ylabel(f"largest stable step, noise slope {noise_slope:g}")
