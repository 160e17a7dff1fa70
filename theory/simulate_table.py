"""Run tables simulated from a known truth, for tests, examples and power studies.

Two truths. `from_law`: the DDR map and a law hold exactly up to noise, the setting in
which a fit must recover what was put in. `from_quadratic`: noisy descent on a quadratic
loss, whose exact gap and KL no law was told, the setting in which a law is tested as an
approximation. In both, a seed's DDR and score share part of their noise, so that
measured DDR is an endogenous regressor.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from theory.forecast import Law, seed_share
from theory.table import RunTable, from_rows


@dataclass(frozen=True, kw_only=True)
class Design:
    """Which runs are made.

    Attributes:
        num_envs: levels of N.
        outer_learning_rate: levels of σ.
        clip_epsilon: levels of ε.
        budgets: transitions.
        seeds: seeds per configuration and budget.
        rollout_length: T.
    """

    num_envs: Sequence[int] = (16, 32, 64, 128, 256)
    outer_learning_rate: Sequence[float] = (0.25, 0.5, 1.0)
    clip_epsilon: Sequence[float] = (0.2,)
    budgets: Sequence[int] = (262_144, 1_048_576, 4_194_304)
    seeds: int = 5
    rollout_length: int = 32


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of logarithms.

    Attributes:
        config: of the gap, shared by the seeds of a cell.
        seed: of the gap of one seed at a plateau; less while it learns, by
            `theory.forecast.seed_share`.
        ddr_config: of DDR, shared by the seeds of a configuration.
        ddr_seed: of the DDR of one seed.
        shared: correlation of a seed's DDR noise with its gap noise.
    """

    config: float = 0.05
    seed: float = 0.1
    ddr_config: float = 0.05
    ddr_seed: float = 0.05
    shared: float = -0.5


@dataclass(frozen=True, kw_only=True)
class Truth:
    """log D∞ linear in log knobs, a transient, and the joint law of D∞.

    Attributes:
        law: the law.
        ddr: D∞ at N = 64, σ = 1, ε = 0.2, in transitions per nat.
        slopes: knob → slope of log D∞.
        transient: τ at the same knobs, in transitions; 0 for none.
        transient_slopes: knob → slope of log τ.
        asymptote: optimum, in score units.
    """

    law: Law
    ddr: float = 1.3e6
    slopes: Mapping[str, float]
    transient: float = 0.0
    transient_slopes: Mapping[str, float]
    asymptote: float = 0.0


CENTRES = {"num_envs": 64.0, "outer_learning_rate": 1.0, "clip_epsilon": 0.2}


