"""`python -m bridge.predict --budget 1e12`: how many environments, and why.

With `--out DIR` the prediction and the configuration of the recommended run go on
record, see `bridge.record`.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bridge import cli, domains, quantities
from bridge.answer import Request, answer
from bridge.errors import UsageError

COMMAND = "python -m bridge.predict"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """How many parallel environments to use for a budget of transitions."""

    budget: Annotated[str, arg(metavar="B")]
    """Transitions of one seed's run, e.g. 1e12."""
    domain: Annotated[str | None, arg(metavar="NAME")] = None
    """Environment to train; by default kinetix-sfl, or the calibration's own."""
    calibration: Annotated[str | None, arg(metavar="FILE")] = None
    """Calibration to answer from, instead of the one shipped for the domain."""
    devices: Annotated[str | None, arg(metavar="D")] = None
    """Devices the run would use, for its hours."""
    throughput: Annotated[str | None, arg(metavar="R")] = None
    """Transitions per second and device, for its hours."""
    seeds: Annotated[str, arg(metavar="K")] = "5"
    """Seeds that the run trains and that the predicted mean score is over."""
    out: Annotated[str | None, arg(metavar="DIR")] = None
    """Folder for prediction.json and config.toml."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return cli.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    request = _request(arguments)
    result = answer(request, domains.find(arguments.domain, arguments.calibration))
    if arguments.out is None:
        written = None
    else:
        from bridge import record  # not needed for an answer alone; start-up counts

        written = record.put(_folder(arguments.out), result)
    if not arguments.json:
        from bridge import report  # rich takes a sixth of a second

        cli.write(report.text(result, written, arguments.out))
        return cli.DONE
    content = result.to_json()
    if written is not None:
        content["prediction"] = {
            "sha256": written.sha256,
            "survival_rate_if_right": written.survival_rate_if_right,
        }
    cli.write(json.dumps(content, allow_nan=False))
    return cli.DONE


def _folder(text: str) -> Path:
    if not text.strip():
        raise UsageError(f"--out = {text!r} should name a folder")
    return Path(text)


def _request(arguments: Arguments) -> Request:
    devices, throughput = arguments.devices, arguments.throughput
    return Request(
        budget=quantities.count("--budget", arguments.budget, "1e12"),
        num_seeds=quantities.count("--seeds", arguments.seeds, "5"),
        devices=(
            None if devices is None else quantities.count("--devices", devices, "8")
        ),
        throughput=(
            None
            if throughput is None
            else quantities.positive("--throughput", throughput, "2.5e5")
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
