"""Rivals of the law: each on data of its own making, the guard and the ceiling."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated import (
    DESIGN,
    OPTIMUM,
    QUIET,
    SLOPES,
    exact_table,
    noisy_table,
    simulate,
)
from tests.support.strategies import positive_floats
from theory import cells as cells_module
from theory import laws, nulls, scores
from theory.cells import Cells
from theory.ddr_map import KnobValues
from theory.fit import Options, assembly, fit, held_out
from theory.fit.two_stage import fit_cells
from theory.null_data import FURTHEST, Forecaster, NullData, draws_of, null_data
from theory.rivals import broken, design_step, guarded, oracle, other_law
from theory.table import RunTable, TableError

OPTIONS = Options(asymptote=OPTIMUM, draws=60)
BASE = fit(noisy_table(), OPTIONS)
DATA = null_data(BASE)
KNOBS: KnobValues = {
    "num_envs": np.array([16.0, 64.0, 256.0]),
    "outer_learning_rate": 0.5,
}


def made(y: np.ndarray) -> NullData:
    """The cells of `BASE` with another log gap and no seed noise."""
    cells = dataclasses.replace(DATA.cells, score=OPTIMUM - np.exp(y))
    return dataclasses.replace(DATA, y=y, cells=cells, seed_sd=0.0)


def quiet(rival: Forecaster) -> Forecaster:
    return dataclasses.replace(rival, residual_sd=0.0)  # type: ignore[type-var]


# Neither budget nor knobs.


def test_constant_is_the_weighted_mean() -> None:
    fitted = nulls.constant(DATA)
    for row, weights in enumerate(DATA.weights):
        mean = np.sum(weights * DATA.y) / np.sum(weights)
        assert fitted.level[row] == pytest.approx(mean)
    found = quiet(nulls.constant(made(0 * DATA.y + 2.0))).forecast(1e9, KNOBS, 5)
    np.testing.assert_allclose(OPTIMUM - found, math.exp(2.0), rtol=1e-9)


# One break.


def test_the_joint_law_is_a_broken_power_law() -> None:
    source, noise, bias = 0.8, 12.0, 300.0
    law = laws.JointLaw(0.0, bias, noise, source)
    x, log_budget = np.linspace(10, 20, 7), np.linspace(9, 20, 7)
    place = (math.log(bias) - math.log(noise)) / source
    columns = broken._columns(
        x, log_budget, np.array([[place, (1 + source) / (2 * source), 1 / source]])
    )[0]
    # Before the break the bias: p = s/2, c₀ = s; b is A's logarithm.
    y = columns @ [math.log(bias), source / 2, -source, source]
    exact = np.log(law.gap(np.exp(log_budget), np.exp(x)))
    np.testing.assert_allclose(y, exact, rtol=1e-9)


def test_broken_power_law_forecasts_its_own_data() -> None:
    origin = float(np.mean(DATA.x)), float(np.mean(DATA.log_budget))
    for chosen in (7, 60, 140):
        breaks = broken._grid(DATA.log_budget - origin[1])[chosen : chosen + 1]
        truth = nulls.broken_power_law(DATA)
        truth = dataclasses.replace(
            truth, breaks=breaks, coefficients=np.array([[0.0, 0.2, -0.8, 0.6]])
        )
        fitted = nulls.broken_power_law(made(truth.mean(DATA.x, DATA.log_budget)[0]))
        log_budget = np.full(3, math.log(1e8))
        x = DATA.position(KNOBS)
        np.testing.assert_allclose(
            fitted.mean(x, log_budget)[0], truth.mean(x, log_budget)[0], atol=1e-3
        )


def test_every_draw_is_a_weighted_least_squares_fit() -> None:
    fitted = nulls.broken_power_law(DATA)
    centre, middle = fitted.origin
    for row in (0, 1, 30):
        columns = broken._columns(
            DATA.x - centre, DATA.log_budget - middle, fitted.breaks[row : row + 1]
        )[0]
        root = np.sqrt(DATA.weights[row])
        slow = np.linalg.lstsq(columns * root[:, None], DATA.y * root, rcond=None)[0]
        np.testing.assert_allclose(columns @ fitted.coefficients[row], columns @ slow,
                                   atol=1e-4)  # fmt: skip


@settings(max_examples=10)
@given(positive_floats(1e-3, 1e3), positive_floats(1e-3, 1e3), positive_floats())
def test_units_move_the_curve_and_no_more(
    budget: float, ddr: float, gap: float
) -> None:
    """Property 38: budgets, DDR and gaps in other units move only the levels."""
    shift = {"x": math.log(ddr), "log_budget": math.log(budget), "y": math.log(gap)}
    moved = dataclasses.replace(
        DATA, **{name: getattr(DATA, name) + by for name, by in shift.items()}
    )
    one, two = (nulls.broken_power_law(data) for data in (DATA, moved))
    there = DATA.x + shift["x"], DATA.log_budget + 3 + shift["log_budget"]
    np.testing.assert_allclose(
        two.mean(*there)[0],
        one.mean(DATA.x, DATA.log_budget + 3)[0] + shift["y"],
        atol=1e-5,
    )


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1))
def test_order_of_cells_does_not_matter(seed: int) -> None:
    """Property 37: a permutation of cells leaves rivals unchanged."""
    order = np.random.default_rng(seed).permutation(len(DATA.cells))
    moved = dataclasses.replace(
        DATA,
        x=DATA.x[order],
        log_budget=DATA.log_budget[order],
        y=DATA.y[order],
        weights=DATA.weights[:, order],
        cells=DATA.cells.select(order),
    )
    for make in (nulls.constant, nulls.broken_power_law):
        one, two = (make(data).forecast(1e7, KNOBS, 5) for data in (DATA, moved))
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_a_wild_extrapolation_can_still_be_scored() -> None:
    fitted = nulls.broken_power_law(DATA)
    wild = dataclasses.replace(fitted, coefficients=fitted.coefficients * 1e3)
    found = np.log(OPTIMUM - wild.forecast(1e30, KNOBS, 5))
    assert np.all(np.isfinite(found))
    reach = np.max(np.abs(found - np.mean(DATA.y)))
    assert reach == pytest.approx(FURTHEST + np.ptp(DATA.y) / 2, rel=0.2)


# The law without DDR.


def test_step_per_sample_of_the_design() -> None:
    one = design_step.log_step_per_sample({"num_envs": 64.0})
    knobs: KnobValues = {
        "num_envs": 128.0,
        "outer_learning_rate": 0.5,
        "clip_epsilon": 0.1,
    }
    two = design_step.log_step_per_sample({**knobs, "com": 3.0, "gae_lambda": -1.0})
    assert float((two - one)[0]) == pytest.approx(math.log(0.5 * 0.5 * 0.1 / 4))


@given(positive_floats(), positive_floats(), positive_floats())
def test_the_step_depends_on_sigma_over_n(n: float, sigma: float, k: float) -> None:
    one = design_step.log_step_per_sample({"num_envs": n, "outer_learning_rate": sigma})
    two = design_step.log_step_per_sample(
        {"num_envs": k * n, "outer_learning_rate": k * sigma}
    )
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_where_ddr_is_what_the_design_says_the_rival_is_the_law() -> None:
    slopes = {"num_envs": 2.0, "outer_learning_rate": -2.0}
    table = simulate(noise=QUIET, slopes=slopes, transient=0.0)
    fitted = fit(table, OPTIONS)
    rival = design_step.design_step(fitted)
    found, law = (
        f.model.expected(f.point, 1e8, KNOBS).gap[0] for f in (rival.fit, fitted)
    )
    np.testing.assert_allclose(found, law, rtol=1e-5)


def test_where_it_is_not_the_law_is_better() -> None:
    """DDR ∝ N^1.2 here, not N²; measuring it is worth something."""
    early, late = at(noisy_table(), slice(0, 2)), at(noisy_table(), slice(2, 3))
    fitted, tested = fit_cells(early, OPTIONS), late
    law = crps(other_law.Refitted(fit=fitted), tested)
    rival = crps(design_step.design_step(fitted), tested)
    assert SLOPES["num_envs"] == 1.2
    assert scores.skill(law, rival, tested.config).low > 0


def at(table: RunTable, budgets: slice) -> Cells:
    """Cells at some of the table's budgets."""
    return cells_module.from_table(
        table.select(np.isin(table["budget"], table.budgets()[budgets]))
    )


