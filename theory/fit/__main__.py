"""`python -m theory.fit TABLE --out CALIBRATION`: fit the laws to a run table."""

import json
import sys

import tyro

from theory.fit import command
from theory.fit.command import Arguments
from theory.fit.status import NotConverged
from theory.sidecar import CalibrationError
from theory.table import TableError


def main(arguments: Arguments) -> int:
    """Run the command; returns the exit code."""
    try:
        report = command.run(arguments)
    except (TableError, CalibrationError) as error:
        return _fail(2, str(error))
    except NotConverged as error:
        return _fail(3, str(error))
    if arguments.json:
        sys.stdout.write(json.dumps(report, allow_nan=False) + "\n")
    else:
        sys.stdout.write(command.text(report))
    return 0


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"theory.fit: {sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(
        main(tyro.cli(Arguments, prog="python -m theory.fit", description=__doc__))
    )
