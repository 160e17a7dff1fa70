"""Outcomes of a fit as data: a status that is a sentence, estimates with their set."""

import enum
from dataclasses import dataclass

from theory.fit.intervals import LEVEL, Interval, Kind


class Status(enum.Enum):
    """How an estimate stands; the value is the sentence to show."""

    CONVERGED = "The fit converged."
    AT_BOUND = "The estimate lies on the bound of what is possible."
    OPEN_ABOVE = "The data only bound it from below: the profile is open upwards."
    OPEN_BELOW = "The data only bound it from above: the profile is open downwards."
    OPEN = "The data do not identify it: the profile is open on both sides."
    TOO_FEW = "There are too few cells or configurations for this many parameters."
    SINGULAR = "Some knobs vary only together, so their effects cannot be told apart."
    NOT_CONVERGED = "The search did not settle on a minimum."


FAILED = (Status.TOO_FEW, Status.SINGULAR, Status.NOT_CONVERGED)


class NotConverged(RuntimeError):
    """A fit without an answer; `status` says which kind.

    Attributes:
        status: the outcome.
    """

    def __init__(self, status: Status, detail: str = "") -> None:
        super().__init__(f"{status.value} {detail}".strip())
        self.status = status


@dataclass(frozen=True)
class Estimate:
    """One parameter.

    Attributes:
        value: the estimate; None if the profile is open, where no number is meant.
        low: lower end of the 95 % set, None if open below.
        high: upper end of the 95 % set, None if open above.
        status: how it stands.
        kind: what the set is, see `theory.fit.intervals`.
    """

    value: float | None
    low: float | None
    high: float | None
    status: Status
    kind: Kind = Kind.PERCENTILE

    @classmethod
    def of(cls, value: float | None, interval: Interval, status: Status) -> "Estimate":
        """An estimate with an interval of any kind."""
        return cls(value, interval.low, interval.high, status, interval.kind)

    @property
    def interval(self) -> Interval:
        """The set as an interval."""
        return Interval(self.low, self.high, LEVEL, self.kind)

    def sentence(self) -> str:
        """The status with the numbers that are meant."""
        if self.status is Status.OPEN_ABOVE and self.low is not None:
            return f"{self.status.value} It is at least {self.low:.3g}."
        if self.status is Status.OPEN_BELOW and self.high is not None:
            return f"{self.status.value} It is at most {self.high:.3g}."
        return self.status.value
