"""`theory.fit`: recovery, oracles of the solvers, identification, the command."""

import dataclasses
import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated import (
    DESIGN,
    OPTIMUM,
    QUIET,
    SLOPES,
    SMALL,
    exact_table,
    noisy_table,
    simulate,
)
from tests.support.strategies import positive_floats
from theory import calibration, cells, laws, table
from theory.cells import Cells
from theory.fit import (
    Estimate,
    Fit,
    NotConverged,
    Options,
    Status,
    assembly,
    fit,
    law_columns,
    law_fit,
    non_negative,
    pace,
    projection,
    two_stage,
)
from theory.fit import __main__ as main_module
from theory.fit.command import Arguments
from theory.fit.options import FITTED, MEASURED
from theory.fit.problem import GAMMA, GAUSSIAN, Problem
from theory.fit.spread import Spread
from theory.saturating import SaturatingLaw
from theory.simulate_table import Noise, from_quadratic, strongly_convex
from theory.table import RunTable, TableError

FAMILIES = ("joint", "free", "saturating")
KNOWN = Options(asymptote=OPTIMUM, draws=20)


@functools.cache
def noisy_fit(family: str = "joint") -> Fit:
    return fit(noisy_table(), dataclasses.replace(KNOWN, family=family, draws=200))


# Recovery.


def test_noiseless_data_give_the_truth_back() -> None:
    found = fit(exact_table(), KNOWN)
    assert found.status is Status.CONVERGED
    floor, bias, noise, source = found.point.law[0]
    assert (bias, noise, source) == pytest.approx((2000, 12, 2), rel=2e-3)
    assert floor < 1e-6
    assert found.point.config_sd[0] < 1e-3


def test_the_saturating_and_the_free_law_give_their_truths_back() -> None:
    law = SaturatingLaw(floor=0.001, bias=4.0, noise=12.0, rate=0.05, source=3.0)
    made = simulate(noise=QUIET, law=law, transient=0.0)
    found = fit(made, dataclasses.replace(KNOWN, family="saturating"))
    np.testing.assert_allclose(found.point.law[0], [0.001, 4, 12, 0.05, 3], rtol=2e-3)
    free = laws.FreeLaw(0.001, 30.0, 8.0, 0.9, 0.4, 0.45)
    made = simulate(noise=QUIET, law=free, transient=0.0)
    found = fit(made, dataclasses.replace(KNOWN, family="free"))
    np.testing.assert_allclose(
        found.point.law[0], [0.001, 30, 8, 0.9, 0.4, 0.45], rtol=2e-3
    )


def test_a_free_asymptote_is_found_and_the_floor_is_left_out() -> None:
    found = fit(exact_table(), dataclasses.replace(KNOWN, asymptote=None))
    assert found.point.asymptote[0] == pytest.approx(OPTIMUM, abs=1e-5)
    assert np.all(found.draws.law[:, 0] == 0)
    assert found.point.law[0, 3] == pytest.approx(2, rel=1e-2)
    assert found.estimates["asymptote"].value == found.point.asymptote[0]


def paced(data: Cells, exponent: float) -> Cells:
    """The cells of runs that learn as if the budget were times (N/64)^exponent."""
    budget = data.transitions * (data.knobs["num_envs"] / 64) ** exponent
    limit = 1.3e6 * np.exp(
        sum(
            SLOPES[k] * np.log(data.knobs[k] / {"num_envs": 64}.get(k, 1))
            for k in SLOPES
        )
    )
    law = laws.JointLaw(0.0, 2000.0, 12.0, 2.0)
    return dataclasses.replace(data, score=OPTIMUM - np.asarray(law.gap(budget, limit)))


def test_a_pace_is_found_where_there_is_one_and_only_there() -> None:
    options = dataclasses.replace(KNOWN, pace=FITTED)
    assert fit(noisy_table(), options).model.pace_terms == ()
    data = paced(cells.from_table(exact_table()), -0.4)
    found = two_stage.fit_cells(data, options)
    assert set(found.model.pace_terms) >= {"num_envs"}
    pace_of = dict(zip(found.model.pace_terms, found.point.pace[0], strict=True))
    assert pace_of["num_envs"] == pytest.approx(-0.4, abs=0.01)
    assert found.estimates["pace/num_envs"].value == pace_of["num_envs"]
    theory = two_stage.fit_cells(data, KNOWN)
    assert theory.point.config_sd[0] > 5 * found.point.config_sd[0]


