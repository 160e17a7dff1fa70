"""`theory.ddr_map` and its fit: knobs → DDR."""

import dataclasses
import json
import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated import (
    QUIET,
    SLOPES,
    SMALL,
    exact_table,
    noisy_table,
    simulate,
)
from tests.support.strategies import positive_floats
from theory import cells
from theory.cells import Cells
from theory.ddr_map import DdrMap, KnobValues, MapError
from theory.fit import NotConverged, Status, levenberg, map_fit
from theory.simulate_table import CENTRES, Design, Noise

MAP = DdrMap(
    terms=("num_envs", "clip_epsilon", "num_envs^2", "num_envs*clip_epsilon"),
    transient_terms=("num_envs",),
    centres={"num_envs": 64.0, "clip_epsilon": 0.2},
)
COEFFICIENTS = np.array([14.0, 1.2, -0.6, 0.05, 0.1, 12.0, 0.3])
knob_values = st.fixed_dictionaries(
    {"num_envs": positive_floats(1, 1e6), "clip_epsilon": positive_floats(1e-3, 1)}
)
budgets = positive_floats(1e3, 1e15)


# The map itself.


@given(knob_values, budgets)
def test_map_equals_its_formula(knobs: dict, budget: float) -> None:
    x = math.log(knobs["num_envs"] / 64)
    y = math.log(knobs["clip_epsilon"] / 0.2)
    limit = 14 + 1.2 * x - 0.6 * y + 0.05 * x * x + 0.1 * x * y
    tau = math.exp(12 + 0.3 * x)
    expected = limit - math.log1p(tau / budget)
    found = MAP.log_ddr(COEFFICIENTS, budget, knobs)
    assert found.shape == (1,)
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert MAP.log_limit(COEFFICIENTS, knobs)[0] == pytest.approx(limit, rel=1e-12)


@given(knob_values, budgets, st.floats(1.001, 1e6))
def test_more_budget_brings_ddr_closer_to_its_limit_from_below(
    knobs: dict, budget: float, factor: float
) -> None:
    limit = MAP.log_limit(COEFFICIENTS, knobs)[0]
    low = MAP.log_ddr(COEFFICIENTS, budget, knobs)[0]
    high = MAP.log_ddr(COEFFICIENTS, budget * factor, knobs)[0]
    assert low <= high <= limit
    assert MAP.log_ddr(COEFFICIENTS, 1e300, knobs)[0] == pytest.approx(limit)


@given(knob_values, st.sampled_from(["num_envs", "clip_epsilon"]))
def test_slope_is_the_derivative(knobs: dict, knob: str) -> None:
    step = 1e-5
    ends = np.exp(np.log(knobs[knob]) + np.array([-step, step]))
    low, high = MAP.log_limit(COEFFICIENTS, {**knobs, knob: ends})
    found = MAP.slope(COEFFICIENTS, knob, knobs)
    assert found[0] == pytest.approx((high - low) / (2 * step), abs=1e-4)


def test_many_draws_are_one_draw_each() -> None:
    draws = COEFFICIENTS + np.random.default_rng(0).normal(size=(5, 7)) / 10
    knobs: KnobValues = {"num_envs": np.array([16.0, 64.0]), "clip_epsilon": 0.1}
    together = MAP.log_ddr(draws, 1e6, knobs)
    assert together.shape == (5, 2)
    for draw, coefficients in enumerate(draws):
        alone = MAP.log_ddr(coefficients, 1e6, knobs)
        np.testing.assert_allclose(together[draw], alone, rtol=1e-14)


def test_a_map_is_three_short_lists() -> None:
    text = json.dumps([dataclasses.asdict(MAP), COEFFICIENTS.tolist()])
    form, numbers = json.loads(text)
    again = DdrMap(
        terms=tuple(form["terms"]),
        transient_terms=tuple(form["transient_terms"]),
        centres=form["centres"],
    )
    assert again == MAP
    assert len(MAP.coefficient_names) == len(numbers)
    knobs = {"num_envs": 32.0, "clip_epsilon": 1.0}
    np.testing.assert_array_equal(
        again.log_ddr(np.array(numbers), 1e6, knobs),
        MAP.log_ddr(COEFFICIENTS, 1e6, knobs),
    )


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_impossible_knobs_are_refused(value: float) -> None:
    with pytest.raises(MapError, match=r"num_envs = .* should be positive and finite"):
        MAP.log_limit(COEFFICIENTS, {"num_envs": value, "clip_epsilon": 0.2})


