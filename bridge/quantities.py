"""Numbers as they are typed on a command line: exact, and refused by name.

All numeric flags reach us as text, because `int` refuses 1e12 and `float` accepts nan.
"""

import decimal

from bridge.errors import UsageError

MAX_COUNT = 10**18  # int64 holds 9.2e18; runs add numbers up


def count(flag: str, text: str, example: str, *, least: int = 1) -> int:
    """A whole number from `least` to 1e18, exact; `1e12` and `2_000_000` are fine.

    Args:
        flag: name of the flag, for the message.
        text: what was typed.
        example: a right value, for the message.
        least: the smallest right value.

    Raises:
        UsageError: not such a number.
    """
    value = _finite(text)
    if value is None or not least <= value <= MAX_COUNT or value != int(value):
        raise UsageError(
            f"{flag} = {text!r} should be a whole number from {least} to 1e18, "
            f"for example {flag} {example}"
        )
    return int(value)


def positive(flag: str, text: str, example: str) -> float:
    """A positive finite number. Raises UsageError."""
    value = _finite(text)
    number = 0.0 if value is None else float(value)
    if not 0.0 < number < float("inf"):
        raise UsageError(
            f"{flag} = {text!r} should be a positive finite number, "
            f"for example {flag} {example}"
        )
    return number


def _finite(text: str) -> decimal.Decimal | None:
    try:
        value = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None
    return value if value.is_finite() else None
