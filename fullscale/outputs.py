"""What a run writes besides its log: nothing here changes a result."""

import dataclasses
import math

from fullscale.config import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a run writes besides its log."""

    checkpoints: bool = True
    """Write the whole state now and then and at the end, so that --resume can go on."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints (inf: only by updates, and at the end)."""
    checkpoint_interval: int = 0
    """Updates between checkpoints, besides those by time; 0: only by time."""
    wandb: str = ""
    """Project of wandb to log to as well (needs the extra `wandb`); empty for none."""

    def check(self) -> None:
        """Refuse what cannot be done. Raises ConfigError."""
        if not self.checkpoint_minutes > 0:
            raise ConfigError(
                f"--checkpoint-minutes {self.checkpoint_minutes:g} should be positive "
                "(inf: only by updates, and at the end)"
            )
        if self.checkpoint_interval < 0:
            raise ConfigError(
                f"--checkpoint-interval {self.checkpoint_interval} should be a number "
                "of updates, or 0 for none"
            )

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between checkpoints; inf if there are none by time."""
        return self.checkpoint_minutes * 60.0 if self.checkpoints else math.inf
