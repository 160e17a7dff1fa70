"""The shell of this package's commands: `fullscale.command` with more mistakes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fullscale import command as shell
from fullscale.command import BAD_INPUT, DONE, INTERRUPTED, parse, sentence, write
from theory.calibration import CalibrationError

__all__ = ["BAD_INPUT", "DONE", "INTERRUPTED", "parse", "run", "sentence", "write"]

A = TypeVar("A")
MISTAKES = (*shell.MISTAKES, CalibrationError)


def run(
    arguments: type[A],
    main: Callable[[A], int],
    command: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the arguments, run the command, return its exit code (`command.run`)."""
    return shell.run(arguments, main, command, argv, MISTAKES)
