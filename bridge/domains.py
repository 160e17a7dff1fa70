"""What a domain's answer rests on: a shipped calibration, a given one, or a prior."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from bridge import prior
from bridge.errors import UsageError
from fullscale.presets import PRESETS, family
from theory import calibration as calibration_module
from theory.calibration import Calibration, CalibrationError

SHIPPED = Path(__file__).parent / "calibrations"
DATA, PRIOR = "data", "prior"  # "transfer" waits for a calibration that allows one


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A domain that can be answered for.

    Attributes:
        name: what the user asked for.
        environment: what its configuration trains.
        basis: "data" or "prior".
        calibration: what it answers from; None for a prior.
    """

    name: str
    environment: str
    basis: str
    calibration: Calibration | None


def find(name: str | None, calibration_file: str | None) -> Domain:
    """The domain of a request.

    Args:
        name: of the domain; the calibration's own, or the prior's, by default.
        calibration_file: a calibration to answer from instead of the shipped one.

    Raises:
        UsageError: an unknown domain, or one without an answer.
        CalibrationError: the calibration cannot be read.
    """
    if calibration_file is not None:
        return _given(name, Path(calibration_file))
    if name is None or name == prior.DOMAIN:
        return Domain(
            name=prior.DOMAIN,
            environment=prior.ENVIRONMENT,
            basis=PRIOR,
            calibration=None,
        )
    path = SHIPPED / f"{name}.json"
    if family(name) not in PRESETS:
        raise UsageError(_unknown(name))
    if not path.is_file():
        raise UsageError(
            f"--domain {name!r} has no calibration yet; there are answers for "
            f"{_answers()}, or give --calibration FILE"
        )
    return _of(name, _load(path))


def _given(name: str | None, path: Path) -> Domain:
    calibration = _load(path)
    if name is not None and name != calibration.domain:
        raise UsageError(
            f"--calibration {str(path)!r} is of the domain {calibration.domain!r}, not "
            f"{name!r}; leave --domain out or give a calibration of {name!r}"
        )
    if family(calibration.domain) not in PRESETS:
        raise UsageError(_unknown(calibration.domain))
    return _of(calibration.domain, calibration)


def _of(name: str, calibration: Calibration) -> Domain:
    return Domain(name=name, environment=name, basis=DATA, calibration=calibration)


def _load(path: Path) -> Calibration:
    try:
        return calibration_module.load(path)
    except CalibrationError:
        raise
    except (OSError, ValueError) as error:
        raise CalibrationError(
            f"cannot read the calibration {str(path)!r}: {error}"
        ) from None


def available() -> tuple[str, ...]:
    """Domains with a shipped calibration or a prior."""
    shipped = {path.stem for path in SHIPPED.glob("*.json")} & set(PRESETS)
    return (prior.DOMAIN, *sorted(shipped))


def _answers() -> str:
    return ", ".join(
        f"{name!r} ({PRIOR if name == prior.DOMAIN else DATA})" for name in available()
    )


def _unknown(name: str) -> str:
    known = [*available(), *PRESETS]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown domain {name!r}; {hint}there are answers for {_answers()}"
