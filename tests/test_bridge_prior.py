"""`bridge.prior`: two lower bounds, a spread of exponents, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import predict, prior, recipe
from bridge.choice import choose
from tests.support.runs import call
from tests.support.statistical import assert_mean, assert_proportion
from theory import laws

MANY = prior.sample(num_draws=200_000, seed=1)
budgets = st.floats(6.0, 14.0).map(lambda x: 10.0**x)


def answer(budget: float) -> dict:
    return call(predict.main, "--budget", f"{budget:.0f}", "--json").json


def test_the_same_draws_at_every_call() -> None:
    one, two = prior.sample(), prior.sample()
    np.testing.assert_array_equal(one.log_scale, two.log_scale)
    np.testing.assert_array_equal(one.exponent, two.exponent)
    assert len(one.log_scale) == prior.NUM_DRAWS
    assert not np.array_equal(one.log_scale, prior.sample(seed=3).log_scale)


def test_the_baseline_bounds_every_draw_from_below() -> None:
    best = np.exp(MANY.log_best(1e10))
    assert best.min() >= 2048 * (1 - 1e-12)
    assert np.all(np.exp(MANY.log_best(1e12)) >= best * (1 - 1e-12))


@given(exponent=st.floats(0.0, 2.0), second=st.floats(10.0, 12.0))
def test_the_bound_is_the_least_that_meets_both_reports(
    exponent: float, second: float
) -> None:
    p, log_second = np.array([exponent]), np.log(10.0) * np.array([second])
    scale = float(np.exp(prior.lower_bound(p, log_second)[0]))
    at_second = scale * 10 ** (exponent * (second - 10.0))
    assert scale >= 2048 * (1 - 1e-9)
    assert at_second >= 8192 * (1 - 1e-9)
    assert min(scale / 2048, at_second / 8192) == pytest.approx(1.0, rel=1e-9)


def test_exponents_are_spread_as_stated() -> None:
    """Mean of 2p_u/κ is 2·½·ln 2, of its halves uniform."""
    assert_mean(MANY.exponent, np.log(2.0), effect=0.02)
    assert 0.0 <= MANY.exponent.min() < 0.01
    assert 1.9 < MANY.exponent.max() <= 2.0
    assert_mean(MANY.step_exponent, 0.5, effect=0.01)
    assert_mean(MANY.map_exponent, 1.5, effect=0.01)


def test_the_upper_side_is_half_normal_in_decades() -> None:
    """5 % lie more than two decades above the bound, half more than 4.7 times."""
    rng = np.random.default_rng(1)
    rng.uniform(size=200_000), rng.uniform(size=200_000)
    low, high = np.log(prior.SECOND_BUDGETS)
    log_second = rng.uniform(low, high, 200_000)
    bound = prior.lower_bound(MANY.exponent, log_second)
    excess = (MANY.log_scale - bound) / np.log(10.0)
    assert excess.min() >= -1e-9
    beyond = int((excess > 2.0).sum())
    assert_proportion(beyond, len(excess), 0.0455, effect=0.006)
    above = int((excess > np.log10(4.726)).sum())
    assert_proportion(above, len(excess), 0.5, effect=0.02)


@settings(max_examples=50)
@given(budget=budgets, num_envs=st.floats(1.0, 9.0).map(lambda x: 10.0**x))
def test_relative_gap_is_the_flatness_of_the_joint_law(
    budget: float, num_envs: float
) -> None:
    drawn = prior.sample(num_draws=50)
    told = drawn.relative_gap(budget, np.array([num_envs]))[:, 0]
    ratio = (num_envs / np.exp(drawn.log_best(budget))) ** drawn.map_exponent
    source = drawn.step_exponent / (1 - drawn.step_exponent)
    expected = np.minimum(laws.flatness(ratio, source), prior.WORST_GAP_RATIO)
    np.testing.assert_allclose(told, expected, rtol=1e-9)
    assert np.all((told >= 1 - 1e-12) & (told <= prior.WORST_GAP_RATIO))


def test_the_best_has_gap_one() -> None:
    drawn = prior.sample(num_draws=20)
    at_best = drawn.relative_gap(1e11, np.exp(drawn.log_best(1e11)))
    np.testing.assert_allclose(np.diag(at_best), 1.0)


def test_the_answer_at_the_papers_budget() -> None:
    content = answer(1e12)
    assert content["domain"] == "kinetix-sfl"
    assert content["environment"] == "kinetix-sfl-m"
    assert content["basis"] == "prior"
    for key in ("score", "score_interval", "ddr", "ddr_noise"):
        assert content[key] is None
    assert all(a["score"] is None for a in content["alternatives"])
    low, high = content["num_envs_interval"]
    assert high / low >= 64
    assert low > 2048
    said = " ".join(content["caveats"])
    for words in ("no run of ours", "from below only", "judgement", "inferred",
                  "cannot train"):  # fmt: skip
        assert words in said
    assert content["calibration"]["name"] == "prior/kinetix-sfl"


def test_the_answer_grows_with_the_budget() -> None:
    numbers = [answer(10.0**k)["num_envs"] for k in range(9, 15)]
    assert numbers == sorted(numbers)
    assert numbers[-1] >= 64 * numbers[0]


def test_outside_checks_are_shown_and_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = answer(1e12)
    assert [c["num_envs"] for c in before["outside_checks"]] == [2**20, 2**20]
    assert [c["budget"] for c in before["outside_checks"]] == [1e12, 376e9]
    monkeypatch.setattr(prior, "LARGE_RUNS", ((64, 1e12, "another report"),))
    after = answer(1e12)
    assert after["outside_checks"][0]["inside"] is False
    for content in (before, after):
        del content["outside_checks"]
    assert before == after


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXCESS_DECADES", 1.5),
        ("BASELINE_NUM_ENVS", 65_536),
        ("SECOND_NUM_ENVS", 2**18),
    ],
)
def test_each_assumption_moves_the_answer_up(
    name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounds() -> tuple[float, float]:
        return prior.best_interval(prior.sample(), 1e12, 0.8)

    before, hashed = bounds(), prior.content_hash()
    monkeypatch.setattr(prior, name, value)
    after = bounds()
    assert after[1] > before[1]
    assert after[0] >= before[0]
    assert prior.content_hash() != hashed


def test_the_choice_does_not_hang_on_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut ten times higher moves the choice at 10¹² by less than one doubling."""
    configs = recipe.candidates("kinetix-sfl-m", 10**12, 1)
    sizes = np.array([c.num_envs for c in configs], dtype=float)
    before = choose(prior.sample().relative_gap(1e12, sizes)).index
    monkeypatch.setattr(prior, "WORST_GAP_RATIO", 100.0)
    after = choose(prior.sample().relative_gap(1e12, sizes)).index
    assert abs(after - before) <= 1


def test_budgets_beyond_the_reports_are_said() -> None:
    assert any("outside" in caveat for caveat in answer(1e9)["caveats"])
    assert not any("outside" in caveat for caveat in answer(1e11)["caveats"])
