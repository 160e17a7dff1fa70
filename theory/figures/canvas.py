"""What the figures share: a canvas without global state, and four colours."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart by readers of every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
SEQUENTIAL = "viridis"


def canvas(columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure of one row of panels."""
    figure = Figure(figsize=(5.2 * columns, 4.0), layout="constrained")
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(panels)


def colour(index: int) -> str:
    """The colour of the index-th line; they repeat."""
    return COLOURS[index % len(COLOURS)]