def crps(forecaster: Forecaster, tested: Cells) -> np.ndarray:
    observed = scores.outcome(tested.score, OPTIMUM)
    draws = draws_of(forecaster.forecast, tested)
    return scores.crps(observed, scores.outcome(draws, OPTIMUM))


# Other families.


@pytest.mark.parametrize("family", ["free", "saturating"])
def test_another_law_is_the_fit_of_that_family(family: str) -> None:
    rival = nulls.other_law(BASE, family)
    direct = fit_cells(BASE.cells, dataclasses.replace(OPTIONS, family=family))
    expected = direct.model.forecast(direct.draws, 1e8, KNOBS, 3).predictive.score
    np.testing.assert_array_equal(rival.forecast(1e8, KNOBS, 3), expected)


def test_all_rivals_but_the_law_itself() -> None:
    free = fit(noisy_table(), dataclasses.replace(OPTIONS, family="free"))
    assert "joint" not in nulls.fit_all(BASE)
    names = set(nulls.fit_all(free))
    assert names == {
        "constant", "constant_ddr", "persistence", "moving_optimum",
        "broken_power_law", "design_step", "joint", "saturating",
    }  # fmt: skip


def test_each_cell_has_its_own_seeds() -> None:
    cells = dataclasses.replace(
        BASE.cells, num_seeds=np.where(np.arange(len(BASE.cells)) % 2, 1, 5)
    )
    rival = nulls.constant_ddr(DATA)
    found = draws_of(rival.forecast, cells)
    for cell in range(0, len(cells), 7):
        knobs = {name: values[cell] for name, values in cells.knobs.items()}
        one = rival.forecast(cells.transitions[cell], knobs, int(cells.num_seeds[cell]))
        np.testing.assert_allclose(found[:, cell], one[:, 0], rtol=1e-12)