def test_an_instrument_is_needed() -> None:
    """Measured DDR is noisy and shares its luck with the score: slopes shrink."""
    design = dataclasses.replace(
        DESIGN, seeds=2, num_envs=(32, 64, 128), outer_learning_rate=(0.5, 0.7, 1.0)
    )
    loud = Noise(config=0.05, seed=0.3, ddr_config=0.5, ddr_seed=0.3, shared=-0.9)
    found: dict[str, list[float]] = {"predicted": [], MEASURED: []}
    for seed in range(6):
        made = simulate(seed, design=design, noise=loud, transient=0.0)
        for regressor, values in found.items():
            options = dataclasses.replace(
                KNOWN, family="free", regressor=regressor, draws=10
            )
            values.append(fit(made, options, throw=False).point.law[0, 4])
    # The truth is 1, and the standard error of either mean is about 0.05.
    assert np.mean(found["predicted"]) > 0.85
    assert np.mean(found[MEASURED]) < 0.8


# Invariances.


@pytest.mark.parametrize("family", ["joint", "saturating"])
@settings(max_examples=2)
@given(positive_floats(1e-2, 1e2), positive_floats(1e-2, 1e2), positive_floats(0.1, 10))
def test_units_move_only_prefactors(
    family: str, ddr_unit: float, budget_unit: float, gap_unit: float
) -> None:
    data = cells.from_table(noisy_table())
    gap = OPTIMUM - data.score
    moved = dataclasses.replace(
        data,
        ddr=data.ddr * ddr_unit,
        transitions=data.transitions * budget_unit,
        score=OPTIMUM - gap_unit * gap,
        seed_variance=data.seed_variance * gap_unit**2,
    )
    options = dataclasses.replace(KNOWN, family=family)
    one, two = (two_stage.fit_cells(d, options).point.law[0] for d in (data, moved))
    np.testing.assert_allclose(two[-1], one[-1], rtol=2e-3)
    z_unit = budget_unit / ddr_unit**0.5
    if family == "joint":
        expected = one * [1, gap_unit * z_unit ** one[-1], gap_unit * ddr_unit**0.5, 1]
        np.testing.assert_allclose(np.log(two[1:]), np.log(expected[1:]), atol=2e-2)
    else:
        np.testing.assert_allclose(two[2], one[2] * gap_unit * ddr_unit**0.5, rtol=1e-2)


def test_a_refit_of_what_was_fitted_changes_nothing() -> None:
    first = noisy_fit()
    mean = first.law_fit.solution.mean[0]
    again = two_stage.fit_cells(
        dataclasses.replace(first.cells, score=OPTIMUM - mean), KNOWN
    )
    np.testing.assert_allclose(
        again.point.law[0, 1:], first.point.law[0, 1:], rtol=5e-3
    )


# Oracles of the solvers.


