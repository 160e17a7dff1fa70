"""One episode as moving pictures: a drawing where we know one, else its traces.

Drawings are made from observations, so any environment with the same observations can
use one. `.gif` needs nothing; `.mp4` needs ffmpeg.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from fullscale.config.error import UsageError

FRAMES = 150  # at most; of a longer episode every so-manieth moment is drawn
FRAMES_PER_SECOND = 20


class Line(NamedTuple):
    """Connected or single points of a drawing.

    Attributes:
        points: [point, xy].
        style: matplotlib's format string.
        size: of markers, in points.
    """

    points: Float[np.ndarray, "point 2"]
    style: str
    size: float = 6.0


class Drawing(NamedTuple):
    """How an environment looks.

    Attributes:
        lines: observation → what is drawn, the same number of lines at any time.
        reach: the picture shows [−reach, reach]².
    """

    lines: Callable[[np.ndarray], list[Line]]
    reach: float


def reacher(observation: Float[np.ndarray, " obs"]) -> list[Line]:
    """Two links of length 1 with absolute angles, and the goal."""
    links = np.stack([observation[:2], observation[2:4]], axis=-1)
    joints = np.concatenate([np.zeros((1, 2)), np.cumsum(links, axis=0)])
    return [Line(joints, "o-"), Line(observation[None, 6:8], "r*", 14.0)]


def swimmer(observation: Float[np.ndarray, " obs"]) -> list[Line]:
    """The urchins to keep away from, the swimmer, and the goal."""
    places = observation.reshape(-1, 2)
    return [
        Line(places[:-3], "kX", 10.0),
        Line(places[-3:-2], "bo", 10.0),
        Line(places[-1:], "r*", 14.0),
    ]


def pendulum(observation: Float[np.ndarray, " obs"]) -> list[Line]:
    """The rod, its angle measured from upright."""
    tip = np.array([-observation[1], observation[0]])
    return [Line(np.stack([np.zeros(2), tip]), "o-")]


DRAWINGS: Mapping[str, Drawing] = MappingProxyType(
    {
        "reacher": Drawing(reacher, 2.2),
        "swimmer": Drawing(swimmer, 1.5),
        "pendulum": Drawing(pendulum, 1.2),
    }
)


def check(path: Path) -> None:
    """Refuse a file that cannot be written here.

    Raises:
        UsageError: an unknown ending, no ffmpeg, or no such folder.
    """
    from matplotlib import animation

    if path.suffix.lower() not in (".gif", ".mp4"):
        raise UsageError(f"--video {str(path)!r} should end in .gif or .mp4")
    if path.suffix.lower() == ".mp4" and not animation.writers.is_available("ffmpeg"):
        raise UsageError(
            f"--video {str(path)!r} needs ffmpeg, which is not installed; .gif does not"
        )
    if not path.parent.is_dir():
        raise UsageError(f"--video {str(path)!r}: there is no such folder")


def write(
    path: Path,
    environment: str,
    observations: Float[np.ndarray, "time obs"],
    rewards: Float[np.ndarray, " time"],
) -> None:
    """Draw one episode and write the file whole or not at all.

    Args:
        path: ends in .gif or .mp4 (see `check`).
        environment: its name.
        observations: before each transition.
        rewards: of each transition.
    """
    from matplotlib import animation

    figure, update = _picture(environment, observations, rewards)
    stride = max(1, -(-len(rewards) // FRAMES))
    moving = animation.FuncAnimation(
        figure, update, frames=range(0, len(rewards), stride), blit=False
    )
    kind = "pillow" if path.suffix.lower() == ".gif" else "ffmpeg"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".video.") as folder:
        made = Path(folder) / path.name
        moving.save(made, writer=kind, fps=FRAMES_PER_SECOND)
        made.replace(path)


def _picture(
    environment: str,
    observations: Float[np.ndarray, "time obs"],
    rewards: Float[np.ndarray, " time"],
) -> tuple[Any, Callable[[int], Iterable]]:
    """A figure, and what changes it to a moment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0, 4.0))
    axes = figure.add_subplot()
    drawing = DRAWINGS.get(environment)
    show = (
        _drawn(axes, drawing, observations) if drawing else _traced(axes, observations)
    )
    total = np.cumsum(rewards)

    def update(time: int) -> Iterable:
        axes.set_title(
            f"{environment}: transition {time + 1}, return {total[time]:.4g}", size=9
        )
        return show(time)

    return figure, update


def _drawn(
    axes: Any, drawing: Drawing, observations: Float[np.ndarray, "time obs"]
) -> Callable[[int], Iterable]:
    artists = [
        axes.plot(*line.points.T, line.style, markersize=line.size)[0]
        for line in drawing.lines(observations[0])
    ]
    axes.set(xlim=(-drawing.reach, drawing.reach), ylim=(-drawing.reach, drawing.reach))
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])

    def show(time: int) -> Iterable:
        for artist, line in zip(
            artists, drawing.lines(observations[time]), strict=True
        ):
            artist.set_data(*line.points.T)
        return artists

    return show


def _traced(
    axes: Any, observations: Float[np.ndarray, "time obs"]
) -> Callable[[int], Iterable]:
    """Every component of the observation over time, up to the moment."""
    artists = axes.plot(observations)
    axes.set(xlabel="transition", ylabel="observation")
    axes.set_xlim(0, max(1, len(observations) - 1))

    def show(time: int) -> Iterable:
        for artist, trace in zip(artists, observations.T, strict=True):
            artist.set_data(np.arange(time + 1), trace[: time + 1])
        return artists

    return show
