"""The score of a policy, by its former name."""

from fullscale.score import evaluate

__all__ = ["evaluate"]
