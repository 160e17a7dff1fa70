"""`theory.nulls`: each on data of its own making, its fallback, its spread."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated import OPTIMUM, noisy_table
from theory import cells, nulls, scores
from theory.cells import Cells
from theory.ddr_map import KnobValues
from theory.fit import Options, fit, two_stage
from theory.fit.two_stage import Fit
from theory.null_data import Forecaster, NullData, null_data

BASE = fit(noisy_table(), Options(asymptote=OPTIMUM, draws=300))
X = BASE.model.ddr_map.log_limit(BASE.point.ddr_map[0], BASE.cells.knobs)
MIDDLE = float(np.mean(X))
LOG_BUDGET = np.log(BASE.cells.transitions)
NAMES = ("constant_ddr", "persistence", "moving_optimum")
RIVALS = ("constant", *NAMES, "broken_power_law", "design_step", "free", "saturating")


def made(y: np.ndarray, *, known: bool = True, noise: float = 0.0) -> NullData:
    """The cells of `BASE` with another outcome y (log gap, or score if not known)."""
    y = y + noise * np.random.default_rng(0).normal(size=len(y))
    data = null_data(BASE)
    score = OPTIMUM - np.exp(y) if known else y
    return dataclasses.replace(
        data,
        y=y,
        cells=dataclasses.replace(data.cells, score=score),
        asymptote=OPTIMUM if known else None,
        seed_sd=0.0,
    )


def outcomes(forecaster: Forecaster, budget: float, knobs: KnobValues) -> np.ndarray:
    """Draws of log gap."""
    return np.log(OPTIMUM - forecaster.forecast(budget, knobs, 5))


KNOBS: KnobValues = {
    "num_envs": np.array([16.0, 64.0, 256.0]),
    "outer_learning_rate": 0.5,
}
NEW_X = BASE.model.ddr_map.log_limit(BASE.point.ddr_map[0], KNOBS)


# Each on data of its own making.


def test_constant_ddr_forecasts_its_own_data() -> None:
    def truth(x: np.ndarray, log_budget: float | np.ndarray) -> np.ndarray:
        return 3 - 0.5 * log_budget + 0.1 * (x - MIDDLE) ** 2

    fitted = nulls.constant_ddr(made(truth(X, LOG_BUDGET)))
    assert fitted.bent
    found = outcomes(fitted, 1e8, KNOBS)
    np.testing.assert_allclose(found, [truth(NEW_X, np.log(1e8))] * 300, rtol=1e-6)


def test_its_best_ddr_does_not_move() -> None:
    data = made(3 - 0.5 * LOG_BUDGET + 0.1 * (X - MIDDLE) ** 2, noise=0.05)
    fitted = nulls.constant_ddr(data)
    knobs: KnobValues = {
        "num_envs": np.geomspace(8, 512, 60),
        "outer_learning_rate": 0.5,
    }
    best = {
        int(np.argmax(fitted.forecast(budget, knobs, 5).mean(axis=0)))
        for budget in (1e5, 1e7, 1e9)
    }
    assert max(best) - min(best) <= 1


def test_moving_optimum_forecasts_its_own_data() -> None:
    def truth(x: np.ndarray, log_budget: float | np.ndarray) -> np.ndarray:
        place = MIDDLE + 0.4 * (log_budget - np.log(2**20))
        return 3 - 0.5 * log_budget + 0.1 * (x - place) ** 2

    fitted = nulls.moving_optimum(made(truth(X, LOG_BUDGET)))
    assert fitted.fallbacks == ()
    found = outcomes(fitted, 1e8, KNOBS)
    np.testing.assert_allclose(found, [truth(NEW_X, np.log(1e8))] * 300, rtol=1e-5)


def test_persistence_repeats_the_nearest_budget() -> None:
    data = made(0.1 * (X - MIDDLE) ** 2 - LOG_BUDGET)
    fitted = dataclasses.replace(nulls.persistence(data), residual_sd=0.0)
    cells_ = BASE.cells
    budgets = np.unique(cells_.budget)
    for asked, nearest in ((1e3, 0), (5e5, 0), (6e5, 1), (1e12, 2)):
        here = cells_.budget == budgets[nearest]
        knobs = {name: values[here] for name, values in cells_.knobs.items()}
        found = outcomes(fitted, asked, knobs)
        np.testing.assert_allclose(found[0], data.y[here], rtol=1e-9)


def test_persistence_interpolates_and_stops_at_the_ends() -> None:
    fitted = nulls.persistence(made(X - LOG_BUDGET))
    fitted = dataclasses.replace(fitted, residual_sd=0.0)
    far: KnobValues = {
        "num_envs": np.array([100.0, 1e9]),
        "outer_learning_rate": 0.6,
    }
    found = outcomes(fitted, 2.0**20, far)[0]
    position = BASE.model.ddr_map.log_limit(BASE.point.ddr_map[0], far)
    assert found[0] == pytest.approx(position[0] - np.log(2**20), abs=1e-9)
    assert found[1] == pytest.approx(np.max(X) - np.log(2**20), abs=1e-9)


def test_a_free_asymptote_scores_upside_down() -> None:
    y = 2 + 0.3 * LOG_BUDGET - 0.1 * (X - MIDDLE) ** 2
    data = made(y, known=False)
    for fitted in (nulls.constant_ddr(data), nulls.moving_optimum(data)):
        found = fitted.forecast(1e8, KNOBS, 5)
        expected = 2 + 0.3 * np.log(1e8) - 0.1 * (NEW_X - MIDDLE) ** 2
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    assert nulls.constant_ddr(data).bent
    assert nulls.moving_optimum(data).fallbacks == ()


# Where a parabola bends the wrong way.


def test_constant_ddr_drops_the_square() -> None:
    fitted = nulls.constant_ddr(made(3 - 0.5 * LOG_BUDGET - 0.1 * (X - MIDDLE) ** 2))
    assert not fitted.bent
    assert fitted.coefficients.shape[1] == 3


def test_moving_optimum_falls_back_on_the_best_cell() -> None:
    budgets = np.unique(BASE.cells.budget)
    sign = np.where(BASE.cells.budget == budgets[1], -1.0, 1.0)
    y = 3 - 0.5 * LOG_BUDGET + 0.1 * sign * (X - MIDDLE + 1) ** 2
    data = made(y)
    fitted = nulls.moving_optimum(data)
    assert fitted.fallbacks == (int(budgets[1]),)
    assert fitted.curvature[0] == pytest.approx(0.1)
    here = BASE.cells.budget == budgets[1]
    apex = X[here][np.argmin(y[here])]
    assert apex == np.max(X)
    places = [MIDDLE - 1, apex, MIDDLE - 1]
    steps = np.log(budgets) - np.mean(np.log(budgets))
    slope = np.polyfit(steps, places, 1)[0]
    assert fitted.place[0, 1] == pytest.approx(slope, abs=1e-6)
    every = nulls.moving_optimum(made(3 - 0.5 * LOG_BUDGET - 0.1 * (X - MIDDLE) ** 2))
    assert every.fallbacks == tuple(int(b) for b in budgets)
    assert np.isfinite(outcomes(every, 1e8, KNOBS)).all()


# The spread.


@pytest.mark.parametrize("name", ["constant_ddr", "moving_optimum"])
def test_the_spread_holds_its_own_data(name: str) -> None:
    rng = np.random.default_rng(1)
    truth = 3 - 0.5 * LOG_BUDGET + 0.1 * (X - MIDDLE) ** 2
    fitted = getattr(nulls, name)(made(truth, noise=0.2))
    inside = []
    for budget in np.unique(BASE.cells.budget):
        here = BASE.cells.budget == budget
        knobs = {k: v[here] for k, v in BASE.cells.knobs.items()}
        draws = outcomes(fitted, float(budget), knobs)
        fresh = truth[here] + 0.2 * rng.normal(size=(40, here.sum()))
        inside.append(
            np.mean([scores.coverage(row, draws, [0.8])[0.8] for row in fresh])
        )
    assert np.mean(inside) == pytest.approx(0.8, abs=0.08)


def test_fewer_seeds_scatter_more() -> None:
    data = dataclasses.replace(null_data(BASE), seed_sd=0.5)
    fitted = dataclasses.replace(nulls.constant_ddr(data), residual_sd=0.0)
    wide, narrow = (
        np.log(OPTIMUM - fitted.forecast(1e7, KNOBS, seeds)).std(axis=0).mean()
        for seeds in (1, 100)
    )
    assert wide > 1.2 * narrow


def test_seed_noise_is_not_counted_twice() -> None:
    data = dataclasses.replace(null_data(BASE), seed_sd=0.5)
    assert set(data.cells.num_seeds) == {5}
    mean = np.zeros((300, 3))
    for seeds, variance in ((5, 0.3**2), (1, 0.3**2 + 0.5**2 * (1 - 1 / 5))):
        y = np.log(OPTIMUM - data.scores(mean, 0.3, 1e7, KNOBS, seeds))
        np.testing.assert_allclose(y.std(axis=0), np.sqrt(variance), rtol=0.01)
    y = np.log(OPTIMUM - data.scores(mean, 0.01, 1e7, KNOBS, 5))
    np.testing.assert_allclose(y.std(axis=0), 0.5 / np.sqrt(5), rtol=0.01)


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1))
def test_order_of_cells_does_not_matter(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(BASE.cells))
    data = null_data(BASE)
    moved = dataclasses.replace(
        data,
        x=data.x[order],
        log_budget=data.log_budget[order],
        y=data.y[order],
        weights=data.weights[:, order],
        cells=data.cells.select(order),
    )
    for name in NAMES:
        one, two = (getattr(nulls, name)(d) for d in (data, moved))
        np.testing.assert_allclose(
            one.forecast(1e7, KNOBS, 5), two.forecast(1e7, KNOBS, 5), rtol=1e-6
        )


# Against the law.


def shaped(y: np.ndarray, seed: int) -> Cells:
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(y))
    return dataclasses.replace(BASE.cells, score=OPTIMUM - np.exp(y + noise))


def skills(fitted: Fit, held_out: Cells) -> dict[str, scores.Skill]:
    """Skill of the law over every null on other cells."""
    arguments = (held_out.transitions, held_out.knobs, 5)
    law = fitted.model.forecast(fitted.draws, *arguments).predictive.score
    observed = scores.outcome(held_out.score, OPTIMUM)

    def crps(draws: np.ndarray) -> np.ndarray:
        return scores.crps(observed, scores.outcome(draws, OPTIMUM))

    return {
        name: scores.skill(crps(law), crps(null.forecast(*arguments)), held_out.config)
        for name, null in nulls.fit_all(fitted).items()
    }


def test_where_the_optimum_does_not_move_the_law_claims_nothing() -> None:
    def truth(log_budget: np.ndarray) -> np.ndarray:
        return 3 - 0.5 * log_budget + 0.1 * (X - MIDDLE) ** 2

    options = Options(asymptote=OPTIMUM, draws=100)
    fitted = two_stage.fit_cells(shaped(truth(LOG_BUDGET), 1), options)
    later = dataclasses.replace(
        shaped(truth(LOG_BUDGET + np.log(16)), 2),
        transitions=16 * BASE.cells.transitions,
    )
    assert skills(fitted, later)["constant_ddr"].low <= 0


def test_where_the_law_holds_it_beats_them_all() -> None:
    made_ = noisy_table()
    early = cells.from_table(made_.select(made_["budget"] < 2**22))
    fitted = two_stage.fit_cells(early, Options(asymptote=OPTIMUM, draws=100))
    late = cells.from_table(made_.select(made_["budget"] == 2**22))
    found = skills(fitted, late)
    assert tuple(found) == RIVALS
    assert all(found[name].low > 0 for name in ("constant", *NAMES))