def test_missing_and_unknown_knobs_are_refused() -> None:
    with pytest.raises(MapError, match="'clip_epsilon' is missing"):
        MAP.log_limit(COEFFICIENTS, {"num_envs": 64})
    with pytest.raises(MapError, match="no knob 'com'"):
        MAP.slope(COEFFICIENTS, "com", {"com": 1.0})


# Its fit.


def at_reference(form: DdrMap, coefficients: np.ndarray) -> float:
    return float(form.log_limit(coefficients, CENTRES)[0])


def slope_of(fitted: map_fit.MapFit, name: str) -> float:
    return fitted.coefficients[0, fitted.ddr_map.coefficient_names.index(name)]


def test_noiseless_data_give_the_truth_back() -> None:
    fitted = map_fit.fit_map(cells.from_table(exact_table()))
    assert fitted.ddr_map.transient_terms == ("num_envs", "outer_learning_rate")
    for knob, slope in SLOPES.items():
        assert slope_of(fitted, f"log_ddr/{knob}") == pytest.approx(slope, abs=1e-3)
    assert slope_of(fitted, "log_transient/num_envs") == pytest.approx(0.3, abs=1e-3)
    limit = at_reference(fitted.ddr_map, fitted.coefficients[0])
    assert limit == pytest.approx(math.log(1.3e6), abs=1e-3)
    assert fitted.residual_sd < 1e-3


def test_a_transient_is_not_invented() -> None:
    fitted = map_fit.fit_map(cells.from_table(simulate(1, transient=0.0)))
    assert fitted.ddr_map.transient_terms is None


def bend(data: Cells, curvature: float) -> Cells:
    x = np.log(data.knobs["num_envs"] / 64)
    return dataclasses.replace(data, ddr=data.ddr * np.exp(curvature * x**2))


def test_squares_are_kept_where_they_earn_it() -> None:
    data = cells.from_table(noisy_table())
    assert "num_envs^2" not in map_fit.fit_map(data).ddr_map.terms
    bent = map_fit.fit_map(bend(data, 0.2))
    assert "num_envs^2" in bent.ddr_map.terms
    assert slope_of(bent, "log_ddr/num_envs^2") == pytest.approx(0.2, abs=0.04)


def test_products_are_kept_where_they_earn_it() -> None:
    data = cells.from_table(noisy_table())
    x = np.log(data.knobs["num_envs"] / 64) * np.log(data.knobs["outer_learning_rate"])
    term = "num_envs*outer_learning_rate"
    assert term not in map_fit.fit_map(data).ddr_map.terms
    bent = dataclasses.replace(data, ddr=data.ddr * np.exp(0.3 * x))
    fitted = map_fit.fit_map(bent)
    assert term in fitted.ddr_map.terms
    assert slope_of(fitted, f"log_ddr/{term}") == pytest.approx(0.3, abs=0.06)


def test_two_levels_get_no_square() -> None:
    design = dataclasses.replace(SMALL, num_envs=(16, 256))
    data = cells.from_table(simulate(1, design=design))
    assert map_fit.curved_terms(data) == ["num_envs*outer_learning_rate"]
    three = cells.from_table(noisy_table())
    assert map_fit.curved_terms(three)[1:] == ["num_envs^2", "outer_learning_rate^2"]


def test_weighted_fit_equals_a_general_solver() -> None:
    data = cells.from_table(noisy_table())
    form = dataclasses.replace(map_fit.base_form(data), transient_terms=("num_envs",))
    weights = np.random.default_rng(2).exponential(size=(1, len(data)))
    fitted = map_fit.refit(form, data, weights)

    def residuals(theta: np.ndarray) -> np.ndarray:
        model = form.log_ddr(theta, data.transitions, data.knobs)
        prior = map_fit.SLOPE_PRIOR * theta[-1:]
        return np.append(np.sqrt(weights[0]) * (model - np.log(data.ddr)), prior)

    start = fitted.coefficients[0] + 0.1
    general = scipy.optimize.least_squares(residuals, start, xtol=1e-12, ftol=1e-12)
    np.testing.assert_allclose(fitted.coefficients[0], general.x, atol=1e-5)


def test_left_out_error_equals_a_loop() -> None:
    data = cells.from_table(noisy_table())
    form = map_fit.base_form(data)
    squares = []
    for config in np.unique(data.config):
        kept = data.config != config
        fitted = map_fit.refit(form, data.select(kept), np.ones((1, int(kept.sum()))))
        rest = data.select(~kept)
        predicted = form.log_ddr(fitted.coefficients[0], rest.transitions, rest.knobs)
        squares.append((np.log(rest.ddr) - predicted) ** 2)
    expected = np.sqrt(np.mean(np.concatenate(squares)))
    assert map_fit.left_out_error(form, data) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(positive_floats(1e-3, 1e3), positive_floats(1e-3, 1e3), st.randoms())
