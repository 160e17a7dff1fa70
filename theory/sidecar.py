"""A versioned JSON file that says when it is damaged: format, version, finite, hash.

The hash is the SHA-256 of the canonical text (keys sorted, no spaces) of everything
but the hash. Standard library only.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

FORMAT, VERSION = "ppo-outer-loop/calibration", 1


class CalibrationError(ValueError):
    """A calibration that cannot be read or used; the text is one sentence."""


def content_hash(payload: Mapping[str, object]) -> str:
    """SHA-256 of the canonical JSON of a payload, without its key "hash"."""
    content = {key: value for key, value in payload.items() if key != "hash"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write(path: Path, payload: Mapping[str, object]) -> None:
    """Write format, version, payload and hash, whole or not at all.

    Raises:
        CalibrationError: a number is not finite, or the file cannot be written.
    """
    content = {"format": FORMAT, "version": VERSION, **payload}
    try:
        content["hash"] = content_hash(content)
        text = json.dumps(content, allow_nan=False, ensure_ascii=False) + "\n"
    except ValueError:
        raise CalibrationError(f"{str(path)!r} would hold non-finite numbers") from None
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise CalibrationError(
            f"cannot write {str(path)!r}: {error.strerror}"
        ) from None


def read(path: Path) -> dict[str, object]:
    """Read the payload of a sidecar, its hash included.

    Args:
        path: the .json file, or its name without a suffix (or with the table's .nc).

    Raises:
        CalibrationError: missing, not JSON, not a calibration, an unknown version,
            damaged, or holding non-finite numbers.
    """
    path = path if path.suffix == ".json" else path.with_suffix(".json")
    try:
        text = path.read_bytes().decode()
        payload = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except OSError as error:
        raise CalibrationError(
            f"cannot read the calibration {str(path)!r}: {error.strerror}"
        ) from None
    except _NotFinite as error:
        raise CalibrationError(f"{str(path)!r} holds the number {error}") from None
    except (ValueError, RecursionError):
        raise CalibrationError(f"{str(path)!r} is not JSON text") from None
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise CalibrationError(f"{str(path)!r} is not a calibration ({FORMAT!r})")
    if payload.get("version") != VERSION:
        raise CalibrationError(
            f"{str(path)!r} has format version {payload.get('version')!r}; this code "
            f"reads version {VERSION}"
        )
    if payload.get("hash") != content_hash(payload):
        raise CalibrationError(
            f"{str(path)!r} is damaged: its content does not match its hash"
        )
    return payload


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all (temporary file, fsync, rename)."""
    name = path.with_name(f".{path.name}.{os.getpid()}")
    # Not `tempfile`, whose files only their owner may read.
    handle = os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


class _NotFinite(Exception):
    """A number in the text that is not finite."""


def _refuse(text: str) -> float:
    raise _NotFinite(text)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _NotFinite(text)
    return value
