"""The shell of a command: arguments in, one sentence out when they are wrong.

`run(Arguments, main)` parses `sys.argv` into a frozen dataclass, calls `main` and
returns its exit code. A mistake of the user's, in the arguments or in a file they name,
becomes one line `error: …` on stderr and exit code 2. Anything else is our mistake and
keeps its traceback.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import tyro

from fullscale.config.error import ConfigError, UsageError
from fullscale.files import StorageError

A = TypeVar("A")
DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130
COMPLAINTS = (  # what the parser says, and how we do
    (r"Missing from .*?: (.+)", r"missing argument \1"),
    (r"Missing value for argument '(.+?)'", r"\1 needs a value"),
    (r"Unrecognized options: (.+)", r"unknown argument \1"),
)
MISTAKES = (UsageError, ConfigError, StorageError, OSError)


def run(
    arguments: type[A],
    main: Callable[[A], int],
    command: str,
    argv: Sequence[str] | None = None,
    mistakes: tuple[type[Exception], ...] = MISTAKES,
) -> int:
    """Parse the arguments, run the command, return its exit code.

    Args:
        arguments: dataclass whose fields are the flags and their docs the help.
        main: the command itself; returns an exit code.
        command: how the user calls it, e.g. "python -m fullscale.plan".
        argv: the arguments; those of the process by default.
        mistakes: errors that are the user's.
    """
    try:
        return main(parse(arguments, command, sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:
        return DONE if stop.code is None else int(stop.code)
    except BrokenPipeError:
        return DONE  # the reader has seen enough
    except KeyboardInterrupt:
        return INTERRUPTED
    except mistakes as mistake:
        sys.stderr.write(f"error: {sentence(mistake)}\n")  # its encoder never fails
        return BAD_INPUT


def parse(arguments: type[A], command: str, argv: Sequence[str]) -> A:
    """The arguments as a dataclass.

    Raises:
        UsageError: they cannot be parsed; the parser's box is turned into a sentence.
        SystemExit: the help was asked for, and printed.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                arguments,
                prog=command,
                args=list(argv),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        said = _complaints(complaint.getvalue()) or f"cannot understand {list(argv)}"
        raise UsageError(f"{said}; see --help") from None


def write(text: str) -> None:
    """Print a result: the one place where a command does.

    Raises:
        OSError: standard output cannot be written (closed, or its disk is full).
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # here, where a failure can still be told


def sentence(mistake: Exception) -> str:
    """One line that says what is wrong."""
    text = str(mistake)
    if isinstance(mistake, OSError):
        reason = mistake.strerror or text or type(mistake).__name__
        name = f"{str(mistake.filename)!r}: " if mistake.filename else ""
        text = f"cannot read or write {name or 'the output: '}{reason}"
    return " ".join(text.split())


def _complaints(box: str) -> str:
    """What the parser's box says is wrong, as one line; empty if it says it otherwise.

    The box has lines around it, or, where they cannot be shown, dashes below its title.
    """
    paragraphs = [""]
    for line in box.splitlines():
        if line.strip(" │─-╭╮╰╯"):
            paragraphs[-1] += f" {line.strip(' │')}"
        else:
            paragraphs.append("")
    found = []
    for pattern, reworded in COMPLAINTS:
        matches = (re.search(pattern, paragraph) for paragraph in paragraphs)
        found += [match.expand(reworded) for match in matches if match]
    return "; ".join(found).replace(" (required)", "").rstrip(". ")
