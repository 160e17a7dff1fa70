"""The user's mistakes, as one sentence each."""


class UsageError(ValueError):
    """A request that cannot be met; the text names the value and a right one."""
