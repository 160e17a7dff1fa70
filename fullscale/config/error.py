"""The one error of a configuration."""


class ConfigError(ValueError):
    """A configuration that cannot run; its text names the value and a right one."""
