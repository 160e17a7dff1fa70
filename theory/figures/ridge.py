"""The ridge: the gap after a budget over outer step and samples per update."""

import numpy as np
from matplotlib.figure import Figure

from theory.arithmetic import Number, check_positive
from theory.figures.canvas import SEQUENTIAL, canvas
from theory.spectrum import Spectrum

REGRETS = (0.02, 0.1, 0.3, 1.0, 3.0, 10.0)


def ridge(
    spectrum: Spectrum,
    *,
    budget: Number,
    samples: tuple[Number, Number],
    resolution: int = 100,
) -> Figure:
    """Regret of (η, n) after a budget: how far the loss is above the least on the map.

    The loss is `Spectrum.loss`, exact for plain descent; white lines are regrets of
    2 %, 10 %, 30 %, … The dashed line is η = u*·n, the ridge: for small steps every
    point of it does equally well, so that the budget fixes u = η/n and not n. It ends
    at the critical batch, where the step nears 2/h of the steepest direction. Cells of
    less than one update are blank.

    Args:
        spectrum: curvatures, start and noise.
        budget: B > 0, transitions.
        samples: least and largest samples per update.
        resolution: grid points per axis.

    Returns:
        One panel, both axes logarithmic.

    Raises:
        ValueError: if the budget is not positive, the range is not positive and
            increasing, or the resolution < 2.
    """
    check_positive("budget", budget)
    check_positive("samples", samples)
    if not samples[0] < samples[1]:
        raise ValueError(f"samples is {samples}; it must be (least, largest).")
    if resolution < 2:
        raise ValueError(f"resolution is {resolution}; it must be at least 2.")
    n = np.geomspace(*samples, resolution)
    best = float(spectrum.best_step_per_sample(budget).at)
    limit = 2 / float(spectrum.curvature.max())
    eta = np.geomspace(min(best * n[0] / 10, limit / 10), limit, resolution)
    loss = spectrum.loss(eta[:, None], n[None, :], np.maximum(budget / n, 1))
    regret = loss / loss.min() - 1
    regret = np.where((n <= budget) & np.isfinite(loss), regret, np.nan)
    figure, (axes,) = canvas()
    mesh = axes.pcolormesh(
        n, eta, np.log10(1 + regret), cmap=SEQUENTIAL, vmax=2, rasterized=True
    )
    lines = axes.contour(n, eta, regret, levels=REGRETS, colors="white", linewidths=0.8)
    axes.clabel(lines, fmt=lambda level: f"{level:.0%}", fontsize=8)
    axes.plot(n, best * n, color="white", ls="--", lw=1.2, label="η = u*·n")
    axes.set(xscale="log", yscale="log", ylim=(eta[0], eta[-1]))
    axes.set(xlabel="samples per update n", ylabel="outer step η")
    figure.colorbar(mesh, ax=axes, label="log₁₀ (loss / least loss)", extend="max")
    return figure
