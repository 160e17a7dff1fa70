"""`theory.plateau`: levels and regimes against the nested loop written out."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from tests.support.statistical import assert_mean
from tests.support.strategies import positive_floats
from theory import outer
from theory.knobs import Knobs, Task
from theory.outer.clipped import clipped
from theory.outer.closures import rmsprop, sign_step
from theory.outer.inner_floor import inner_floor
from theory.outer.step_rules import (
    StepRule,
    clip_rule,
    plain_rule,
    rmsprop_rule,
    sign_rule,
)
from theory.plateau import Plateau, plateau

TASK = Task(curvature=0.5, noise_variance=8.0)
# Each example solves a loop twice; a quarter of the deep profile is deep enough.
DEAR = settings(max_examples=min(500, settings().max_examples), deadline=None)
State = tuple[Any, Any, Any, Any]
Optimiser = Callable[[Any], Any]


def one_update(
    state: State, passes: Any, knobs: Knobs, h: float, f: Optimiser = lambda g: g
) -> State:
    """The nested loop as it runs. State: x, r and both before; passes [E, M, ...]."""
    x, r, x_before, r_before = state
    y, q = x, x if knobs.com is None else r
    for noise in itertools.chain(*passes):
        y = y - knobs.learning_rate * f(h * y + noise + (y - q) / knobs.outer_step)
        if knobs.com is not None:
            q = (knobs.com * q + y) / (1 + knobs.com)
    sigma, mu = knobs.outer_learning_rate, knobs.outer_momentum
    new = x + sigma * (y - x) + mu * (x - x_before)
    kept = r + sigma * (q - r) + mu * (r - r_before) if knobs.com is not None else new
    return new, kept, x, r


def minibatches(knobs: Knobs) -> int:
    return int(knobs.samples_per_update / knobs.minibatch_size)


def solved(knobs: Knobs, task: Task) -> tuple[float, float, float] | None:
    """E x², E r² and ½E(x'−x)² by probing the update and scipy, every order dealt."""
    h, M, E = float(task.curvature), minibatches(knobs), int(knobs.update_epochs)
    quiet = np.zeros((E, M))
    columns = [one_update(tuple(row), quiet, knobs, h) for row in np.eye(4)]
    matrix: Any = np.array(columns).T
    if np.abs(np.linalg.eigvals(matrix)).max() > 0.999:
        return None
    orders = list(itertools.permutations(np.eye(M)))
    driven, deals = np.zeros((4, 4)), list(itertools.product(orders, repeat=E))
    for deal in deals:
        load = np.array(one_update((np.zeros(M),) * 4, deal, knobs, h))
        driven += load @ load.T / len(deals)
    driven *= task.noise_variance / knobs.minibatch_size
    P = solve_discrete_lyapunov(matrix, driven, method="direct")
    away = matrix[0] - np.array([1, 0, 0, 0])
    return P[0, 0], P[1, 1], (away @ P @ away + driven[0, 0]) / 2


@st.composite
def settings_of_knobs(draw: st.DrawFn) -> Knobs:
    """Every variant, at curvature ½, stable or not."""
    M, E = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (4, 1)]))
    eta = draw(positive_floats(0.05, 50) | st.just(math.inf))
    return Knobs(
        learning_rate=draw(positive_floats(1e-2, 3)),
        samples_per_update=4 * M,
        minibatch_size=4,
        update_epochs=E,
        outer_step=eta,
        com=draw(st.none() | st.just(0.0) | positive_floats(0.1, 300)),
        outer_learning_rate=draw(st.sampled_from([0.3, 1.0, 1.5])),
        outer_momentum=draw(st.sampled_from([0.0, 0.0, 0.6, -0.3])),
    )


@DEAR
@given(settings_of_knobs())
def test_plain_level_equals_the_solved_nested_loop(knobs: Knobs) -> None:
    found = plateau(knobs, TASK)
    expected = solved(knobs, TASK)
    if expected is None:
        return
    assert found.acting_variance == pytest.approx(expected[0], rel=1e-6)
    assert found.reference_variance == pytest.approx(expected[1], rel=1e-6)
    assert found.kl_per_update == pytest.approx(expected[2], rel=1e-6)
    assert found.loss == pytest.approx(0.25 * expected[0], rel=1e-6)
    assert found.ddr == knobs.samples_per_update / found.kl_per_update


