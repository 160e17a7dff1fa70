"""Every property that the theory has to have is some test's, by number.

The numbers are those of the project's list of properties and vectors; a test names the
one that it is in its docstring, as "Property 28: ...".
"""

import re
from pathlib import Path

NAMED = re.compile(r"Propert(?:y|ies) (\d[\d, and]*)")
PROPERTIES = set(range(1, 48))


def named(text: str) -> set[int]:
    """Numbers of the properties that a file's tests say they are."""
    groups = NAMED.findall(text)
    return {int(number) for group in groups for number in re.findall(r"\d+", group)}


def test_every_property_is_tested() -> None:
    files = Path(__file__).parent.glob("test_theory_*.py")
    found = set().union(*(named(file.read_text(encoding="utf-8")) for file in files))
    assert PROPERTIES - found == set()


def test_lists_of_numbers_are_read() -> None:
    text = "Property 7. Properties 10 and 35, by simulation. Properties 1, 2 and 3."
    assert named(text) == {1, 2, 3, 7, 10, 35}
