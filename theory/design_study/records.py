"""The study's log: one JSON line per table, appended as it is made.

A run that is killed leaves at most one torn line, which is counted and made again.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION = 1
Record = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all lines of a log share.

    Attributes:
        seed: of the study.
        draws: of the bootstrap in each fit.
    """

    seed: int
    draws: int


def append(
    path: Path, setting: Setting, scenario: str, number: int, record: Record
) -> None:
    """Add the record of one table; on disk when this returns."""
    line = {
        "version": VERSION,
        **vars(setting),
        "scenario": scenario,
        "table": number,
        **record,
    }
    text = json.dumps(line, allow_nan=False) + "\n"
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            text = text if file.read() == b"\n" else "\n" + text
        file.write(text.encode())


def read(path: Path, setting: Setting) -> tuple[Mapping[tuple[str, int], Record], int]:
    """(scenario, table) → record, and the number of torn lines; empty without a file.

    Raises:
        ValueError: a line is of another format version, seed or number of draws.
    """
    found: dict[tuple[str, int], Record] = {}
    torn = 0
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in filter(None, lines):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            torn += 1
            continue
        for name, value in {"version": VERSION, **vars(setting)}.items():
            if record.get(name) != value:
                raise ValueError(
                    f"{str(path)!r} has {name} = {record.get(name)}, not {value}; "
                    "continue it with its own, or give another file."
                )
        found[record["scenario"], record["table"]] = record
    return found, torn
