"""Environments by name. Adding one is one small file and one line here.

The environment's module is imported when it is asked for: third-party simulators start
the JAX backend at import, after which devices can no longer be set up.
"""

import importlib

from fullscale import stagger
from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.presets import check_runnable, family

MODULES = {
    "bandit": "fullscale.environments.bandit",
    "bandit-sparse": "fullscale.environments.bandit_sparse",
    "bandit-rank1": "fullscale.environments.bandit_rank1",
    "lqr": "fullscale.environments.lqr",
    "lqr-sparse": "fullscale.environments.lqr_sparse",
    "lqr-rank1": "fullscale.environments.lqr_rank1",
    "reacher": "fullscale.environments.reacher",
    "swimmer": "fullscale.environments.swimmer",
    "pendulum": "fullscale.environments.pendulum",
    "brax/NAME": "fullscale.environments.brax",
}


def make_environment(config: RunConfig) -> Environment:
    """The configured environment.

    Raises:
        ConfigError: the name is unknown, or the environment cannot be trained yet or
            not as configured.
    """
    check_runnable(config)
    module = importlib.import_module(MODULES[family(config.environment)])
    environment = module.make(config)
    stagger.is_staggered(config, environment)
    return environment
