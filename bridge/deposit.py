"""Files that appear together or not at all, and never replace others.

A folder that is made for them is taken away again when they cannot be written.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bridge.errors import UsageError


def place(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files into a folder, all or none; files with that very text stay.

    Args:
        folder: made if missing, parents included.
        texts: name → text.

    Raises:
        UsageError: a name exists with another content, or the files cannot be written;
            nothing of them is left then.
    """
    missing = {
        name: text for name, text in texts.items() if _is_new(folder / name, text)
    }
    made: list[Path] = []
    written: list[Path] = []
    try:
        _make(folder, made)
        ready = {}
        for name, text in missing.items():
            ready[name] = _temporary(folder, name, text, written)
        for name, temporary in ready.items():
            os.replace(temporary, folder / name)
            written.append(folder / name)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        for path in reversed(made):
            path.rmdir()
        if not isinstance(error, OSError | ValueError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot write into {str(folder)!r}: {reason}; --out should be a place "
            "that can be written"
        ) from None


def _is_new(path: Path, text: str) -> bool:
    """Whether the file has to be written; refuses one that holds something else."""
    try:
        found = path.read_bytes()
    except (OSError, ValueError):
        return True  # missing, or about to fail when it is written
    if found != text.encode():
        raise UsageError(
            f"{str(path)!r} exists and holds something else; it is not replaced, give "
            "another --out"
        )
    return False


def _make(folder: Path, made: list[Path]) -> None:
    """Create a folder and its parents, noting each one created."""
    if not folder.is_dir():
        if folder.parent != folder:
            _make(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _temporary(folder: Path, name: str, text: str, written: list[Path]) -> Path:
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
    written.append(Path(temporary))
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, 0o644 & ~_umask())
    return Path(temporary)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
