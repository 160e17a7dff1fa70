"""Execute notebooks from top to bottom: `python -m tests.support.notebooks FILE…`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TIMEOUT_SECONDS = 300


def execute(path: Path) -> int:
    """Run every cell in a fresh kernel; returns how many ran. Raises on an error."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=TIMEOUT_SECONDS, resources=folder).execute()
    return sum(cell.cell_type == "code" for cell in notebook.cells)


def main(paths: Sequence[str]) -> int:
    if not paths:
        sys.stderr.write("error: no notebook was named\n")
        return 2
    for path in map(Path, paths):
        sys.stdout.write(f"{path.name}: {execute(path)} code cells ran\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
