"""What is not one number is refused by name, wherever one number is asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from theory import finite_horizon, kl, knob_table, outer, wall_clock
from theory.exact_loops import Adam, Sgd
from theory.noise import correlated_samples, effective_samples, ratio_of_means
from theory.power_law import PowerLaw
from theory.sampled_constant import predict_plateau_constant
from theory.spectrum import Spectrum

SPECTRUM = Spectrum(np.array([1.0, 0.1]), np.array([1.0, 2.0]), np.array([1.0, 0.5]))
UNIT = np.eye(2)
LAW: dict[str, Any] = {
    "curvature": 1.0,
    "decay": 1.5,
    "initial": 1.0,
    "source": 0.7,
    "noise": 1.0,
}

ONE: dict[str, Callable[[Any], object]] = {
    "outer_step": lambda v: outer.matrix_sgd(v, UNIT),
    "samples_per_update": lambda v: outer.matrix_sgd(0.1, UNIT).stationary(UNIT, v),
    "kl_per_update": lambda v: knob_table.held_kl(v, 1.0),
    "noise_trace": lambda v: knob_table.held_kl(0.1, v),
    "budget": lambda v: knob_table.critical_samples(SPECTRUM, v, 0.1),
    "excess": lambda v: knob_table.critical_samples(SPECTRUM, 100.0, v),
    "source": lambda v: PowerLaw(**LAW | {"source": v}),
    "latency": lambda v: wall_clock.Machine(v, 1e4),
    "collection": lambda v: wall_clock.Machine(0.1, v),
    "seconds": lambda v: wall_clock.best_for_time(
        SPECTRUM, wall_clock.Machine(0.1, 1e4), v
    ),
    "momentum": lambda v: Sgd(0.1, v),
    "second": lambda v: Adam(0.1, second=v),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("value", [[0.5], [0.25, 0.5], [], "0.5", None, 1j, {}])
def test_what_is_not_one_number(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        ONE[name](value)


MANY: dict[str, Callable[[Any], object]] = {
    "curvature": lambda v: finite_horizon.decaying_step(v, 1.0, 1, 10.0),
    "gradient": lambda v: kl.step_kl(v, UNIT, UNIT, 0.1, 8),
    "fisher": lambda v: kl.step_kl(np.ones(2), UNIT, v, 0.1, 8),
    "scores": lambda v: predict_plateau_constant(v, np.ones(9)),
    "correlations": lambda v: correlated_samples(v, 4, 8),
    "series": effective_samples,
    "numerator": lambda v: ratio_of_means(v, [1.0, 2.0]),
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("value", ["0.5", [1j], [[1.0], [1.0, 2.0]]])
def test_what_is_not_numbers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        MANY[name](value)
