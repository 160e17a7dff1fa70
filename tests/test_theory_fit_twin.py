"""The fit against its slow obvious twin."""

import dataclasses

import numpy as np
import pytest

from tests.support.fit_twin import twin_law, twin_map
from tests.support.simulated import OPTIMUM, noisy_table
from theory.fit import Fit, Options, fit

KNOWN = Options(asymptote=OPTIMUM, draws=12)


@pytest.fixture(scope="module")
def found() -> Fit:
    made = fit(noisy_table(), KNOWN)
    assert not np.any(made.problem.level)  # no floor: the twin has none
    return made


def test_every_draw_equals_the_slow_twin(found: Fit) -> None:
    for draw, weights in enumerate(found.bootstrap_weights):
        coefficients = twin_map(found, weights)
        mapped = found.draws.ddr_map[draw]
        np.testing.assert_allclose(mapped, coefficients, rtol=1e-4, atol=1e-4)
        form = found.model.ddr_map
        log_ddr = form.log_limit(mapped[None], found.cells.knobs)[0]
        law = twin_law(found, log_ddr, weights)
        np.testing.assert_allclose(found.draws.law[draw, 1:], law[1:], rtol=2e-3)


def test_the_estimate_equals_the_slow_twin(found: Fit) -> None:
    ones = np.ones(len(found.cells))
    np.testing.assert_allclose(
        found.point.ddr_map[0], twin_map(found, ones), rtol=1e-4, atol=1e-5
    )
    law = twin_law(found, found.problem.log_ddr[0], ones)
    np.testing.assert_allclose(found.point.law[0, 1:], law[1:], rtol=1e-3)


def test_a_wrong_twin_is_noticed(found: Fit) -> None:
    """The negative control: measured DDR gives another law."""
    ones = np.ones(len(found.cells))
    law = twin_law(found, np.log(found.cells.ddr), ones)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found.point.law[0, 1:], law[1:], rtol=1e-3)


def test_the_estimates_are_made_once(found: Fit) -> None:
    assert found.estimates is found.estimates
    assert dataclasses.replace(found).estimates is not found.estimates
