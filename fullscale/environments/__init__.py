"""Environments by name. Adding one is one small file and one line here.

The environment's module is imported when it is asked for: third-party simulators start
the JAX backend at import, after which devices can no longer be set up.
"""

import importlib

from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.presets import check_runnable

MODULES = {
    "bandit": "fullscale.environments.bandit",
    "lqr": "fullscale.environments.lqr",
    "reacher": "fullscale.environments.reacher",
}


def make_environment(config: RunConfig) -> Environment:
    """The configured environment.

    Raises:
        ConfigError: the name is unknown, or the environment cannot be trained yet.
    """
    check_runnable(config)
    return importlib.import_module(MODULES[config.environment]).make(config)
