"""One run's configuration: every knob, its unit, its default, and what is refused.

Standard library and tomlkit only, so a prediction can write one without JAX.
"""

from fullscale.config.checks import MAX_COUNT, MAX_SAMPLES
from fullscale.config.error import ConfigError
from fullscale.config.knobs import (
    CONSTANT,
    FULL,
    MAX_BLOCKS,
    RESET,
    RunConfig,
    field_names,
)
from fullscale.config.toml import changes, dumps, from_mapping, load, loads

__all__ = [
    "CONSTANT",
    "FULL",
    "MAX_BLOCKS",
    "MAX_COUNT",
    "MAX_SAMPLES",
    "RESET",
    "ConfigError",
    "RunConfig",
    "changes",
    "dumps",
    "field_names",
    "from_mapping",
    "load",
    "loads",
]
