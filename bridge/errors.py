"""The user's mistakes, as one sentence each."""

from fullscale.config.error import UsageError

__all__ = ["UsageError"]
