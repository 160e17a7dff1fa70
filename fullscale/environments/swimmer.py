"""`swimmer`: gymnax's Swimmer-misc, time limit 500, never terminal."""

from fullscale.config import RunConfig
from fullscale.environments.gymnax import from_gymnax
from fullscale.environments.protocol import Environment


def make(config: RunConfig) -> Environment:
    """The environment with gymnax's default parameters."""
    del config
    return from_gymnax("swimmer", "Swimmer-misc")
