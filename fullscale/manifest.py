"""A folder that is whole or noticed not to be: SHA-256 of every file, written last.

The file system may lose or change what it took: a flipped bit, a file cut short, a file
that is not there. Some formats read such a file without a word, so nothing is read from
a folder before it is verified.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fullscale.files import StorageError, force_to_disk, umask, write_atomically

MANIFEST = "manifest.json"


class Damaged(StorageError):
    """A folder that is not as it was written; the text says in what."""


@contextlib.contextmanager
def new_folder(path: Path, kind: str, version: int) -> Iterator[Path]:
    """A folder to fill, which appears under its name sealed and whole, or not at all.

    A folder of that name that is there already is replaced.

    Args:
        path: its name; the folder above exists.
        kind: name of the format, written into the manifest.
        version: of the format.

    Raises:
        OSError: the disk is full or cannot be written; nothing is left of the folder.
    """
    parent = path.parent
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=f".{path.name}."))
    try:
        yield folder
        seal(folder, kind, version)
        folder.chmod(0o777 & ~umask())
        discard(path)
        folder.rename(path)
        force_to_disk(parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def seal(folder: Path, kind: str, version: int) -> None:
    """Force all files to the disk and write the manifest of their contents."""
    files = {}
    for path in sorted(folder.rglob("*")):
        force_to_disk(path)
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    manifest = {"format": kind, "version": version, "files": files}
    manifest["sha256"] = _own_digest(manifest)
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    force_to_disk(folder)


def verify(folder: Path, kind: str, version: int) -> str:
    """Check every file against the manifest; returns the manifest's own SHA-256.

    Raises:
        Damaged: what is missing, cut short, changed or no such folder.
        StorageError: of a version that this code cannot read.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError:
        raise Damaged(f"it has no readable {MANIFEST}: it was not finished") from None
    try:
        manifest = json.loads(data)
        sound = manifest.pop("sha256") == _own_digest(manifest)
        found, files = manifest["version"], manifest["files"]
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise Damaged(f"its {MANIFEST} is damaged")
    if manifest["format"] != kind or found != version:
        raise StorageError(
            f"its format is {manifest['format']!r}, version {found!r}; this code reads "
            f"{kind!r}, version {version}"
        )
    for name, file in files.items():
        _check(folder, name, file["bytes"], file["sha256"])
    return hashlib.sha256(data).hexdigest()


def _own_digest(manifest: dict) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _check(folder: Path, name: str, size: int, sha256: str) -> None:
    path = folder / name
    try:
        found = path.stat().st_size
        if found != size:
            raise Damaged(f"{name} has {found} bytes instead of {size}")
        if digest(path) != sha256:
            raise Damaged(f"{name} is not what was written (its SHA-256 differs)")
    except OSError:
        raise Damaged(f"{name} is missing or unreadable") from None


def digest(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def discard(folder: Path) -> None:
    """Remove a folder so that a kill in between leaves none that looks damaged."""
    if folder.exists():
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        shutil.rmtree(folder.rename(aside / folder.name).parent, ignore_errors=True)


def leftovers(parent: Path) -> list[Path]:
    """Folders that a killed process left half-written or half-removed."""
    return sorted(path for path in parent.glob(".*.*") if path.is_dir())
