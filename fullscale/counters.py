"""What a run has used so far, as Python integers: exact at any size.

The device counts updates only, in 32 bits; everything that can pass 2^31 is counted
here, added up over what was done, and kept in checkpoints.
"""

from typing import NamedTuple

from fullscale.config import RunConfig


class Counters(NamedTuple):
    """Counts of one seed of a run.

    Attributes:
        updates: outer iterations done.
        transitions: used for training.
        simulator_transitions: all that the environments made.
        gradient_steps: scheduled (past `target_kl` fewer are taken).
    """

    updates: int = 0
    transitions: int = 0
    simulator_transitions: int = 0
    gradient_steps: int = 0

    def after(self, config: RunConfig, updates: int) -> "Counters":
        """The counts after so many more updates under this configuration."""
        samples = updates * config.samples_per_update
        return Counters(
            self.updates + updates,
            self.transitions + samples,
            self.simulator_transitions + samples,
            self.gradient_steps + updates * config.gradient_steps_per_update,
        )
