"""`theory.sampled_constant`: known policies, coverage, correlation within units."""

from typing import Any

import numpy as np
import pytest

from tests.support.statistical import assert_mean, assert_proportion
from theory import bandit
from theory.plateau_constant import adaptive, natural, plain, plateau_constant
from theory.sampled_constant import predict_plateau_constant

# A high temperature: rare arms would count fully in the natural constant, unseen.
TASK = bandit.Bandit(bandit.standard().means, reward_sd=1.0, temperature=1.0)


def bandit_samples(generator: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Scores and advantages of the optimal policy of a bandit."""
    pi, _ = TASK.optimum()
    means = np.array(TASK.means)
    arms = generator.choice(len(pi), size=count, p=pi)
    rewards = means[arms] + TASK.reward_sd * generator.normal(size=count)
    worth = rewards - TASK.temperature * np.log(pi[arms])
    value = pi @ (means - TASK.temperature * np.log(pi))
    return np.eye(len(pi))[arms] - pi, worth - value


def bandit_constant(kind: Any) -> float:
    best = np.array(TASK.means) / TASK.temperature
    noise = TASK.gradient_noise(best, sampled_entropy=True)
    return plateau_constant(bandit.fisher(best), noise, kind)


@pytest.mark.parametrize("kind", [natural, plain, adaptive])
def test_bandit_constant_from_samples(kind: Any) -> None:
    """The bandit's F is singular along (1, …, 1); no ridge is needed."""
    generator = np.random.default_rng(7)
    predictions = [
        predict_plateau_constant(
            *bandit_samples(generator, 10_000), preconditioner=kind
        )
        for _ in range(30)
    ]
    truth = bandit_constant(kind)
    unbiased = np.array([p.constant - p.bias for p in predictions])
    assert_mean(unbiased, truth, effect=0.06 * truth)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(unbiased, 1.06 * truth, effect=0.06 * truth)
    errors = np.array([p.standard_error for p in predictions])
    assert errors.mean() == pytest.approx(unbiased.std(ddof=1), rel=0.4)
    assert predictions[0].units == 10_000


def plateau_of_runs(kind: Any, step: float, n: int) -> np.ndarray:
    """gap·√DDR per run of ascent with sampled batches, exact gap and KL; few updates.

    Both are averaged over blocks of runs first: gap and KL are of one run each.
    """
    generator = np.random.default_rng(9)
    runs, burn, updates = 500, 150, 200
    best, means = np.array(TASK.means) / TASK.temperature, np.array(TASK.means)
    p = kind(bandit.fisher(best), TASK.gradient_noise(best, sampled_entropy=True))
    logits = np.tile(best, (runs, 1))
    gaps, moves = np.zeros(runs), np.zeros(runs)
    for update in range(burn + updates):
        pi = bandit.policy(logits)
        counts = generator.multinomial(n, pi)
        noise = np.sqrt(counts) * TASK.reward_sd * generator.normal(size=pi.shape)
        worth = means - TASK.temperature * np.log(pi)
        worth = worth - (pi * worth).sum(-1, keepdims=True)
        total = counts * worth + noise
        gradient = (total - total.sum(-1, keepdims=True) * pi) / n
        after = logits + step * gradient @ p
        if update >= burn:
            gaps += TASK.gap(after) / updates
            moves += bandit.kl(logits, after) / updates
        logits = after
    gaps, moves = (values.reshape(50, -1).mean(1) for values in (gaps, moves))
    return gaps * np.sqrt(n / moves)


@pytest.mark.parametrize(("kind", "step"), [(natural, 0.05), (plain, 0.3)])
def test_samples_of_one_policy_predict_the_plateau_of_runs(
    kind: Any, step: float
) -> None:
    """Scores and advantages at the optimum alone, against runs that were not seen."""
    samples = bandit_samples(np.random.default_rng(6), 200_000)
    found = predict_plateau_constant(*samples, preconditioner=kind)
    runs = plateau_of_runs(kind, step, n=1000)
    assert found.standard_error < 0.01 * found.constant
    assert_mean(runs, found.constant, effect=0.15 * found.constant)
    with pytest.raises(AssertionError, match="mean deviates"):  # negative control
        assert_mean(runs, 1.15 * found.constant, effect=0.2 * found.constant)


def test_all_actions_known_by_hand() -> None:
    """Two samples per unit, both alike: a unit counts as one draw of twice the size."""
    scores = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    worth = np.array([1.0, 1.0, -1.0, 1.0])
    alone = predict_plateau_constant(scores, worth)
    gradient = scores[:, 0] * worth
    fisher, noise = 10 / 4, gradient.var(ddof=1)
    assert alone.constant == pytest.approx(np.sqrt(noise / fisher / 8))
    doubled = predict_plateau_constant(
        np.repeat(scores, 2, axis=0), np.repeat(worth, 2), np.repeat(np.arange(4), 2)
    )
    assert doubled.constant == pytest.approx(np.sqrt(2) * alone.constant)
    assert doubled.units == 4


def test_groups_of_one_are_the_plain_jackknife() -> None:
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(30, 2))
    worth = generator.normal(size=30)
    found = predict_plateau_constant(scores, worth, groups=30)
    whole = found.constant
    rest = np.array(
        [
            predict_plateau_constant(
                np.delete(scores, i, axis=0), np.delete(worth, i)
            ).constant
            for i in range(30)
        ]
    )
    squares = ((rest - rest.mean()) ** 2).sum()
    assert found.standard_error == pytest.approx(np.sqrt(29 / 30 * squares))
    assert found.bias == pytest.approx(29 * (rest.mean() - whole))