@DEAR
@given(settings_of_knobs())
def test_causes_add_up_and_the_largest_names_the_regime(knobs: Knobs) -> None:
    found = plateau(knobs, TASK)
    parts = found.contributions
    assert set(parts) == {"noise", "overshoot", "inner", "anchor"}
    if found.regime == "unstable":
        assert found.loss == math.inf
        assert found.ddr == 0
        assert found.because == (
            "There is no plateau: some perturbation grows from update to update."
        )
        return
    assert sum(parts.values()) == pytest.approx(found.loss, rel=1e-9)
    assert min(parts.values()) >= -1e-9 * found.loss
    named = {
        "noise-limited": "noise",
        "step-limited": "overshoot",
        "inner-floor": "inner",
        "anchor-floor": "anchor",
    }[found.regime]
    assert parts[named] == max(parts.values())
    share, _, words = found.because.partition(" % of the gap is ")
    assert float(share) == pytest.approx(100 * parts[named] / found.loss, abs=0.51)
    assert words.endswith(".")


@DEAR
@given(settings_of_knobs())
def test_unstable_is_a_spectral_radius_of_one(knobs: Knobs) -> None:
    h, E, M = 0.5, int(knobs.update_epochs), minibatches(knobs)
    columns = [one_update(tuple(row), np.zeros((E, M)), knobs, h) for row in np.eye(4)]
    radius = np.abs(np.linalg.eigvals(np.array(columns).T)).max()
    assume(abs(radius - 1) > 1e-6)
    assert (plateau(knobs, TASK).regime == "unstable") == (radius > 1)


@DEAR
@given(settings_of_knobs())
def test_effective_step_is_that_of_the_plain_loop_as_fast(knobs: Knobs) -> None:
    """e = 1/(h·Σ_t r_t) from x = r = 1 at rest, without noise."""
    h, quiet = 0.5, np.zeros((int(knobs.update_epochs), minibatches(knobs)))
    columns = [one_update(tuple(row), quiet, knobs, h) for row in np.eye(4)]
    matrix: Any = np.array(columns).T
    assume(np.abs(np.linalg.eigvals(matrix)).max() < 0.999)
    total = np.linalg.solve(np.eye(4) - matrix, np.ones(4))[1]
    found = plateau(knobs, TASK).effective_step
    assert found == pytest.approx(1 / (h * total), rel=1e-6)


def simulated(
    knobs: Knobs, task: Task, f: Optimiser, runs: int = 8000, seed: int = 1
) -> dict[str, np.ndarray]:
    """x², r² and ½(x'−x)² of independent runs, one mean over time each."""
    generator = np.random.default_rng(seed)
    E, M, level = int(knobs.update_epochs), minibatches(knobs), plateau(knobs, task)
    spread = math.sqrt(level.acting_variance)
    spread = spread if math.isfinite(spread) else 1.0
    x = generator.normal(size=runs) * spread
    state: State = (x, x, x, x)
    rate = min(1.0, max(0.02, level.effective_step * task.curvature))
    burn = 10 + int(3 / rate)
    kept = []
    deviation = math.sqrt(task.noise_variance / knobs.minibatch_size)
    for update in range(2 * burn):
        noise = deviation * generator.normal(size=(M, runs))
        passes = [generator.permuted(noise, axis=0) for _ in range(E)]
        state = one_update(state, passes, knobs, task.curvature, f)
        if update >= burn:
            new, reference, old, _ = state
            kept.append((new**2, reference**2, (new - old) ** 2 / 2))
    acting, reference, kl = np.mean(kept, axis=0)
    return {
        "acting_variance": acting,
        "reference_variance": reference,
        "kl_per_update": kl,
    }


def of(regime: str, **changes: Any) -> tuple[str, Knobs]:
    usual: dict[str, Any] = {
        "learning_rate": 0.1,
        "samples_per_update": 16,
        "minibatch_size": 4,
        "update_epochs": 2,
        "outer_step": 1.0,
    }
    return regime, Knobs(**{**usual, **changes})