# The ceiling.


def test_the_oracle_knows_both() -> None:
    table = exact_table()
    early, late = at(table, slice(0, 2)), at(table, slice(2, 3))
    found = oracle.oracle(fit_cells(early, OPTIONS), late)
    whole = fit_cells(cells_module.from_table(table), OPTIONS)
    np.testing.assert_allclose(found.fit.point.law, whole.point.law, rtol=1e-6)
    assert len(found.fit.cells) == len(whole.cells)
    assert len(np.unique(found.fit.cells.config)) == len(np.unique(early.config))


def test_no_forecast_beats_the_oracle() -> None:
    table = noisy_table()
    early, late = at(table, slice(0, 2)), at(table, slice(2, 3))
    fitted = fit_cells(early, OPTIONS)
    best = np.mean(crps(oracle.oracle(fitted, late), late))
    data = null_data(fitted)
    assert np.mean(crps(other_law.Refitted(fit=fitted), late)) > best
    assert all(np.mean(crps(make(data), late)) > best for make in nulls.CURVES)


# The guard.


MIDDLE = 4e7
CURVE = laws.FreeLaw(0.0, 0.5 * MIDDLE**-0.25, 0.5 * MIDDLE**0.25, 0.0, 0.25, 0.25)


def still(seed: int, factor: int) -> RunTable:
    """Runs at a multiple of the usual budgets, gap = B^(−0.4)·f(D)."""
    budgets = tuple(factor * b for b in DESIGN.budgets)
    design = dataclasses.replace(DESIGN, budgets=budgets)
    table = simulate(seed + 100 * factor, law=CURVE, design=design)
    gap = (OPTIMUM - table["score"]) * (table["budget"] / 1e6) ** -0.4
    return RunTable({**table.data, "score": OPTIMUM - gap})


def interval(forecaster: Forecaster, fitted: object, tested: Cells) -> scores.Skill:
    """Skill over `constant_ddr`."""
    null = nulls.constant_ddr(null_data(fitted))  # type: ignore[arg-type]
    return scores.skill(crps(forecaster, tested), crps(null, tested), tested.config)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_on_constant_optimum_data_the_guarded_law_claims_nothing(seed: int) -> None:
    """Property 40, with the law itself as the control that fails."""
    fitted = fit(still(seed, 1), OPTIONS)
    tested = cells_module.from_table(still(seed, 16))
    found = guarded.guarded(fitted)
    assert not found.is_law
    assert found.skill is not None
    skill = interval(found, fitted, tested)
    assert skill.low <= 0 <= skill.high
    with pytest.raises(AssertionError):
        assert interval(other_law.Refitted(fit=fitted), fitted, tested).high >= 0


def test_where_the_law_holds_it_earns_its_claim() -> None:
    found = guarded.guarded(BASE)
    assert found.is_law
    assert found.skill is not None
    assert found.skill.low > 0
    law = other_law.Refitted(fit=BASE).forecast(1e8, KNOBS, 5)
    np.testing.assert_array_equal(found.forecast(1e8, KNOBS, 5), law)


def test_two_budgets_prove_nothing() -> None:
    found = guarded.guarded(fit_cells(at(noisy_table(), slice(0, 2)), OPTIONS))
    assert found.skill is None
    assert not found.is_law


# Side by side.


def test_all_are_scored_side_by_side() -> None:
    table = noisy_table()
    late = table["budget"] == table.budgets()[-1]
    training = table.select(~late)
    fitted = fit_cells(cells_module.from_table(training), OPTIONS)
    calibration = assembly.calibration(fitted, training)
    seen = held_out.evaluate(fitted, calibration, table.select(late))
    models = seen["models"]
    assert isinstance(models, dict)
    rivals = set(nulls.fit_all(fitted))
    assert set(models) == {"law", "guarded", "oracle"} | rivals
    json.dumps(seen, allow_nan=False)
    cells = len(BASE.cells) // 3
    for name, scored in models.items():
        assert sum(scored["pit"]) == cells
        # What bridge warns of by `skill_of_law` are rivals that the law must beat.
        assert ("skill_of_law" in scored) == (name in rivals)
        assert ("skill_of_guarded" in scored) == (name in rivals)
    assert models["constant_ddr"]["skill_of_law"]["low"] > 0
    bands = seen["coverage_bands"]
    assert isinstance(bands, dict)
    assert bands["0.9"] == scores.coverage_band(cells, 0.9)


# Refusals.


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least one"):
        design_step.log_step_per_sample({})
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"num_envs = .* should be positive"):
            design_step.log_step_per_sample({"num_envs": bad})
    with pytest.raises(TableError, match="family"):
        nulls.other_law(BASE, "quadratic")
    without = dataclasses.replace(BASE.cells, knobs={"num_envs": np.ones(45)})
    with pytest.raises(ValueError, match="no 'outer_learning_rate'"):
        oracle.together(BASE.cells, without)