def correlated(generator: np.random.Generator) -> tuple[Any, Any, Any]:
    """400 units of 1 to 9 samples; advantages share half their variance in a unit."""
    units = np.repeat(np.arange(400), generator.integers(1, 10, size=400))
    generator.shuffle(units)
    shared = generator.normal(size=400)[units]
    worth = (shared + generator.normal(size=len(units))) / np.sqrt(2)
    return np.ones((len(units), 1)), worth, units


def test_interval_covers_under_correlation_within_units() -> None:
    """±1.96 s.e. covers; leaving the units out does not, by far."""
    generator = np.random.default_rng(3)
    # Σ = E[(Σ_unit A)²]/E[size] with E s = 5, E s² = 95/3, correlation ½.
    truth = np.sqrt((0.5 + 0.5 * (95 / 3) / 5) / 8)
    runs, inside, naive = 80, 0, 0
    for _ in range(runs):
        scores, worth, units = correlated(generator)
        found = predict_plateau_constant(scores, worth, units, groups=20)
        alone = predict_plateau_constant(scores, worth, groups=20)
        inside += abs(found.constant - found.bias - truth) < 1.96 * found.standard_error
        naive += abs(alone.constant - alone.bias - truth) < 1.96 * alone.standard_error
    assert_proportion(inside, runs, 0.95, effect=0.25)
    with pytest.raises(AssertionError):  # negative control
        assert_proportion(naive, runs, 0.95, effect=0.25)


def test_order_and_names_of_units_are_irrelevant() -> None:
    generator = np.random.default_rng(2)
    scores, worth, units = correlated(generator)
    first = predict_plateau_constant(scores, worth, units)
    order = generator.permutation(len(units))
    names = np.array([f"unit {unit:04d}" for unit in units])
    second = predict_plateau_constant(scores[order], worth[order], names[order])
    assert second.constant == pytest.approx(first.constant)
    assert second.standard_error == pytest.approx(first.standard_error)


def test_prediction_at_a_ddr() -> None:
    found = predict_plateau_constant(*bandit_samples(np.random.default_rng(0), 500))
    assert found.plateau(4) == pytest.approx(found.constant / 2)
    assert found.plateau(np.array([1.0, 100.0])) == pytest.approx(
        [found.constant, found.constant / 10]
    )
    with pytest.raises(ValueError, match="ddr"):
        found.plateau(0)


ONES = np.ones((5, 2))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((np.ones(5), np.ones(5)), "scores has shape"),
        ((np.ones((0, 2)), np.ones(0)), "scores has shape"),
        ((ONES, np.ones(4)), "advantages has shape"),
        ((ONES, np.ones(5), np.arange(4)), "units has shape"),
        ((ONES * np.nan, np.ones(5)), "scores holds nan"),
        ((ONES, np.array([1, 2, 3, 4, np.inf])), "advantages holds inf"),
        ((ONES[:2], np.ones(2)), "2 parameters need more"),
        ((ONES, np.ones(5), np.zeros(5)), "units is 1"),
        ((ONES, np.ones(5), None, natural, 1), "groups is 1"),
    ],
)
def test_refusals_name_the_argument(arguments: tuple, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        predict_plateau_constant(*arguments)