@pytest.mark.parametrize(
    ("regime", "knobs"),
    [
        of("noise-limited"),
        of("noise-limited", com=6.0, outer_learning_rate=0.7),
        of("step-limited", minibatch_size=16, learning_rate=3.0, update_epochs=1),
        of("inner-floor", samples_per_update=128, learning_rate=0.3),
        of("inner-floor", samples_per_update=128, learning_rate=0.3, com=3.0),
        of("anchor-floor", minibatch_size=16, update_epochs=8, com=60.0),
        of("anchor-floor", update_epochs=4, com=60.0, outer_momentum=0.3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_regime_equals_monte_carlo(regime: str, knobs: Knobs) -> None:
    found = plateau(knobs, TASK)
    assert found.regime == regime
    for name, samples in simulated(knobs, TASK, lambda g: g).items():
        level = getattr(found, name)
        assert_mean(samples, level, effect=0.1 * level)
        with pytest.raises(AssertionError, match="mean deviates"):  # negative control
            assert_mean(samples, 1.15 * level, effect=0.1 * level)


def test_unstable_regime_diverges() -> None:
    _, knobs = of("unstable", learning_rate=5.0, samples_per_update=4, update_epochs=1)
    assert plateau(knobs, TASK).regime == "unstable"
    found = simulated(knobs, TASK, lambda g: g, runs=100)
    assert found["acting_variance"].mean() > 1e6


@pytest.mark.parametrize("com", [None, 5.0])
@pytest.mark.parametrize("rule", [rmsprop_rule, sign_rule, clip_rule(0.5)])
def test_no_optimiser_settles_at_an_outer_momentum_beyond_one(
    rule: StepRule, com: float | None
) -> None:
    knobs = Knobs(
        learning_rate=0.01,
        samples_per_update=64,
        minibatch_size=16,
        outer_step=1.0,
        com=com,
        outer_momentum=np.array([0.1, 2.0, -1.5]),
        rule=rule,
    )
    found = plateau(knobs, TASK)
    assert np.isfinite(found.loss).tolist() == [True, False, False]
    assert found.regime[1:].tolist() == ["unstable"] * 2
    alone = plateau(dataclasses.replace(knobs, outer_momentum=0.1), TASK)
    assert found.loss[0] == pytest.approx(alone.loss, rel=1e-9)


# The accuracy that the docstring states for other rules, ratio of form to simulation.
OTHER: list[Any] = [
    ("one pass", rmsprop_rule, {"update_epochs": 1}, 0.05),
    ("one pass", sign_rule, {"update_epochs": 1, "com": 8.0}, 0.05),
    ("one pass", clip_rule(1.0), {"update_epochs": 1, "outer_momentum": 0.4}, 0.05),
    ("short steps", rmsprop_rule, {"learning_rate": 0.02}, 0.05),
    ("short steps", clip_rule(1.0), {"learning_rate": 0.02, "com": 8.0}, 0.05),
    ("long steps", rmsprop_rule, {"learning_rate": 0.3}, 0.2),
    ("long steps", sign_rule, {"learning_rate": 0.3, "com": 8.0}, 0.2),
]


def made_of(rule: StepRule) -> Optimiser:
    if rule is rmsprop_rule:
        return lambda g: g / np.sqrt(np.mean(g**2))  # the ensemble: β₂ → 1
    return np.sign if rule is sign_rule else lambda g: np.clip(g, -1, 1)


@pytest.mark.parametrize(("name", "rule", "changes", "within"), OTHER)
def test_other_rules_are_as_accurate_as_they_say(
    name: str, rule: StepRule, changes: dict, within: float
) -> None:
    _, knobs = of(name, rule=rule, **changes)
    found = plateau(knobs, TASK)
    for quantity, samples in simulated(knobs, TASK, made_of(rule)).items():
        level = getattr(found, quantity)
        assert abs(samples.mean() / level - 1) < within, quantity
        assert_mean(samples, samples.mean(), effect=0.1 * level)


def test_rule_fails_where_a_batch_is_one_minibatch_passed_over_again() -> None:
    """As the docstring says: the gradient's mean square falls within the update."""
    _, knobs = of(
        "", rule=rmsprop_rule, samples_per_update=4, update_epochs=4,
        outer_step=6.0, learning_rate=0.5,
    )  # fmt: skip
    found = simulated(knobs, TASK, made_of(rmsprop_rule))
    level = plateau(knobs, TASK)
    assert found["acting_variance"].mean() > 1.2 * level.acting_variance
    assert found["kl_per_update"].mean() > 1.5 * level.kl_per_update


@pytest.mark.parametrize("step", [0.03, 0.5, 3.0, 30.0])
def test_one_step_per_update_is_the_closure(step: float) -> None:
    """Also past the stability limit of the plain step: a pinned length is stable."""
    h, noise, n = 0.5, 8.0, 4

    def level(rule: StepRule) -> Plateau:
        knobs = Knobs(
            learning_rate=step, samples_per_update=n, minibatch_size=n, rule=rule
        )
        return plateau(knobs, TASK)

    for rule, expected in [
        (rmsprop_rule, rmsprop(step, h, noise, n)),
        (sign_rule, sign_step(step, h, noise, n)),
        (clip_rule(0.7), clipped(step, 0.7, h, noise, n)),
    ]:
        found = level(rule)
        for name in ("acting_variance", "loss", "effective_step", "kl_per_update"):
            expected_value = getattr(expected, name)
            assert getattr(found, name) == pytest.approx(expected_value, rel=1e-9)
    assert (level(plain_rule).regime == "unstable") == (step * h >= 2)


@DEAR
@given(positive_floats(1e-3, 1.99), positive_floats(), positive_floats())
def test_ppo_is_sgd_with_its_effective_step(a: float, h: float, noise: float) -> None:
    knobs = Knobs(learning_rate=a / h, samples_per_update=8, minibatch_size=8)
    found = plateau(knobs, Task(curvature=h, noise_variance=noise))
    expected = outer.sgd(a / h, h).stationary(noise, 8)
    assert found.loss == pytest.approx(expected.loss, rel=1e-9)
    assert found.reference_variance == found.acting_variance
    # The regime's own criterion, and gap = KL per update/(2e).
    if abs(a - 1) > 1e-9:
        assert (found.regime == "step-limited") == (a > 1)
    assert found.contributions["overshoot"] == pytest.approx(
        found.loss * a / 2, rel=1e-6
    )
    identity = found.kl_per_update / (2 * found.effective_step)
    assert found.loss == pytest.approx(identity, rel=1e-9)


def test_small_steps_obey_the_law_of_ddr() -> None:
    """Of every PPO, minibatch noise or not: loss = √(σ²/(8·DDR)) as the step → 0."""
    for samples in (4, 64, 1024):
        _, knobs = of("", learning_rate=1e-5, samples_per_update=samples)
        found = plateau(knobs, TASK)
        assert found.loss == pytest.approx(math.sqrt(8.0 / (8 * found.ddr)), rel=0.01)


# What the heuristics of the paper do in this model.

INNER = Task(curvature=0.01, noise_variance=32.0)


def of_com(com: float | None, **changes: Any) -> Plateau:
    """One setting of PPO-EWMA: unit learning rate, κ = .1, 32 steps on a batch."""
    usual: dict[str, Any] = {
        "learning_rate": 1.0,
        "samples_per_update": 32,
        "minibatch_size": 32,
        "update_epochs": 32,
        "outer_step": 10.0,
    }
    return plateau(Knobs(com=com, **{**usual, **changes}), INNER)


@pytest.mark.parametrize(
    ("com", "acting", "reference", "step", "rate", "ratio"),
    [
        (None, 464, 464, 82, 0.0887, 1.00),
        (0.0, 1594, 1594, 877, 0.275, 1.00),
        (8.0, 907, 841, 359, 0.160, 1.04),
        (32.0, 428, 351, 191, 0.069, 1.19),
        (128.0, 184, 106, 158, 0.021, 1.73),
        (512.0, 107, 28, 154, 0.0056, 3.8),
        (8192.0, 81, 2, 154, 0.0004, 45),
    ],
)
def test_a_larger_com_is_a_smaller_outer_step_up_to_the_inner_loop(
    com: float | None,
    acting: float,
    reference: float,
    step: float,
    rate: float,
    ratio: float,
) -> None:
    """In this model true of speed and reference, of the acting policy to COM ≈ K.

    The last column is V over that of `sgd` as fast.
    """
    found = of_com(com)
    assert found.acting_variance == pytest.approx(acting, rel=0.01)
    assert found.reference_variance == pytest.approx(reference, abs=0.5, rel=0.01)
    assert 2 * found.kl_per_update == pytest.approx(step, rel=0.01)
    assert found.effective_step * 0.01 == pytest.approx(rate, rel=0.13)
    alike = outer.sgd(found.effective_step, 0.01).stationary(1, 1).acting_variance
    assert found.acting_variance / alike == pytest.approx(ratio, rel=0.05)
    assert (found.regime == "anchor-floor") == (com is not None and com >= 512)


def test_com_leaves_a_floor_that_only_the_penalty_or_the_batch_lowers() -> None:
    """In this model, 2.6 (i): COM → ∞ holds the acting policy at a floor."""
    floor = of_com(1e7).acting_variance
    assert of_com(1e6).acting_variance == pytest.approx(floor, rel=0.01)
    assert of_com(1e7).reference_variance < 1e-3 * floor
    step = outer.effective_step(10.0, 1.0, 0.01, 32)
    kept = (1 - 0.11) ** 64  # (1 − w)^2K
    assert floor == pytest.approx(step**2 / (1 - kept), rel=0.01)
    assert of_com(1e7, outer_step=5.0).acting_variance < 0.4 * floor
    more = of_com(1e7, samples_per_update=64, minibatch_size=64)
    assert more.acting_variance == pytest.approx(floor / 2, rel=0.01)


def test_com_does_not_lower_the_kl_and_ddr_misorders_runs() -> None:
    """In this model, 2.6 (iii) and 3.6: a lower plateau at a lower DDR."""
    ppo, averaged = of_com(None), of_com(512.0)
    assert averaged.loss < 0.25 * ppo.loss
    assert averaged.ddr < 0.6 * ppo.ddr
    assert of_com(1e6).kl_per_update > 0.99 * averaged.kl_per_update


def test_no_com_makes_up_for_a_weak_penalty() -> None:
    """In this model, 2.6 (iv): penalty and COM trade only up to the floor."""
    target = of_com(64.0).acting_variance
    weaker = of_com(64.0, outer_step=20.0).acting_variance
    assert weaker > 1.3 * target
    assert of_com(200.0, outer_step=20.0).acting_variance < weaker
    far = [of_com(com, outer_step=40.0).acting_variance for com in (1e4, 1e5, 1e6)]
    assert min(far) > target
    assert far[2] == pytest.approx(far[1], rel=0.02)


def growing(com: Any, samples: np.ndarray, **changes: Any) -> Plateau:
    """PPO with fixed minibatch and learning rate, on batches of several sizes."""
    usual: dict[str, Any] = {
        "learning_rate": 1e-3,
        "minibatch_size": 64,
        "update_epochs": 2,
        "outer_step": 0.1,
    }
    knobs = Knobs(com=com, samples_per_update=samples, **{**usual, **changes})
    return plateau(knobs, Task(curvature=0.1, noise_variance=1.0))


def test_samples_lower_the_step_per_sample_not_the_step_per_update() -> None:
    """In this model, 2.7: η_out only grows with n; η_out/n is flat and then falls.

    The knee is at n = m/(Eα(h + 1/η)), here 3168 samples: below it n does nothing.
    """
    samples = 64 * 2 ** np.arange(12)
    found = growing(None, samples)
    assert np.all(np.diff(found.effective_step) > 0)
    assert np.all(np.diff(found.loss) < 0)
    doubled = found.effective_step[1:] / found.effective_step[:-1]
    assert doubled[0] == pytest.approx(2, rel=0.05)
    assert doubled[-1] == pytest.approx(1, rel=0.01)
    assert found.loss[1] == pytest.approx(found.loss[0], rel=0.05)
    # Past it the floor of 2.8 comes before long: at most 2E = 4 in all.
    assert 2.5 < found.loss[0] / found.loss[-1] < 4
    floor = inner_floor(1e-3, 0.1, 0.1, 1.0, 64) * 0.1 / 2
    assert found.loss[-1] == pytest.approx(floor, rel=0.03)
    assert found.regime[0] == "noise-limited"
    assert found.regime[-1] == "inner-floor"


def test_fixed_com_in_gradient_steps_makes_the_batch_size_immaterial() -> None:
    """In this model, 2.7: PPO-EWMA's level barely moves over 256-fold batches."""
    samples = 64 * 4 ** np.arange(5)
    found = growing(1024.0, samples, update_epochs=1)
    assert found.loss.max() < 1.1 * found.loss.min()
    ppo = growing(None, samples, update_epochs=1)
    assert ppo.loss.max() > 1.5 * ppo.loss.min()


def test_com_in_proportion_to_the_batch_lowers_the_level_past_the_inner_floor() -> None:
    """In this model, 2.7: with COM ∝ n more samples help again, nearly as 1/n.

    PPO's inner floor is not one for PPO-EWMA: its anchor stands still while the inner
    loop fluctuates, with the variance T of `inner_floor`, lower by about 2ηh.
    """
    samples = 64 * 4 ** np.arange(6)
    found = growing(samples / 4, samples, update_epochs=1)
    quartered = found.loss[:-1] / found.loss[1:]
    assert np.all(quartered[2:4] > 2.8)
    floor = inner_floor(1e-3, 0.1, 0.1, 1.0, 64) * 0.1 / 2
    assert found.loss[-1] < 0.04 * floor
    w = 1e-3 * 10.1
    fluctuation = 1e-3 * 0.1 / (64 * 1.01 * (2 - w)) * 0.1 / 2
    far = growing(np.array(1e9), np.array(64 * 4**9), update_epochs=1)
    assert far.loss == pytest.approx(fluctuation, rel=0.01)
    assert far.regime == "inner-floor"


def test_adam_keeps_its_floor_at_sixteen_times_the_minibatch_and_four_the_rate() -> (
    None
):
    """In this model, 2.8: Adam's floor ≈ ασ/(4h√m) where the noise dominates."""

    def level(learning_rate: float, minibatch_size: int) -> float:
        knobs = Knobs(
            learning_rate=learning_rate,
            samples_per_update=2**24,
            minibatch_size=minibatch_size,
            outer_step=0.1,
            rule=rmsprop_rule,
        )
        found = plateau(knobs, Task(curvature=0.1, noise_variance=1.0))
        assert found.regime == "inner-floor"
        return found.acting_variance

    before, after = level(2e-5, 64), level(8e-5, 1024)
    assert after == pytest.approx(before, rel=0.03)
    assert before == pytest.approx(2e-5 / (4 * 0.1 * 8), rel=0.03)
    assert level(2e-5, 1024) == pytest.approx(before / 4, rel=0.05)


def test_arrays_broadcast_cell_by_cell() -> None:
    rates, epochs = np.array([0.02, 0.3, 50.0]), np.array([[1], [4]])
    for com, rule in ((None, rmsprop_rule), (5.0, plain_rule)):
        _, knobs = of("", learning_rate=rates, update_epochs=epochs, com=com, rule=rule)
        found = plateau(knobs, TASK)
        assert found.loss.shape == found.regime.shape == (2, 3)
        assert found.contributions["inner"].shape == (2, 3)
        _, one = of("", learning_rate=0.3, update_epochs=4, com=com, rule=rule)
        single = plateau(one, TASK)
        assert found.loss[1, 1] == pytest.approx(single.loss, rel=1e-9)
        assert found.regime[1, 1] == single.regime
        assert isinstance(single.regime, str)
        # A step of pinned length is stable however long.
        at_most = ["noise-limited", "step-limited", "inner-floor"]
        allowed = ["unstable"] if rule is plain_rule else at_most
        assert set(found.regime[:, 2]) <= set(allowed)


def test_a_spectrum_is_an_axis_of_the_task() -> None:
    """Property 33: losses add over blocks of curvatures."""
    curvatures = np.array([1.0, 0.3, 0.1])
    _, knobs = of("")
    found = plateau(knobs, Task(curvature=curvatures, noise_variance=curvatures))
    each = [
        plateau(knobs, Task(curvature=h, noise_variance=h)).loss for h in curvatures
    ]
    assert found.loss.sum() == pytest.approx(sum(each), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", -1),
        ("learning_rate", math.nan),
        ("samples_per_update", 10),
        ("samples_per_update", 0),
        ("samples_per_update", 2),
        ("minibatch_size", 3),
        ("minibatch_size", -4),
        ("update_epochs", 0),
        ("update_epochs", 1.5),
        ("outer_step", 0.0),
        ("outer_step", -1.0),
        ("outer_step", math.nan),
        ("com", -1.0),
        ("com", math.inf),
        ("outer_learning_rate", 0.0),
        ("outer_momentum", math.nan),
        ("learning_rate", np.array([0.1, np.nan])),
    ],
)
def test_knobs_refuse_with_a_sentence(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        of("", **{name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["curvature", "noise_variance"])
def test_task_refuses_with_a_sentence(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Task(**{"curvature": 1.0, "noise_variance": 1.0, name: value})


def test_clip_rule_and_shapes_refuse() -> None:
    with pytest.raises(ValueError, match="gradient_limit"):
        clip_rule(0.0)
    _, knobs = of("", learning_rate=np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="broadcast"):
        plateau(knobs, Task(curvature=np.ones(3), noise_variance=1.0))
