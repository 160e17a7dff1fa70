"""Outer loops without a closed form, simulated update by update.

All knob settings and runs advance together, on JAX (imported when it runs), compiled
for the machine it finds. Single precision unless JAX is set to double. Against double
precision, with the same noise (measured), at a = ηh of

    10⁻⁴    the transient is off by 2·10⁻⁶, the plateau by 10⁻⁷, relatively
    10⁻⁵    3·10⁻⁵, 3·10⁻⁷
    10⁻⁶    10⁻³, 2·10⁻⁶

below which a step without noise is lost in the rounding of x.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from theory.arithmetic import Number, check_finite, check_nonnegative, check_positive
from theory.simulate.advance import Lanes, run
from theory.simulate.checkpoints import positive_count, recorded_updates
from theory.simulate.rules import Rule

MOST_UPDATES = 2**32


@dataclass(frozen=True)
class Quadratic:
    """The loss ½Σhᵢxᵢ² and the noise of one sample's gradient, σᵢ² + κxᵢ².

    Attributes:
        curvatures: h ≥ 0, shape [coordinate].
        noise_variances: σ² ≥ 0, a number or of shape [coordinate].
        noise_slope: κ ≥ 0, growth of the noise away from the optimum.
    """

    curvatures: Number
    noise_variances: Number
    noise_slope: Number = 0

    def __post_init__(self) -> None:
        for name in ("curvatures", "noise_variances", "noise_slope"):
            check_nonnegative(name, getattr(self, name))
        shape = np.shape(self.curvatures)
        if len(shape) != 1 or not shape[0]:
            msg = f"curvatures is {self.curvatures}; it must be a list, not empty."
            raise ValueError(msg)
        if np.shape(self.noise_variances) not in ((), shape):
            msg = (
                f"noise_variances is {self.noise_variances}; it must be one number or "
                f"one for each of the {shape[0]} curvatures."
            )
            raise ValueError(msg)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """h, σ² and κ, the first two of shape [coordinate]."""
        h, variances = np.broadcast_arrays(
            np.asarray(self.curvatures, np.float64),
            np.asarray(self.noise_variances, np.float64),
        )
        return h, variances, np.asarray(self.noise_slope, np.float64)


@dataclass(frozen=True)
class StepwisePaths:
    """Simulated runs, at checkpoints and averaged between them.

    Attributes:
        curvatures: h, shape [coordinate].
        updates: updates before each checkpoint, shape [checkpoint].
        policy: x at the checkpoints, shape [*knob, seed, checkpoint, coordinate].
        mean_square: x² averaged over the updates since the checkpoint before (after
            each update), same shape; 0 where there was none.
        mean_kl: ½|x'−x|², the KL per update at unit Fisher information, averaged
            likewise; shape [*knob, seed, checkpoint].
    """

    curvatures: np.ndarray
    updates: np.ndarray
    policy: np.ndarray
    mean_square: np.ndarray
    mean_kl: np.ndarray

    @property
    def loss(self) -> np.ndarray:
        """½Σhx² at the checkpoints, shape [*knob, seed, checkpoint]."""
        return self.policy**2 @ self.curvatures / 2

    @property
    def mean_loss(self) -> np.ndarray:
        """½Σhx² averaged since the checkpoint before, same shape."""
        return self.mean_square @ self.curvatures / 2


def simulate_stepwise(
    rule: Rule,
    knobs: Mapping[str, Number],
    quadratic: Quadratic,
    updates: Number,
    *,
    initial: Number = 0,
    seeds: int,
    seed: int = 0,
) -> StepwisePaths:
    """Runs of any update rule with Gaussian gradient noise, recorded at checkpoints.

    Each update draws gᵢ = hᵢxᵢ + ξᵢ with Var ξᵢ = (σᵢ² + κxᵢ²)/n at the acting policy x
    and hands it to the rule.

        >>> from theory.simulate import Quadratic, sign_rule, simulate_stepwise
        >>> knobs = {"step_length": [0.01, 0.02], "samples_per_update": 64}
        >>> task = Quadratic(curvatures=[1.0, 0.1], noise_variances=4.0)
        >>> simulate_stepwise(sign_rule, knobs, task, [10, 100], seeds=8).loss.shape
        (2, 8, 2)

    Args:
        rule: one of `theory.simulate.rules`, or your own `Rule`; each is compiled
            once, so build yours once.
        knobs: the rule's knobs and `samples_per_update` = n, of shapes that broadcast
            to [*knob].
        quadratic: the loss and the noise of one sample.
        updates: when to record, shape [checkpoint], not decreasing.
        initial: x at the start, a number or of shape [coordinate].
        seeds: how many runs per knob setting.
        seed: of the random numbers, below 2⁶³. A run depends on this, on its own
            number and on the place of its setting, not on how many there are.

    Returns:
        The runs; a run that diverges goes on, to inf or not a number.

    Raises:
        ValueError: if an argument is invalid, or a knob is missing or not the rule's.
    """
    when, runs = recorded_updates(updates), positive_count("seeds", seeds)
    if when.ndim > 1 or when[-1] > MOST_UPDATES:
        msg = f"updates is {updates}; it must be one list of counts up to 2³²."
        raise ValueError(msg)
    if not 0 <= seed < 2**63:
        msg = f"seed is {seed}; it must be at least 0 and below 2⁶³."
        raise ValueError(msg)
    settings, shape = _settings(rule, knobs)
    task = quadratic.arrays()
    check_finite("initial", initial)
    if np.shape(initial) not in ((), task[0].shape):
        msg = f"initial is {initial}; it must be one number or one per curvature."
        raise ValueError(msg)
    start = np.broadcast_to(np.asarray(initial, np.float64), task[0].shape)
    lanes = Lanes.of(settings, runs, seed)
    parts = [run(rule, task, part, start, when) for part in lanes.parts()]
    policy, square, kl = (
        np.concatenate(of_all).reshape(*shape, runs, *of_all[0].shape[1:])
        for of_all in zip(*parts, strict=True)
    )
    return StepwisePaths(task[0], when, policy, square, kl)


def _settings(
    rule: Rule, knobs: Mapping[str, Number]
) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Every knob per setting, [setting], and the shape [*knob] of the settings."""
    wanted = {*rule.knobs, "samples_per_update"}
    if wanted != set(knobs):
        msg = f"knobs has {sorted(knobs)}; it must have {sorted(wanted)}."
        raise ValueError(msg)
    for name, value in knobs.items():
        check_nonnegative(name, value)
    check_positive("samples_per_update", knobs["samples_per_update"])
    values = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in knobs.values()))
    names = zip(knobs, values, strict=True)
    return {name: value.ravel() for name, value in names}, values[0].shape