def from_law(
    truth: Truth, design: Design, noise: Noise, rng: np.random.Generator
) -> RunTable:
    """A table from a truth of the fitted form.

    Args:
        truth: map, law and optimum.
        design: which runs.
        noise: how far runs scatter.
        rng: consumed.
    """
    runs = _grid(design)
    x = {name: np.log(runs[name] / centre) for name, centre in CENTRES.items()}
    limit = truth.ddr * np.exp(sum(truth.slopes[k] * x[k] for k in truth.slopes))
    log_tau = sum(truth.transient_slopes[k] * x[k] for k in truth.transient_slopes)
    tau = truth.transient * np.exp(log_tau)
    gap = np.asarray(truth.law.gap(runs["budget"], limit), dtype=float)
    plateau = dataclasses.replace(truth.law, floor=0.0, bias=0.0)
    noisy_part = np.asarray(plateau.gap(runs["budget"], limit), dtype=float)
    floor = np.full_like(gap, truth.law.floor)
    share = seed_share(gap[None], floor[None], noisy_part[None])[0]
    ddr = limit / (1 + tau / runs["budget"])
    exact = {"ddr": ddr, "gap": gap, "share": share}
    return _noisy(runs, exact, truth.asymptote, noise, rng)


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Noisy descent on ½Σ h_i·x_i², unit Fisher.

    Attributes:
        curvature: h_i.
        start: x_i² at the beginning.
        noise: variance of one sample's gradient along i.
        step_per_sample: outer step over n at N = 64, σ = 1.
        num_envs_slope: the step per sample falls as N to this power.
        asymptote: optimum, in score units.
    """

    curvature: np.ndarray
    start: np.ndarray
    noise: np.ndarray
    step_per_sample: float
    num_envs_slope: float = 0.6
    asymptote: float = 0.0


def power_law(
    *, decay: float = 2.0, source: float = 1.0, modes: int = 400
) -> Quadratic:
    """Curvature i^(−decay), loss per mode ∝ i^(−1−source·decay), aligned noise."""
    index = np.arange(1, modes + 1, dtype=float)
    curvature = index**-decay
    return Quadratic(
        curvature=curvature,
        start=10 * index ** (-1 - source * decay) / curvature,
        noise=300 * curvature,
        step_per_sample=1e-4,
    )


def strongly_convex(
    *, modes: int = 8, spread: float = 4.0, gap: float = 5.0, noise: float = 1310.0
) -> Quadratic:
    """Curvatures within a factor `spread`; `gap` at the start, `noise` in all."""
    curvature = np.geomspace(spread**-0.5, spread**0.5, modes)
    return Quadratic(
        curvature=curvature,
        start=2 * gap / modes / curvature,
        noise=np.full(modes, noise / modes),
        step_per_sample=3.4e-5,
    )


def from_quadratic(
    quadratic: Quadratic, design: Design, noise: Noise, rng: np.random.Generator
) -> RunTable:
    """A table whose gap and KL are exact for noisy descent on a quadratic.

    With outer step η = u·n, a_i = η·h_i, q_i = η²·s_i²/n and K updates,

        E x_i² = (1 − a_i)^(2K)·x_i² + (1 − (1 − a_i)^(2K))·q_i/(a_i(2 − a_i))

    gap = ½Σ h_i·E x_i², and ΣKL is half the summed second moment of the steps.

    Args:
        quadratic: the loss and the step.
        design: which runs; ε plays no part.
        noise: how far runs scatter.
        rng: consumed.
    """
    runs = _grid(design)
    n = (runs["num_envs"] * design.rollout_length).astype(float)[:, None]
    updates = runs["budget"][:, None] // n
    share = (64 / runs["num_envs"]) ** quadratic.num_envs_slope
    step = quadratic.step_per_sample * runs["outer_learning_rate"] * share
    a = step[:, None] * n * quadratic.curvature
    q = (step[:, None] * n) ** 2 * quadratic.noise / n
    stationary = q / (a * (2 - a))
    left = np.exp(2 * updates * np.log1p(-a))
    moment = left * quadratic.start + (1 - left) * stationary
    gap = 0.5 * np.sum(quadratic.curvature * moment, axis=-1)
    away = (quadratic.start - stationary) * (1 - left) / (a * (2 - a))
    kl = 0.5 * np.sum(a**2 * (stationary * updates + away) + q * updates, axis=-1)
    noisy_part = 0.5 * np.sum(quadratic.curvature * (1 - left) * stationary, axis=-1)
    share = seed_share(gap[None], np.zeros((1, 1)), noisy_part[None])[0]
    exact = {"ddr": (updates * n)[:, 0] / kl, "gap": gap, "share": share}
    return _noisy(runs, exact, quadratic.asymptote, noise, rng)


def _grid(design: Design) -> dict[str, np.ndarray]:
    """One entry per run, seeds fastest."""
    names = ("num_envs", "outer_learning_rate", "clip_epsilon", "budget", "seed")
    axes = (
        design.num_envs,
        design.outer_learning_rate,
        design.clip_epsilon,
        design.budgets,
        range(design.seeds),
    )
    mesh = np.meshgrid(*(np.asarray(list(axis)) for axis in axes), indexing="ij")
    runs = {name: values.ravel() for name, values in zip(names, mesh, strict=True)}
    runs["rollout_length"] = np.full_like(runs["num_envs"], design.rollout_length)
    return runs


def _noisy(
    runs: dict[str, np.ndarray],
    exact: dict[str, np.ndarray],
    asymptote: float,
    noise: Noise,
    rng: np.random.Generator,
) -> RunTable:
    """Rows with noise: per configuration, per cell and per seed."""
    ddr, gap, share = exact["ddr"], exact["gap"], exact["share"]
    knobs = [runs[name] for name in CENTRES]
    config = np.unique(np.stack(knobs), axis=1, return_inverse=True)[1].ravel()
    cell = np.unique(np.stack([config, runs["budget"]]), axis=1, return_inverse=True)[1]
    shared = rng.standard_normal(len(ddr))
    own = np.sqrt(1 - noise.shared**2) * rng.standard_normal(len(ddr))
    log_gap = noise.config * rng.standard_normal(cell.max() + 1)[cell.ravel()]
    seed_sd = np.sqrt(np.log1p(noise.seed**2 * share))
    log_gap = log_gap + seed_sd * shared - (noise.config**2 + seed_sd**2) / 2
    log_ddr = noise.ddr_config * rng.standard_normal(config.max() + 1)[config]
    log_ddr = log_ddr + noise.ddr_seed * (noise.shared * shared + own)
    score = asymptote - gap * np.exp(log_gap)
    samples = runs["num_envs"] * runs["rollout_length"]
    updates = runs["budget"] // samples
    columns = {
        **runs,
        "transitions": updates * samples,
        "updates": updates,
        "ddr": ddr * np.exp(log_ddr),
        "score": score,
    }
    rows = [
        {"environment": "simulated", **dict(zip(columns, values, strict=True))}
        for values in zip(*(v.tolist() for v in columns.values()), strict=True)
    ]
    return from_rows(rows)