def test_units_and_order_move_only_what_they_must(
    ddr_unit: float, budget_unit: float, random: object
) -> None:
    data = cells.from_table(noisy_table())
    order = np.array(random.sample(range(len(data)), len(data)))  # type: ignore[attr-defined]
    moved = dataclasses.replace(
        data.select(order),
        ddr=data.ddr[order] * ddr_unit,
        transitions=data.transitions[order] * budget_unit,
    )
    one, two = map_fit.fit_map(data), map_fit.fit_map(moved)
    assert one.ddr_map == two.ddr_map
    change = two.coefficients[0] - one.coefficients[0]
    expected = np.zeros_like(change)
    expected[0] = math.log(ddr_unit)
    names = one.ddr_map.coefficient_names
    expected[names.index("log_transient")] = math.log(budget_unit)
    np.testing.assert_allclose(change, expected, atol=2e-4)


def test_confounded_knobs_are_refused() -> None:
    data = cells.from_table(noisy_table())
    tied = {**data.knobs, "minibatch_size": 8 * data.knobs["num_envs"]}
    with pytest.raises(NotConverged, match="vary only together") as caught:
        map_fit.fit_map(dataclasses.replace(data, knobs=tied))
    assert caught.value.status is Status.SINGULAR


def test_too_few_configurations_are_refused() -> None:
    design = Design(num_envs=(16, 64), outer_learning_rate=(1.0,), seeds=2)
    data = cells.from_table(simulate(1, design=design)).select(
        np.array([True, True, True, False, False, False])
    )
    with pytest.raises(NotConverged) as caught:
        map_fit.fit_map(data)
    assert caught.value.status in (Status.TOO_FEW, Status.SINGULAR)


# Its solver.


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_levenberg_equals_a_general_solver_within_a_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 3, size=20)
    y = 2 * np.exp(-1.3 * x) + 0.05 * rng.normal(size=20)

    def evaluate(theta: np.ndarray, _: np.ndarray) -> levenberg.Evaluation:
        decay = np.exp(-theta[:, 1:] * x)
        jacobian = np.stack([decay, -theta[:, :1] * x * decay], axis=-1)
        return theta[:, :1] * decay - y, jacobian

    lower, upper = np.array([0.0, 0.1]), np.array([1.9, 4.0])
    starts = np.array([[1.0, 1.0], [0.5, 3.0]])
    theta, cost, settled = levenberg.minimise(evaluate, starts, lower, upper)
    general = scipy.optimize.least_squares(
        lambda t: evaluate(t[None], np.zeros(1, int))[0][0],
        [1.0, 1.0],
        bounds=(lower, upper),
    )
    assert settled.all()
    np.testing.assert_allclose(cost, 2 * general.cost, rtol=1e-5)
    np.testing.assert_allclose(theta, [general.x] * 2, atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_bound_does_not_stop_what_is_free(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(12, 1))
    columns = base + 0.05 * rng.normal(size=(12, 3))  # hardly told apart
    target = columns @ np.array([3.0, -2.0, 1.0]) + 0.1 * rng.normal(size=12)
    lower, upper = np.full(3, -0.5), np.full(3, 1.5)

    def evaluate(theta: np.ndarray, _: np.ndarray) -> levenberg.Evaluation:
        return theta @ columns.T - target, columns[None] + 0 * theta[:, None]

    start = np.zeros((1, 3))
    _, cost, settled = levenberg.minimise(evaluate, start, lower, upper)
    general = scipy.optimize.lsq_linear(columns, target, bounds=(lower, upper))
    assert settled.all()
    assert cost[0] == pytest.approx(2 * general.cost, rel=1e-4)


def test_simulated_ddr_noise_is_what_it_says() -> None:
    quiet = cells.from_table(simulate(0, noise=QUIET)).ddr
    loud = Noise(config=0.0, seed=0.0, ddr_config=0.3, ddr_seed=0.0)
    design = Design(num_envs=tuple(range(16, 216)), outer_learning_rate=(1.0,))
    small = cells.from_table(simulate(1, design=design, noise=loud))
    exact = cells.from_table(simulate(1, design=design, noise=QUIET))
    deviation = np.log(small.ddr / exact.ddr)
    assert np.all(quiet > 0)
    assert np.std(deviation) == pytest.approx(0.3, rel=0.2)
