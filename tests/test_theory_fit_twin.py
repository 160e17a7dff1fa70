"""The fit against a slow obvious twin: one general search per draw, nothing shared."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize

from tests.support.simulated import OPTIMUM, noisy_table
from theory.fit import Fit, Options, fit

KNOWN = Options(asymptote=OPTIMUM, draws=12)


def twin_map(found: Fit, weights: np.ndarray) -> np.ndarray:
    """Coefficients of the map by a general least-squares search."""
    form, cells = found.model.ddr_map, found.cells
    slopes = 2 + len(form.terms) + np.arange(len(form.transient_terms or ()))

    def residuals(a: np.ndarray) -> np.ndarray:
        off = form.log_ddr(a[None], cells.transitions, cells.knobs)[0]
        weighted = np.sqrt(weights) * (off - np.log(cells.ddr))
        return np.concatenate([weighted, 0.03 * a[slopes]])

    start = found.point.ddr_map[0]
    return scipy.optimize.least_squares(residuals, start, xtol=1e-12, ftol=1e-12).x


def twin_law(found: Fit, log_ddr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Floor, bias, noise and source by a general search of the deviance."""
    gap = OPTIMUM - found.cells.score
    z = np.log(found.cells.transitions) - log_ddr / 2
    reliability = found.problem.weights[0]

    def deviance(logs: np.ndarray) -> float:
        mean = np.exp(logs[0] - np.exp(logs[2]) * (z - np.mean(z)))
        mean = mean + np.exp(logs[1] - log_ddr / 2)
        ratio = gap / mean
        return float(weights * reliability @ (2 * (ratio - 1 - np.log(ratio))))

    _, bias, noise, source = found.point.law[0]
    start = [np.log(bias) - source * np.mean(z), np.log(noise), np.log(source)]
    best = scipy.optimize.minimize(
        deviance, start, method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000},
    ).x  # fmt: skip
    source = np.exp(best[2])
    return np.array(
        [0.0, np.exp(best[0] + source * np.mean(z)), np.exp(best[1]), source]
    )


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
