"""Figures: what they draw equals the functions that they name, and nothing global."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from theory import calibration, figures, outer, table
from theory.figures.canvas import COLOURS
from theory.power_law import PowerLaw

SPECTRUM = PowerLaw(curvature=1, decay=2, initial=1, source=1, noise=1).spectrum(50)
SHIPPED = Path(__file__).parent.parent / "bridge" / "calibrations"


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def marks(axes: Axes) -> list[Any]:
    """Collections, whose types matplotlib declares too widely to be of use."""
    return list(axes.collections)


def line(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def transient(**changed: object) -> Figure:
    arguments: dict = {
        "loops": {"plain": outer.sgd(0.2, 3.0), "wild": outer.sgd(1.0, 3.0)},
        "initial": 4.0,
        "noise_variance": 10.0,
        "samples_per_update": 100.0,
        "updates": 500,
    }
    return figures.transient_and_plateau(**{**arguments, **changed})


def test_transient_is_the_exact_second_moment_and_ends_at_the_plateau() -> None:
    (axes,) = panels(transient())
    updates, gap = line(axes, "plain")
    loop = outer.sgd(0.2, 3.0)
    expected = [1.5 * loop.second_moment(4.0, int(t), 10.0, 100.0) for t in updates]
    np.testing.assert_allclose(gap, expected, rtol=1e-12)
    assert updates[0] == 1
    assert updates[-1] == 500
    level = loop.stationary(10.0, 100.0).loss
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    levels = [float(np.asarray(line.get_ydata())[0]) for line in dashed]
    assert levels == [pytest.approx(level)]
    assert gap[-1] == pytest.approx(level)


def test_an_unstable_loop_says_so_and_has_no_level() -> None:
    (axes,) = panels(transient())
    _, labels = axes.get_legend_handles_labels()
    assert labels == ["plain", "wild (unstable)"]


def test_stability_limits_are_those_of_the_loops() -> None:
    left, right = panels(figures.stability_map(penalty=0.25, noise_slope=2.0))
    memory, limit = line(left, "anchor, linear step")
    com = memory - 1
    np.testing.assert_allclose(limit, 2 * (1 + com) / (1 + 2 * com))
    _, momentum = line(left, "momentum c/(1+c)")
    np.testing.assert_allclose(momentum, 2 * (1 + com / (1 + com)))
    samples, critical = (np.asarray(v) for v in right.lines[0].get_data())
    np.testing.assert_allclose(critical, 2 / (1 + 2.0 / samples))


def test_plateau_map_shows_both_policies_and_leaves_unstable_cells_blank() -> None:
    figure = figures.plateau_map(resolution=20)
    acting, anchor = panels(figure)
    step, com = np.geomspace(0.01, 2.0, 20), np.geomspace(0.1, 1000.0, 20)
    state = outer.ewma_linear(step[:, None], 1.0, com[None, :]).stationary(1.0, 1.0)
    for axes, truth in (
        (acting, state.acting_variance),
        (anchor, state.reference_variance),
    ):
        drawn = marks(axes)[0].get_array()
        stable = np.isfinite(truth.T)
        np.testing.assert_allclose(drawn.data[stable], truth.T[stable])
        assert not np.any(np.isfinite(drawn.filled(np.nan)[~stable]))


def test_plateau_map_takes_any_loop() -> None:
    figure = figures.plateau_map(
        lambda step, com: outer.ewma_proximal(step, 1.0, com), resolution=5
    )
    assert np.all(np.isfinite(marks(panels(figure)[0])[0].get_array()))


def test_ridge_is_the_exact_loss_over_the_least_on_the_map() -> None:
    (axes,) = panels(
        figures.ridge(SPECTRUM, budget=1e4, samples=(1, 1e5), resolution=9)
    )
    n, eta = np.geomspace(1, 1e5, 9), np.geomspace(*axes.get_ylim(), 9)
    loss = np.array(
        [[SPECTRUM.loss(step, size, 1e4 / size) for size in n] for step in eta]
    )
    drawn = marks(axes)[0].get_array()
    whole = n <= 1e4
    least = loss[:, whole].min()
    expected = np.log10(loss[:, whole] / least)
    np.testing.assert_allclose(drawn.filled(np.nan)[:, whole], expected, atol=1e-9)
    assert np.all(np.isnan(drawn.filled(np.nan)[:, ~whole]))
    size, step = line(axes, "η = u*·n")
    np.testing.assert_allclose(step / size, SPECTRUM.best_step_per_sample(1e4).at)


def test_best_ddr_of_a_calibration_with_a_known_optimum() -> None:
    made = calibration.Calibration.synthetic(num_draws=50)
    (axes,) = panels(figures.ddr_against_budget(made))
    budget, ddr = line(axes, "best DDR, 80% interval")
    # b = 1, d = γ = ½: D* ∝ B, through D = 10⁶ at B = 10⁶.
    np.testing.assert_allclose(ddr, 1e6 * budget / 1e6, rtol=0.01)


def test_held_out_runs_are_told_from_training_runs() -> None:
    figure = figures.ddr_against_budget(
        calibration.load(SHIPPED / "lqr.json"),
        training=table.read(SHIPPED / "lqr.nc"),
        held_out=table.read(SHIPPED / "lqr-held-out.nc"),
    )
    (axes,) = panels(figure)
    drawn = {
        c.get_label(): (len(c.get_offsets()), to_hex(c.get_facecolor()[0]).upper())
        for c in marks(axes)
        if c.get_label() in ("training", "held out")
    }
    assert set(drawn) == {"training", "held out"}
    assert drawn["held out"] == (14, COLOURS[2])
    assert drawn["training"][1] == COLOURS[1]
    assert "ddr" in axes.get_ylabel()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: transient(loops={}), "loops is empty"),
        (lambda: transient(updates=0), "updates is 0"),
        (lambda: transient(updates=1.5), r"updates is 1\.5"),
        (lambda: transient(initial=-1.0), r"initial is -1\.0"),
        (lambda: transient(samples_per_update=0), "samples_per_update is 0"),
        (lambda: transient(loops={"x": outer.sgd(0.1, 0.0)}), "curvature of loop 'x'"),
        (lambda: transient(loops={"x": outer.sgd(0.1, [1, 2])}), "array knobs"),
        (lambda: figures.stability_map(largest_com=-1.0), r"largest_com is -1\.0"),
        (lambda: figures.stability_map(largest_samples=1.0), "largest_samples"),
        (lambda: figures.plateau_map(steps=(1.0, 0.1)), "steps is"),
        (lambda: figures.plateau_map(coms=(0.0, 1.0)), "coms holds"),
        (lambda: figures.plateau_map(resolution=1), "resolution is 1"),
        (
            lambda: figures.ridge(SPECTRUM, budget=-1, samples=(1, 2)),
            "budget is -1",
        ),
        (
            lambda: figures.ridge(SPECTRUM, budget=10, samples=(2, 1)),
            "samples is",
        ),
        (
            lambda: figures.ridge(SPECTRUM, budget=10, samples=(1, 2), resolution=1),
            "resolution is 1",
        ),
        (
            lambda: figures.ddr_against_budget(
                calibration.Calibration.synthetic(num_draws=5), level=80
            ),
            "level is 80",
        ),
        (
            lambda: figures.ddr_against_budget(
                calibration.Calibration.synthetic(num_draws=5), knob="com"
            ),
            "no fitted knob 'com'",
        ),
    ],
)
def test_refusals_name_the_value(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


def test_figures_leave_no_global_state() -> None:
    code = (
        "import sys; from theory import figures; figures.stability_map();"
        "print('matplotlib.pyplot' in sys.modules, 'jax' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["False", "False"]
