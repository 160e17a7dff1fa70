"""`theory.wall_clock`: the knee as a property, brute grids, the flat ridge."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import positive_floats
from theory.knob_table import critical_samples
from theory.power_law import PowerLaw
from theory.spectrum import Spectrum
from theory.wall_clock import Machine, best_for_time

SPECTRA = st.lists(
    st.tuples(positive_floats(1e-2, 1), positive_floats(), positive_floats(1e-3, 1e3)),
    min_size=1,
    max_size=4,
).map(lambda rows: Spectrum(*np.array(rows).T))
MACHINES = st.builds(
    Machine, positive_floats(1e-3, 1), positive_floats(10, 1e4), positive_floats(1e3)
)


@given(MACHINES, positive_floats(1, 1e6))
def test_time_per_update(machine: Machine, n: float) -> None:
    learned = n * machine.update_epochs / machine.learning
    expected = max(machine.latency, n / machine.collection + learned)
    assert machine.seconds_per_update(n) == pytest.approx(expected)
    assert machine.updates(n, 7.0) == pytest.approx(7 / expected)
    assert machine.seconds_per_update(machine.knee * 0.999) == machine.latency
    assert machine.seconds_per_update(machine.knee * 1.01) > machine.latency


def test_machine_by_hand() -> None:
    machine = Machine(F(1, 2), 100, learning=F(200), update_epochs=4)
    assert machine.seconds_per_sample == pytest.approx(0.03)
    assert machine.knee == pytest.approx(0.5 / 0.03)
    assert Machine(0, 10.0).knee == 0
    free = Machine(1, float("inf"), learning=8.0, update_epochs=2)
    assert free.seconds_per_update(np.array([2.0, 8.0])).tolist() == [1, 2]


@given(SPECTRA, MACHINES, st.floats(0.01, 0.99), st.floats(1, 1e4), st.floats(0.01, 2))
def test_samples_below_the_knee_are_free(
    spectrum: Spectrum, machine: Machine, share: float, waits: float, step: float
) -> None:
    """Property 46: at every step, stable or not, the knee is no worse than below it."""
    seconds, below = waits * machine.latency, share * machine.knee
    less, knee = (
        spectrum.loss(step, n, machine.updates(n, seconds))
        for n in (below, machine.knee * (1 - 1e-12))
    )
    assert knee <= less * (1 + 1e-9)


@given(SPECTRA, MACHINES, st.floats(10, 1e3))
@settings(max_examples=25)
def test_the_optimum_is_never_below_the_knee(
    spectrum: Spectrum, machine: Machine, waits: float
) -> None:
    """Property 46: the wall-clock optimum is at least n₀ = Rℓ.

    Where the loss does not depend on n (nothing left to gain), a tie may fall below.
    """
    seconds = waits * max(machine.latency, machine.seconds_per_sample)
    best = best_for_time(spectrum, machine, seconds)
    if best.samples_per_update < machine.knee * (1 - 1e-6):
        updates = machine.updates(machine.knee, seconds)
        at_knee = spectrum.best_outer_step(machine.knee, updates).value
        assert at_knee <= best.loss * (1 + 1e-9)
        assert at_knee >= best.loss * (1 - 1e-9)


def test_optimum_is_the_least_of_a_brute_grid() -> None:
    spectrum = Spectrum(
        np.array([1.0, 0.1]), np.array([1.0, 5.0]), np.array([1.0, 3.0])
    )
    machine = Machine(0.2, 100.0)
    best = best_for_time(spectrum, machine, 30.0)
    n, step = np.meshgrid(np.geomspace(1, 3000, 300), np.geomspace(1e-4, 1.99, 300))
    losses = spectrum.loss(step, n, machine.updates(n, 30.0))
    assert best.loss <= losses.min() * (1 + 1e-9)
    assert best.loss == pytest.approx(losses.min(), rel=0.01)
    again = spectrum.loss(best.outer_step, best.samples_per_update, best.updates)
    assert best.loss == pytest.approx(again)


@pytest.mark.parametrize("latency", [0.0, 0.05, 1.0])
def test_the_knee_is_as_good_as_the_best(latency: float) -> None:
    """α = 2, s = 1: no knee, one near the critical batch of 46 and one far above."""
    spectrum = PowerLaw(1.0, 2.0, 1.0, 1.0, 0.5).spectrum(100)
    machine, seconds = Machine(latency, 1e3), 100.0
    best = best_for_time(spectrum, machine, seconds)
    knee = max(machine.knee, 1.0)
    assert best.samples_per_update >= knee * (1 - 1e-6)
    at_knee = spectrum.best_outer_step(knee, machine.updates(knee, seconds))
    assert at_knee.value <= 1.001 * best.loss
    critical = critical_samples(spectrum, 1e5, 0.02)
    ridge = spectrum.best_outer_step(critical, 1e5 / critical)
    assert ridge.value <= 1.02 * spectrum.best_step_per_sample(1e5).value


ONE = Spectrum(np.ones(1), np.ones(1), np.ones(1))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Machine(-1, 1), "latency"),
        (lambda: Machine(1, 0), "collection"),
        (lambda: Machine(1, float("nan")), "collection"),
        (lambda: Machine(1, 1, -1), "learning"),
        (lambda: Machine(1, 1, 1, -1), "update_epochs"),
        (lambda: Machine(1, float("inf")), "takes time"),
        (lambda: Machine(1, 1).seconds_per_update(0), "samples_per_update"),
        (lambda: Machine(1, 1).updates(1, 0), "seconds"),
        (lambda: best_for_time(ONE, Machine(1, 1), 0), "seconds"),
        (lambda: best_for_time(ONE, Machine(3, 1), 2.5), "at least 3"),
        (lambda: best_for_time(ONE, Machine(0, F(1, 2)), 1), "at least 2"),
    ],
)
def test_refusals_name_the_argument(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
