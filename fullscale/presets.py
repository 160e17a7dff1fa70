"""Starting configurations by environment name: the settings the docs speak of.

Standard library only, so that a prediction can write a configuration without JAX.
`preset("lqr", budget=2_000_000, num_envs=64)` gives a full `RunConfig`.
"""

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType

from fullscale.config import MAX_COUNT, ConfigError, RunConfig, from_mapping

_BANDIT = {
    "num_envs": 512, "rollout_length": 1, "minibatch_size": 512, "update_epochs": 4,
    "learning_rate": 3e-3, "discount": 1.0, "gae_lambda": 0.95,
    "max_grad_norm": float("inf"), "network": "linear", "entropy_coefficient": 0.2,
    "normalise_advantages": False,
}  # fmt: skip
_LQR = {
    "num_envs": 64, "rollout_length": 32, "minibatch_size": 512, "update_epochs": 4,
    "learning_rate": 3e-3, "discount": 1.0, "gae_lambda": 0.95,
    "max_grad_norm": float("inf"), "network": "linear", "initial_std": 0.3,
    "learn_std": False,
}  # fmt: skip
# Negative controls: their plateaus come from exploration and capacity, and no outer
# step mends them. An episode of `bandit-sparse` is one rollout.
_BANDIT_SPARSE = {
    **_BANDIT, "num_envs": 64, "rollout_length": 8, "gae_lambda": 1.0,
}  # fmt: skip
_REACHER = {"num_envs": 128, "rollout_length": 32, "minibatch_size": 512}
_SWIMMER = _REACHER
_PENDULUM = {
    "num_envs": 128, "rollout_length": 32, "minibatch_size": 512,
    "learning_rate": 1e-3, "discount": 0.95,
}  # fmt: skip
_BRAX = {
    "num_envs": 2048, "rollout_length": 20, "minibatch_size": 2048,
    "update_epochs": 4, "learning_rate": 3e-4, "discount": 0.97,
    "normalise_observations": True, "entropy_coefficient": 1e-3,
}  # fmt: skip
# The public Kinetix SFL settings (FLAIROx/Kinetix, configs/sfl.yaml).
_KINETIX_SFL = {
    "num_envs": 2048, "rollout_length": 256, "minibatch_size": 16384,
    "update_epochs": 8, "learning_rate": 5e-5, "discount": 0.995, "gae_lambda": 0.9,
    "entropy_coefficient": 0.01, "max_grad_norm": 0.5,
}  # fmt: skip

ANY_BRAX = "brax/NAME"  # stands for every name that Brax knows
PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "bandit": _BANDIT,
        "bandit-sparse": _BANDIT_SPARSE,
        "bandit-rank1": _BANDIT,
        "lqr": _LQR,
        "lqr-sparse": _LQR,
        "lqr-rank1": _LQR,
        "reacher": _REACHER,
        "swimmer": _SWIMMER,
        "pendulum": _PENDULUM,
        ANY_BRAX: _BRAX,
        "kinetix-sfl-m": _KINETIX_SFL,
    }
)

NOT_YET_TRAINABLE = frozenset({"kinetix-sfl-m"})


def family(environment: str) -> str:
    """The key of `PRESETS` that an environment belongs to, if there is one.

    Its own name, or "brax/NAME" for all of Brax, whose names only Brax knows.
    """
    return ANY_BRAX if re.fullmatch(r"brax/\w+", environment) else environment


def check_trainable(environment: str) -> None:
    """Refuse an environment that is unknown or not part of this version.

    Raises:
        ConfigError: with what there is.
    """
    trainable = sorted(set(PRESETS) - NOT_YET_TRAINABLE)
    if environment in NOT_YET_TRAINABLE:
        raise ConfigError(
            f"environment {environment!r} cannot be trained yet, because Kinetix is "
            f"not part of this version; there are {trainable}"
        )
    if family(environment) not in PRESETS:
        close = difflib.get_close_matches(environment, trainable, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"unknown environment {environment!r}; {hint}there are {trainable}"
        )


def check_runnable(config: RunConfig) -> None:
    """Refuse a configuration that this version of the trainer cannot run.

    Raises:
        ConfigError: with the value and what would run.
    """
    check_trainable(config.environment)
    if config.updates > MAX_COUNT:
        raise ConfigError(
            f"budget = {config.budget} is {config.updates} updates of "
            f"{config.samples_per_update} transitions; at most {MAX_COUNT} can be "
            "counted: use more environments"
        )


def preset(environment: str, budget: float | int, **changes: object) -> RunConfig:
    """The starting configuration of an environment, with some keys changed.

    Numbers may be written as in a file: 2 for 2.0, 2e6 for a budget of 2,000,000.

    Raises:
        ConfigError: unknown environment, or changes that cannot run.
    """
    if environment not in NOT_YET_TRAINABLE:
        check_trainable(environment)
    values = {"environment": environment, "budget": budget}
    return from_mapping({**values, **PRESETS[family(environment)], **changes})
