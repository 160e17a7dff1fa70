"""What a configuration refuses, each in a sentence with the value and a right one."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from fullscale.config.error import ConfigError

MAX_COUNT = 2**31 - 1  # seeds and updates are 32-bit on the device
MAX_SAMPLES = 2**40  # transitions of one update

_POSITIVE = (
    "budget", "num_envs", "rollout_length", "minibatch_size", "update_epochs",
    "learning_rate", "value_coefficient", "max_grad_norm", "adam_epsilon",
    "initial_std", "num_seeds", "evaluation_episodes", "outer_learning_rate",
    "target_kl", "value_clip", "max_importance_ratio",
)  # fmt: skip
_NOT_NEGATIVE = (
    "clip_epsilon", "entropy_coefficient", "seed", "kl_coefficient",
    "segment_length", "meter_interval",
)  # fmt: skip
_UNIT_INTERVAL = ("discount", "gae_lambda")
_DECAYS = ("adam_beta1", "adam_beta2", "momentum", "outer_momentum")
_MAY_BE_INFINITE = ("max_grad_norm", "target_kl", "value_clip", "max_importance_ratio")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "optimiser": ("adam", "sgd"),
    "surrogate": ("clip", "kl"),
    "schedule": ("linear", "cosine", "exponential"),
    "advantage_scope": ("minibatch", "batch", "block"),
    "network": ("mlp", "gru", "linear"),
    "compute_precision": ("full", "bfloat16"),
    "storage_precision": ("full", "bfloat16"),
    "staggered_starts": ("auto", "on", "off"),
    "nonfinite": ("stop", "mask"),
}
SCHEDULED = ("learning_rate", "clip_epsilon", "outer_learning_rate", "com")


def check(config: Any) -> None:
    """Refuse values and combinations that cannot run. Raises ConfigError."""
    for field in dataclasses.fields(config):
        check_type(field.name, getattr(config, field.name), field.type)
    _check_ranges(config)
    _check_schedules(config)
    _check_unused(config)
    _check_minibatches(config)
    _check_segments(config)
    _check_counts(config)


def check_type(name: str, value: object, kind: object) -> None:
    """Refuse a value of another type. Raises ConfigError."""
    if not _is_a(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{name} = {value!r} should be of type {wanted}")


def _is_a(value: object, kind: object) -> bool:
    if kind == tuple[int, ...]:
        return isinstance(value, tuple) and all(type(v) is int for v in value)
    if kind == float | str:
        return type(value) in (float, str)
    return type(value) is kind


def _check_ranges(config: Any) -> None:
    for name in _POSITIVE:
        _require(config, name, lambda v: v > 0, "be positive")
    for name in _NOT_NEGATIVE:
        _require(config, name, lambda v: v >= 0, "not be negative")
    for name in _UNIT_INTERVAL:
        _require(config, name, lambda v: 0 <= v <= 1, "lie in [0, 1]")
    for name in _DECAYS:
        _require(config, name, lambda v: 0 <= v < 1, "lie in [0, 1)")
    for name, choices in _CHOICES.items():
        should = f"be one of {', '.join(map(repr, choices))}"
        _require(config, name, choices.__contains__, should)
    _require(config, "com", _valid_com, 'be "reset" or a number ≥ 0 of gradient steps')
    _require(config, "hidden_sizes", lambda v: v and min(v) > 0, "hold positive widths")


def _valid_com(com: float | str) -> bool:
    return com == "reset" or (isinstance(com, float) and 0 <= com < math.inf)


def _require(config: Any, name: str, accept: Callable, should: str) -> None:
    value = getattr(config, name)
    finite = not isinstance(value, float) or math.isfinite(value)
    if name in _MAY_BE_INFINITE:
        finite = finite or value == math.inf
    if not finite or not accept(value):
        raise ConfigError(f"{name} = {value!r} should {should}")


def _check_schedules(config: Any) -> None:
    for name in SCHEDULED:
        final, first = getattr(config, f"final_{name}"), getattr(config, name)
        if final == "constant":
            continue
        least = "positive" if config.schedule == "exponential" else "not negative"
        good = isinstance(final, float) and math.isfinite(final)
        good = good and (final > 0 if least == "positive" else final >= 0)
        if not good:
            raise ConfigError(
                f'final_{name} = {final!r} should be "constant" or a {least} number '
                f"(the schedule is {config.schedule})"
            )
        if first == "reset":
            raise ConfigError(
                f"final_com = {final!r} needs a number in com; it is {first!r}"
            )
        if config.schedule == "exponential" and first == 0:
            raise ConfigError(
                f"{name} = {first!r} cannot go exponentially to {final!r}; use the "
                "linear schedule or a positive start"
            )


def _check_unused(config: Any) -> None:
    """A key that would change nothing is refused, not ignored."""
    if config.momentum and config.optimiser != "sgd":
        raise ConfigError(
            f"momentum = {config.momentum} should be 0 with optimiser = "
            f"{config.optimiser!r}; Adam's is adam_beta1"
        )
    if config.compute_precision != "full" and config.network == "linear":
        raise ConfigError(
            f"compute_precision = {config.compute_precision!r} should be 'full' with "
            "network = 'linear'; only hidden layers are computed in half precision"
        )
    if config.segment_length and config.network != "gru":
        raise ConfigError(
            f"segment_length = {config.segment_length} should be 0 with network = "
            f"{config.network!r}; only 'gru' is trained through stretches of time"
        )


def _check_minibatches(config: Any) -> None:
    samples, size = config.samples_per_update, config.minibatch_size
    if samples > MAX_SAMPLES:
        raise ConfigError(
            f"num_envs × rollout_length = {config.num_envs} × {config.rollout_length} "
            f"should be at most {MAX_SAMPLES} transitions per update"
        )
    if samples % size == 0:
        return
    below, above = _nearest(samples, size, 1)
    raise ConfigError(
        f"minibatch_size = {size} does not divide num_envs × rollout_length = "
        f"{config.num_envs} × {config.rollout_length} = {samples}; the nearest that "
        f"do are {below} and {above}"
    )


def _check_segments(config: Any) -> None:
    length, size = config.segment, config.minibatch_size
    if config.rollout_length % length:
        below, above = _nearest(config.rollout_length, length, 1)
        raise ConfigError(
            f"segment_length = {length} does not divide rollout_length = "
            f"{config.rollout_length}; the nearest that do are {below} and {above}"
        )
    if size % length:
        below, above = _nearest(config.samples_per_update, size, length)
        raise ConfigError(
            f"minibatch_size = {size} is not made of whole stretches of {length} "
            f"transitions; the nearest that are are {below} and {above}"
        )


def _nearest(total: int, wanted: int, multiple: int) -> tuple[int, int]:
    """The divisors of `total`, multiples of `multiple`, just below and above."""
    divisors = [d for d in _divisors(total) if d % multiple == 0]
    below = max((d for d in divisors if d < wanted), default=min(divisors))
    above = min((d for d in divisors if d > wanted), default=max(divisors))
    return below, above


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in small]


def _check_counts(config: Any) -> None:
    if config.seed + config.num_seeds > MAX_COUNT:
        raise ConfigError(
            f"seed = {config.seed} with num_seeds = {config.num_seeds} should stay "
            f"below {MAX_COUNT}"
        )
    if config.budget < config.samples_per_update:
        raise ConfigError(
            f"budget = {config.budget} is less than one update of num_envs × "
            f"rollout_length = {config.samples_per_update} transitions; use a budget "
            f"of at least {config.samples_per_update} or fewer environments"
        )
