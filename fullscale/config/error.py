"""What a configuration, or a request, is refused with."""


class ConfigError(ValueError):
    """A configuration that cannot run; its text names the value and a right one."""


class UsageError(ValueError):
    """A request that cannot be met; the text names the value and a right one."""
