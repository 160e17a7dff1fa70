"""Columns of the run table: names, kinds, units, and conversion of values.

The configuration columns are the keys of a run's configuration file, one for one (a
deliberate twin of `fullscale.config.RunConfig`; a test keeps them equal). Columns that
are not listed here may be added; they are stored as numbers or texts as they come.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Shaped

CONFIG: Mapping[str, tuple[str, str]] = {
    "environment": ("text", ""),
    "budget": ("int", "transitions"),
    "num_envs": ("int", "count"),
    "rollout_length": ("int", "transitions per environment per update"),
    "minibatch_size": ("int", "transitions"),
    "update_epochs": ("int", "count"),
    "optimiser": ("text", ""),
    "learning_rate": ("float", "1"),
    "momentum": ("float", "1"),
    "adam_beta1": ("float", "1"),
    "adam_beta2": ("float", "1"),
    "adam_epsilon": ("float", "1"),
    "max_grad_norm": ("float", "1"),
    "surrogate": ("text", ""),
    "clip_epsilon": ("float", "1"),
    "kl_coefficient": ("float", "1"),
    "target_kl": ("float", "nats"),
    "com": ("float", "gradient steps; fill value: reset, plain PPO"),
    "max_importance_ratio": ("float", "1"),
    "outer_learning_rate": ("float", "1"),
    "outer_momentum": ("float", "1"),
    "schedule": ("text", ""),
    "final_learning_rate": ("float", "1; fill value: constant"),
    "final_clip_epsilon": ("float", "1; fill value: constant"),
    "final_outer_learning_rate": ("float", "1; fill value: constant"),
    "final_com": ("float", "gradient steps; fill value: constant"),
    "discount": ("float", "1"),
    "gae_lambda": ("float", "1"),
    "entropy_coefficient": ("float", "1"),
    "value_coefficient": ("float", "1"),
    "value_clip": ("float", "return"),
    "normalise_advantages": ("bool", "1 is on"),
    "advantage_scope": ("text", ""),
    "normalise_observations": ("bool", "1 is on"),
    "normalise_rewards": ("bool", "1 is on"),
    "network": ("text", ""),
    "hidden_sizes": ("text", "widths, comma between"),
    "segment_length": ("int", "transitions"),
    "initial_std": ("float", "1"),
    "learn_std": ("bool", "1 is on"),
    "compute_precision": ("text", ""),
    "storage_precision": ("text", ""),
    "staggered_starts": ("text", ""),
    "meter_interval": ("int", "updates"),
    "nonfinite": ("text", ""),
    "seed": ("int", ""),
    "num_seeds": ("int", "count"),
    "evaluation_episodes": ("int", "count"),
    "prediction": ("text", "SHA-256"),
}

RESULTS: Mapping[str, tuple[str, str]] = {
    "transitions": ("int", "transitions"),
    "updates": ("int", "count"),
    "gradient_steps": ("int", "count"),
    "ddr": ("float", "transitions per nat"),
    "ddr_noise": ("float", "transitions per nat"),
    "score": ("float", "score units"),
    "score_standard_error": ("float", "score units"),
    "score_anchor": ("float", "score units"),
    "code_version": ("text", ""),
}

INT_FILL = -1
RESET, CONSTANT = "reset", "constant"  # a number would mean something else

ALL: Mapping[str, tuple[str, str]] = {**CONFIG, **RESULTS}

REQUIRED = ("environment", "budget", "num_envs", "seed", "transitions", "score")

# Two runs that differ only in these are runs of one configuration.
NOT_IDENTITY = ("budget", "seed", "num_seeds", "evaluation_episodes", "prediction")

IDENTITY = tuple(name for name in CONFIG if name not in NOT_IDENTITY)


def convert(name: str, values: Sequence[object]) -> Shaped[np.ndarray, "run"]:
    """Values of one column as an array of its kind; None is not measured.

    Raises:
        ValueError: a value of another kind, which the text shows.
    """
    kind = ALL[name][0] if name in ALL else _guess(values)
    try:
        return _CONVERT[kind](values)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"the column {name!r} should hold {kind} values; it holds "
            f"{next((v for v in values if not _fits(kind, v)), None)!r}"
        ) from None


def _guess(values: Sequence[object]) -> str:
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool | np.bool_) for value in known):
        return "bool" if len(known) == len(values) and known else "float"
    if all(isinstance(value, int | np.integer) for value in known):
        return "int"
    return "text" if any(isinstance(value, str) for value in known) else "float"


def _fits(kind: str, value: object) -> bool:
    try:
        _CONVERT[kind]([value])
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _ints(values: Sequence[object]) -> np.ndarray:
    whole = [INT_FILL if value is None else _whole(value) for value in values]
    return np.array(whole, dtype=np.int64)


def _whole(value: object) -> int:
    if isinstance(value, bool) or value != int(value):  # type: ignore[call-overload]
        raise ValueError(value)
    return int(value)  # type: ignore[call-overload]


def _floats(values: Sequence[object]) -> np.ndarray:
    missing = (None, RESET, CONSTANT)
    numbers = [np.nan if value in missing else float(value) for value in values]  # type: ignore[arg-type]
    return np.array(numbers, dtype=np.float64)


def _bools(values: Sequence[object]) -> np.ndarray:
    if any(value not in (0, 1) for value in values):
        raise ValueError(values)
    return np.array(values, dtype=bool)


def _words(values: Sequence[object]) -> np.ndarray:
    return np.array([_word(value) for value in values], dtype=object)


def _word(value: object) -> str:
    if isinstance(value, tuple | list | np.ndarray):
        return ",".join(str(item) for item in value)
    return "" if value is None else str(value)


_CONVERT = {"int": _ints, "float": _floats, "bool": _bools, "text": _words}
