"""A fit finds its own truth: order, units, simulate-and-refit, endogenous DDR, floors.

Properties 37, 38 and 39, and the two regressions that go wrong.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated import OPTIMUM, SMALL, TRUTH, noisy_table, simulate
from tests.support.statistical import assert_mean, assert_proportion
from tests.support.strategies import positive_floats
from theory import cells, laws
from theory.design_study.scenarios import JOINT, SCATTER, TRAINING
from theory.fit import Options, fit, law_fit, map_fit, simulate_refit, two_stage
from theory.fit.named import OPTIMUM_EXPONENT, named
from theory.fit.options import MEASURED
from theory.fit.status import NotConverged
from theory.simulate_table import Design, Noise, from_quadratic, power_law
from theory.table import RunTable

KNOWN = Options(asymptote=OPTIMUM, draws=20)


# Invariances.


@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_order_of_rows_changes_nothing(seed: int) -> None:
    """Property 37: neither the estimate nor its draws see the order of rows."""
    order = np.random.default_rng(seed).permutation(len(noisy_table()))
    one, two = fit(noisy_table(), KNOWN), fit(noisy_table().select(order), KNOWN)
    for rows in ("point", "draws", "left_out"):
        for field in dataclasses.fields(one.point):
            np.testing.assert_allclose(
                getattr(getattr(one, rows), field.name),
                getattr(getattr(two, rows), field.name),
                rtol=1e-6,
                atol=1e-9,
            )


@settings(max_examples=4)
@given(positive_floats(1e-2, 1e2), positive_floats(1e-2, 1e2), positive_floats(0.1, 10))
def test_units_move_prefactors_in_their_way(
    ddr_unit: float, budget_unit: float, gap_unit: float
) -> None:
    """Property 38: scaling D, B and the gap leaves exponents and scatter alone."""
    data = cells.from_table(noisy_table())
    moved = dataclasses.replace(
        data,
        ddr=data.ddr * ddr_unit,
        transitions=data.transitions * budget_unit,
        score=OPTIMUM - gap_unit * (OPTIMUM - data.score),
        seed_variance=data.seed_variance * gap_unit**2,
    )
    one, two = (two_stage.fit_cells(d, KNOWN) for d in (data, moved))
    before, after = (named(f.model, f.point) for f in (one, two))
    source = before["source"][0]
    z_unit = budget_unit / ddr_unit**0.5
    factors = {
        "bias": gap_unit * z_unit**source,
        "noise": gap_unit * ddr_unit**0.5,
        "source": 1.0,
        OPTIMUM_EXPONENT: 1.0,
    }
    for name, factor in factors.items():
        np.testing.assert_allclose(after[name], before[name] * factor, rtol=1e-3)
    added = {"log_ddr": np.log(ddr_unit), "log_transient": np.log(budget_unit)}
    for name in one.model.ddr_map.coefficient_names:
        expected = before[name] + added.get(name, 0.0)
        np.testing.assert_allclose(after[name], expected, atol=2e-4)
    for name in ("config_sd", "seed_sd", "ddr_sd"):
        np.testing.assert_allclose(
            getattr(two.point, name), getattr(one.point, name), rtol=1e-3, atol=1e-6
        )


# Simulate and refit.


def test_a_refit_of_simulated_tables_finds_what_was_put_in() -> None:
    """Property 39: no bias that matters, and 95 % sets hold the truth as they say."""
    truth = fit(noisy_table(), dataclasses.replace(KNOWN, draws=10))
    tables = 24
    found = simulate_refit.refit_simulated(truth, tables, seed=4)
    for name in ("noise", "source", OPTIMUM_EXPONENT, "log_ddr", "log_ddr/num_envs"):
        recovery = found[name]
        assert_mean(recovery.estimates, recovery.truth, effect=3 * recovery.sd)
        assert_proportion(int(np.sum(recovery.held)), tables, 0.95, effect=0.5)
        assert recovery.coverage == np.mean(recovery.held)
        assert recovery.bias == pytest.approx(
            np.mean(recovery.estimates) - recovery.truth
        )
    with pytest.raises(AssertionError):
        assert_mean(found["noise"].estimates, 1.1 * found["noise"].truth, effect=1.0)


def test_simulated_cells_scatter_as_the_model_says() -> None:
    truth = fit(noisy_table(), KNOWN)
    rng = np.random.default_rng(1)
    made = [simulate_refit.simulate(truth, rng) for _ in range(400)]
    gaps = np.array([OPTIMUM - cell.score for cell in made])
    exact = truth.law_fit.solution.mean[0]
    assert_mean(np.mean(gaps / exact, axis=1), 1.0, effect=0.01)
    variance = truth.model.seed_variance(
        truth.point, truth.cells.transitions, truth.cells.knobs
    )[0]
    expected = truth.point.config_sd[0] ** 2 + variance / truth.cells.num_seeds
    np.testing.assert_allclose(np.var(gaps / exact, axis=0), expected, rtol=0.5)
    seeds = np.array(
        [cell.seed_variance / (OPTIMUM - cell.score) ** 2 for cell in made]
    )
    np.testing.assert_allclose(np.mean(seeds, axis=0), variance, rtol=0.3, atol=1e-4)


def test_a_free_asymptote_is_simulated_too() -> None:
    truth = fit(noisy_table(), dataclasses.replace(KNOWN, asymptote=None, draws=10))
    found = simulate_refit.refit_simulated(truth, 8, seed=1)
    assert abs(found["asymptote"].bias) < 0.02
    assert found["floor"].coverage == 1


def test_too_few_simulated_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 1; it must be at least 2"):
        simulate_refit.refit_simulated(fit(noisy_table(), KNOWN), 1)


# Endogenous DDR.


def plateaus(seed: int) -> RunTable:
    """A narrow sweep of plateaus: lucky seeds have a larger DDR and a smaller gap."""
    design = Design(
        num_envs=(64,),
        outer_learning_rate=(0.8, 0.9, 1.0, 1.1, 1.25),
        budgets=(2**20, 2**21, 2**22),
        seeds=30,
    )
    noise = Noise(config=0.02, seed=0.5, ddr_config=0.02, ddr_seed=0.3, shared=-0.9)
    law = laws.JointLaw(0.0, 1e-6, 12.0, 2.0)
    return simulate(seed, design=design, noise=noise, law=law, transient=0.0)


def test_knobs_as_instruments_mend_the_exponent_that_measured_ddr_bends() -> None:
    """A true −½ is −.8 or steeper in a regression of log gap on log measured DDR."""
    naive, instrumented = [], []
    for seed in range(24):
        table = plateaus(seed)
        log_gap = np.log(OPTIMUM - table["score"])
        naive.append(np.polyfit(np.log(table["ddr"]), log_gap, 1)[0])
        data = cells.from_table(table)
        found = map_fit.fit_map(data)
        mapped = found.ddr_map.log_limit(found.coefficients, data.knobs)[0]
        log_mean = np.log(OPTIMUM - data.score)
        instrumented.append(np.polyfit(mapped, log_mean, 1)[0])
    assert_mean(np.array(instrumented), -0.5, effect=0.3)
    assert np.mean(naive) < -0.75
    with pytest.raises(AssertionError):
        assert_mean(np.array(naive), -0.5, effect=0.3)


def test_the_transients_share_of_ddr_bends_the_source() -> None:
    """Whole-run DDR turns a true source of 1 into 1.5, p_DDR from 1 into 1.2.

    Exact quadratics; the limit D∞ of the map takes the transient's KL out.
    """
    design = Design(
        num_envs=(16, 64, 256, 1024),
        outer_learning_rate=(0.125, 0.25, 0.5, 1.0),
        budgets=(2**18, 2**20, 2**22, 2**24),
        seeds=2,
    )
    noise = Noise(config=0.05, seed=0.1, ddr_config=0.05, ddr_seed=0.1, shared=-0.8)
    made = from_quadratic(power_law(), design, noise, np.random.default_rng(0))
    options = Options(asymptote=0.0, draws=10)
    limit = fit(made, options)
    raw = fit(made, dataclasses.replace(options, regressor=MEASURED), throw=False)
    exponents = [named(f.model, f.point)[OPTIMUM_EXPONENT][0] for f in (limit, raw)]
    assert limit.point.law[0, 3] == pytest.approx(1.0, abs=0.08)
    assert exponents[0] == pytest.approx(1.0, abs=0.05)
    assert raw.point.law[0, 3] > 1.4
    assert exponents[1] > 1.15
    assert raw.point.config_sd[0] > 5 * limit.point.config_sd[0]


# Floors.


def test_a_floor_is_kept_where_there_is_one_and_left_out_where_none_is() -> None:
    """5 % of floors that are not there may stay."""
    kept = {0.0: 0, 0.003: 0}
    for true in kept:
        law = dataclasses.replace(TRUTH.law, floor=true)
        for seed in range(10):
            found = fit(simulate(seed, law=law, design=SMALL), KNOWN, throw=False)
            kept[true] += bool(np.any(found.problem.level))
            estimate = found.estimates["floor"]
            if not np.any(found.problem.level):
                assert (estimate.value, estimate.low) == (0.0, 0.0)
                assert np.all(found.draws.law[:, 0] == 0)
    assert kept[0.003] == 10
    # More than 5 of 10 has a probability of 10⁻⁶ at 5 %.
    assert kept[0.0] <= 5


def test_a_floor_that_is_always_fitted_takes_from_the_noise() -> None:
    """Why it is left out: on average the same tables have less noise beside a floor."""
    lost = []
    for seed in range(16):
        found = fit(
            JOINT.runs(TRAINING, SCATTER, np.random.default_rng(seed)),
            Options(asymptote=0.0, draws=10),
        )
        level = np.ones_like(found.problem.level)
        beside = law_fit.fit_law(dataclasses.replace(found.problem, level=level))
        noise = [np.exp(f.solution.log_noise[0]) for f in (found.law_fit, beside)]
        lost.append(1 - noise[1] / noise[0])
    assert min(lost) > -1e-3
    assert np.mean(lost) > 0.002


def test_a_table_that_cannot_be_refitted_is_said() -> None:
    truth = fit(noisy_table(), KNOWN)
    with pytest.MonkeyPatch.context() as patch:

        def never(*_: object) -> None:
            raise NotConverged(simulate_refit.Status.NOT_CONVERGED)

        patch.setattr(simulate_refit, "fit_cells", never)
        with pytest.raises(NotConverged, match="Fewer than two"):
            simulate_refit.refit_simulated(truth, 3)