def problem(family: str, noise_model: str, rows: int = 1, terms: int = 0) -> Problem:
    data = cells.from_table(noisy_table())
    rng = np.random.default_rng(3)
    gap = OPTIMUM - data.score
    return Problem(
        target=gap if noise_model == GAMMA else data.score,
        log_budget=np.log(data.transitions),
        log_ddr=np.log(data.ddr) + np.zeros((rows, 1)),
        weights=rng.exponential(size=(rows, len(data))),
        level=np.ones(len(data)),
        pace=np.stack([np.log(data.knobs["num_envs"] / 64)] * terms, -1)
        if terms
        else np.zeros((len(data), 0)),
        noise_model=noise_model,
        family=family,
    )


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_non_negative_least_squares_equals_scipy(seed: int, free_level: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    columns, target = rng.normal(size=(4, 3, 9)), rng.normal(size=9)
    weights = rng.exponential(size=(4, 9))
    found = non_negative.solve(columns, target, weights, free_level=free_level)
    for row in range(4):
        root = np.sqrt(weights[row])
        lower = np.array([-np.inf if free_level else 0, 0, 0])
        general = scipy.optimize.lsq_linear(
            (columns[row] * root).T, target * root, bounds=(lower, np.inf), tol=1e-12
        )
        residuals = root * (found[row] @ columns[row] - target)
        assert np.all(found[row] >= lower)
        assert np.sum(residuals**2) <= 2 * general.cost * (1 + 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_projection_maximises_the_gamma_likelihood(family: str) -> None:
    made = problem(family, GAMMA)
    theta = {
        "joint": np.log([[1.5]]),
        "free": np.log([[1.5, 0.7, 0.45]]),
        "saturating": np.log([[0.05, 3.0]]),
    }[family]
    found = projection.solve(made, theta)
    log_bias, log_noise = law_columns.log_columns(made, theta)

    def deviance(logs: np.ndarray) -> float:
        mean = np.exp(logs[0] + log_bias[0]) + np.exp(logs[1] + log_noise[0])
        ratio = made.target / (mean + np.exp(logs[2]))
        return float(np.sum(made.weights[0] * 2 * (ratio - 1 - np.log(ratio))))

    start = np.array([found.log_bias[0], found.log_noise[0], -20.0])
    start = np.where(np.isfinite(start), start, -20.0)
    general = scipy.optimize.minimize(
        deviance, start, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12}
    )
    assert found.deviance[0] <= general.fun * (1 + 1e-6)
    assert found.deviance[0] == pytest.approx(np.sum(found.residuals**2), rel=1e-12)
    parts = found.bias + found.noise + found.level[:, None]
    np.testing.assert_allclose(found.mean, parts, rtol=1e-9)


@pytest.mark.parametrize("noise_model", [GAMMA, GAUSSIAN])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_the_projected_deviance(
    family: str, noise_model: str
) -> None:
    made = problem(family, noise_model, terms=1)
    theta = {
        "joint": [math.log(1.5), -0.1],
        "free": [*np.log([1.5, 0.7, 0.45]), -0.1],
        "saturating": [*np.log([0.05, 3.0]), -0.1],
    }[family]
    at = np.array([theta])
    solution = projection.solve(made, at)
    jacobian = projection.jacobian(made, at, solution)
    gradient = 2 * np.einsum("dnq,dn->dq", jacobian, solution.residuals)[0]
    for index in range(at.shape[1]):
        ends = []
        for step in (-1e-4, 1e-4):
            moved = at.copy()
            moved[0, index] += step
            ends.append(projection.solve(made, moved, solution.mean).deviance[0])
        measured = (ends[1] - ends[0]) / 2e-4
        assert gradient[index] == pytest.approx(measured, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_search_equals_a_general_solver(family: str) -> None:
    made = problem(family, GAMMA)
    found = law_fit.fit_law(made)
    lower, upper = law_fit.search_range(made)

    def deviance(theta: np.ndarray) -> float:
        inside = np.clip(theta, lower, upper)
        return float(projection.solve(made, inside[None]).deviance[0])

    general = scipy.optimize.minimize(
        deviance, found.theta[0] + 0.05, method="Nelder-Mead", options={"fatol": 1e-10}
    )
    assert found.solution.deviance[0] <= general.fun * (1 + 1e-5)
    assert found.converged.all()


def test_many_weightings_are_one_weighting_each() -> None:
    made = problem("saturating", GAMMA, rows=3)
    together = law_fit.fit_law(made)
    for row in range(3):
        alone = law_fit.fit_law(made.rows(np.array([row])))
        assert together.solution.deviance[row] == pytest.approx(
            alone.solution.deviance[0], rel=1e-6
        )


def test_left_out_deviance_equals_a_loop() -> None:
    data = cells.from_table(noisy_table())
    made = dataclasses.replace(problem("joint", GAMMA), weights=np.ones((1, len(data))))
    total = 0.0
    for config in np.unique(data.config):
        kept = data.config != config
        part = dataclasses.replace(made, weights=kept[None].astype(float))
        mean = law_fit.fit_law(part).solution.mean
        total += np.sum(projection.residuals(made, mean)[0, ~kept] ** 2)
    found = pace.left_out_deviance(made, data)
    assert found == pytest.approx(total / len(data), rel=1e-4)


# The bootstrap and the scatter.


def test_a_configuration_has_one_weight() -> None:
    found = noisy_fit()
    weights = found.bootstrap_weights
    for config in np.unique(found.cells.config):
        here = weights[:, found.cells.config == config]
        assert np.all(here == here[:, :1])
    first = np.unique(found.cells.config, return_index=True)[1]
    np.testing.assert_allclose(weights[:, first].mean(axis=1), 1, rtol=1e-12)
    # C = 15 configurations, k = 3 coefficients of the map: (t/z)²·C/(C − k), less
    # what the mean takes away.
    expected = (2.179 / 1.960) ** 2 * 15 / 12 * 14 / 15
    assert weights[:, first].var(axis=1).mean() == pytest.approx(expected, rel=0.25)


def test_two_thirds_of_all_intervals_hold_the_truth_and_more() -> None:
    truths = {"noise": 12.0, "bias": 2000.0, "source": 2.0, "log_ddr/num_envs": 1.2}
    runs = 16
    held = dict.fromkeys(truths, 0)
    for seed in range(runs):
        found = fit(simulate(500 + seed), dataclasses.replace(KNOWN, draws=100))
        for name, truth in truths.items():
            estimate = found.estimates[name]
            assert estimate.low is not None
            assert estimate.high is not None
            held[name] += estimate.low <= truth <= estimate.high
    # Nominal 95 %, true rate 85–92 %: below 9 of 16 has probability < 10⁻³ per name.
    assert min(held.values()) >= 9


def test_the_scatter_is_what_was_simulated() -> None:
    noise = Noise(config=0.15, seed=0.5, ddr_config=0.1, ddr_seed=0.0)
    design = dataclasses.replace(
        DESIGN, outer_learning_rate=(0.25, 0.35, 0.5, 0.7, 1.0)
    )
    found = fit(simulate(2, design=design, noise=noise), KNOWN).point
    assert found.config_sd[0] == pytest.approx(0.15, rel=0.35)
    assert found.seed_sd[0] == pytest.approx(0.5, rel=0.2)
    assert found.ddr_sd[0] == pytest.approx(0.1, rel=0.35)


def test_reliable_cells_weigh_more() -> None:
    found = noisy_fit()
    spread = Spread(found.cells, found.options, found.map_fit, found.law_fit)
    weights = spread.reliability()[0]
    assert np.mean(weights) == pytest.approx(1)
    assert np.corrcoef(weights, spread.from_seeds)[0, 1] < -0.5
    free = dataclasses.replace(found.options, asymptote=None)
    spread = Spread(found.cells, free, found.map_fit, found.law_fit)
    assert np.all(spread.reliability() == 1)


def test_one_seed_leaves_all_scatter_to_configurations() -> None:
    design = dataclasses.replace(DESIGN, seeds=1)
    found = fit(simulate(4, design=design), KNOWN)
    assert found.point.seed_sd[0] == 0
    assert found.point.config_sd[0] > 0.05


def test_covariance_is_that_of_the_draws() -> None:
    found = noisy_fit()
    assert len(found.parameter_names) == len(found.covariance)
    index = found.parameter_names.index("source")
    assert found.covariance[index, index] == pytest.approx(
        np.var(found.draws.law[:, 3], ddof=1)
    )


# What is identified.


def convex_table(seed: int = 0) -> RunTable:
    quadratic = strongly_convex(spread=1.01)
    return from_quadratic(quadratic, DESIGN, Noise(), np.random.default_rng(seed))


def test_an_exponential_transient_has_no_upper_end_of_the_source() -> None:
    options = Options(asymptote=0.0, family="saturating", draws=50)
    found = fit(convex_table(), options)
    source = found.estimates["source"]
    assert source.status is Status.OPEN_ABOVE
    assert source.value is None
    assert source.high is None
    assert source.low is not None
    assert source.low > 5
    assert "at least" in source.sentence()
    # The curvature is rate · noise, and it was 1.
    assert found.point.law[0, 3] * found.point.law[0, 2] == pytest.approx(1, rel=0.2)


def test_a_power_law_transient_is_closed_on_both_sides() -> None:
    found = noisy_fit()
    source = found.estimates["source"]
    assert source.status is Status.CONVERGED
    assert source.low is not None
    assert source.high is not None
    assert source.low < 2.0 < source.high
    assert np.min(found.profile().deviance) == pytest.approx(0, abs=1e-6)


def test_the_profile_equals_a_fit_at_each_source() -> None:
    made = problem("saturating", GAMMA)
    fitted = law_fit.fit_law(made)
    source = np.array([1.0, 2.0, 5.0])
    found = law_fit.profile_deviance(made, fitted, source)
    for value, deviance in zip(source, found, strict=True):
        general = scipy.optimize.minimize_scalar(
            lambda rate, s=value: projection.solve(
                made, np.array([[rate, math.log(s)]])
            ).deviance[0],
            bounds=tuple(bound[0] for bound in law_fit.search_range(made)),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert deviance == pytest.approx(general.fun, rel=1e-3)


def test_a_plateau_alone_does_not_identify_the_source() -> None:
    law = laws.JointLaw(floor=0.0, bias=0.0, noise=12.0, source=1.0)
    found = fit(simulate(1, law=law, transient=0.0), KNOWN)
    assert found.estimates["source"].status is not Status.CONVERGED
    assert found.estimates["source"].value is None


def test_sentences_of_estimates() -> None:
    below = Estimate(None, None, 3.0, Status.OPEN_BELOW)
    assert below.sentence().endswith("It is at most 3.")
    assert Estimate(0.0, 0.0, 1.0, Status.AT_BOUND).sentence() == Status.AT_BOUND.value
    assert all(status.value.endswith(".") for status in Status)


# Refusals.


def test_too_few_budgets_are_refused() -> None:
    made = noisy_table()
    two = made.select(made["budget"] != made.budgets()[0])
    with pytest.raises(TableError, match="has 2 budgets; a fit needs 3"):
        fit(two, KNOWN)


def test_a_score_above_the_optimum_is_refused() -> None:
    with pytest.raises(TableError, match="not below the asymptote -3"):
        fit(noisy_table(), dataclasses.replace(KNOWN, asymptote=-3.0))


def test_confounded_knobs_do_not_converge() -> None:
    made = noisy_table()
    tied = RunTable({**made.data, "minibatch_size": 8 * made["num_envs"]})
    with pytest.raises(NotConverged) as caught:
        fit(tied, KNOWN)
    assert caught.value.status is Status.SINGULAR
    chosen = dataclasses.replace(KNOWN, knobs=("num_envs", "outer_learning_rate"))
    assert fit(tied, chosen).status is Status.CONVERGED


def test_a_search_that_does_not_settle_raises_unless_asked_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = law_fit.fit_law

    def unsettled(*arguments: object, **named: object) -> law_fit.LawFit:
        found = real(*arguments, **named)  # type: ignore[arg-type]
        return dataclasses.replace(found, converged=np.zeros_like(found.converged))

    monkeypatch.setattr(law_fit, "fit_law", unsettled)
    with pytest.raises(NotConverged) as caught:
        fit(noisy_table(), KNOWN)
    assert caught.value.status is Status.NOT_CONVERGED


# The calibration and the command.


def test_the_calibration_says_where_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "runs.nc"
    table.write(path, noisy_table())
    found = assembly.calibration(noisy_fit(), noisy_table(), path=path)
    assert (found.name, found.domain) == ("runs", "simulated")
    assert found.fixed == {"environment": "simulated", "rollout_length": 32,
                           "clip_epsilon": 0.2}  # fmt: skip
    assert found.varied["num_envs"] == (16, 32, 64, 128, 256)
    assert found.budgets == (262144, 1048576, 4194304)
    assert len(found.table_sha256) == 64
    assert found.num_draws == 200
    calibration.save(found, tmp_path / "c.json")
    assert calibration.load(tmp_path / "c.json").content_hash == found.content_hash


def run(capsys: pytest.CaptureFixture, *, code: int, **options: object) -> dict | str:
    """Run the command; its JSON, or what it said on standard error."""
    arguments = Arguments(**{"asymptote": str(OPTIMUM), "draws": 20, **options})  # type: ignore[arg-type]
    assert main_module.main(arguments) == code
    captured = capsys.readouterr()
    if code == 0:
        assert captured.err == ""
        return json.loads(captured.out) if arguments.json else captured.out
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.nc"
    budgets = (2**18, 2**20, 2**22, 2**24)
    design = dataclasses.replace(SMALL, budgets=budgets, num_envs=(16, 64, 256, 1024))
    table.write(path, simulate(5, design=design))
    return path


def test_the_command_fits_forecasts_and_writes(
    runs: Path, capsys: pytest.CaptureFixture
) -> None:
    out = runs.with_name("made.json")
    report = run(
        capsys, code=0, table=runs, out=out, hold_out=("budget=16777216",), json=True
    )
    assert isinstance(report, dict)
    assert report["status"] == Status.CONVERGED.value
    assert report["rows"] == 48
    assert len(report["held_out"]["cells"]) == 8
    assert report["held_out"]["outcome"] == "log gap"
    models = report["held_out"]["models"]
    assert set(models) >= {"law", "constant_ddr", "persistence", "moving_optimum"}
    assert models["law"]["crps"] < models["persistence"]["crps"]
    assert models["constant_ddr"]["skill_of_law"]["low"] > 0
    saved = calibration.load(out)
    assert saved.content_hash == report["hash"]
    assert saved.budgets == (2**18, 2**20, 2**22)
    assert saved.held_out["models"] == models


def test_the_command_speaks_to_people_too(
    runs: Path, capsys: pytest.CaptureFixture
) -> None:
    text = run(capsys, code=0, table=runs, law="saturating", min_updates=200)
    assert isinstance(text, str)
    assert "runs with too few updates left out" in text
    assert "Calibration written to" in text
    assert runs.with_suffix(".json").exists()


def test_a_second_table_is_forecast(runs: Path, capsys: pytest.CaptureFixture) -> None:
    whole = table.read(runs)
    late = whole["budget"] == 2**24
    table.write(runs.with_name("late.nc"), whole.select(late))
    table.write(runs.with_name("early.nc"), whole.select(~late))
    out = runs.with_name("o.json")
    two = run(
        capsys, code=0, table=runs.with_name("early.nc"), out=out,
        held_out=runs.with_name("late.nc"), json=True,
    )  # fmt: skip
    one = run(
        capsys, code=0, table=runs, out=out, hold_out=("budget=16777216",), json=True
    )
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert one["held_out"]["models"] == two["held_out"]["models"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hold_out": ("budget",)}, "should be COLUMN=VALUE"),
        ({"hold_out": ("budget=many",)}, "should be a number"),
        ({"hold_out": ("budget=7",)}, "matches no row"),
        ({"hold_out": ("environment=simulated",)}, "leaves no row to fit"),
        ({"hold_out": ("colour=red",)}, "lacks the column 'colour'"),
        ({"asymptote": "high"}, 'should be a number or "free"'),
        ({"asymptote": "nan"}, 'should be a number or "free"'),
        ({"asymptote": "-5"}, "is not below the asymptote"),
        ({"draws": 2}, "should be at least 10"),
        ({"ddr": "ddr_noise"}, "lacks the column 'ddr_noise'"),
        ({"min_updates": 10**9}, "lower --min-updates"),
        ({"held_out": Path("none.nc")}, "there is no run table"),
    ],
)
def test_bad_input_ends_with_a_sentence(
    runs: Path, capsys: pytest.CaptureFixture, options: dict, words: str
) -> None:
    message = run(capsys, code=2, table=runs, json=True, **options)
    assert words in message
    assert not runs.with_suffix(".json").exists()


def test_a_fit_without_an_answer_ends_with_3(
    runs: Path, capsys: pytest.CaptureFixture
) -> None:
    whole = table.read(runs)
    tied = RunTable({**whole.data, "minibatch_size": 8 * whole["num_envs"]})
    table.write(runs, tied)
    message = run(capsys, code=3, table=runs, json=True)
    assert "vary only together" in message


def test_held_out_runs_of_another_kind_are_refused(
    runs: Path, capsys: pytest.CaptureFixture
) -> None:
    whole = table.read(runs)
    other = RunTable({**whole.data, "rollout_length": 2 * whole["rollout_length"]})
    table.write(runs.with_name("other.nc"), other)
    message = run(
        capsys, code=2, table=runs, held_out=runs.with_name("other.nc"), json=True
    )
    assert "rollout_length = 64, but the calibration knows 32 only" in message
