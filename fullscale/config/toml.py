"""A configuration as TOML, in and out; unknown keys are refused with the nearest."""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomlkit

from fullscale.config.checks import check_type
from fullscale.config.error import ConfigError
from fullscale.config.knobs import RunConfig, field_names


def from_mapping(values: Mapping[str, object]) -> RunConfig:
    """Build a configuration from TOML or JSON values.

    Integers may be written as whole floats (`2e6`); unknown keys are refused with
    the nearest known one.

    Raises:
        ConfigError: unknown or missing key, wrong type, or an impossible combination.
    """
    names = field_names()
    for key in values:
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"unknown configuration key {key!r}{hint}")
    for key in ("environment", "budget"):
        if key not in values:
            raise ConfigError(f"the configuration lacks the key {key!r}")
    kinds = {field.name: field.type for field in dataclasses.fields(RunConfig)}
    coerced = {key: _coerce(key, value, kinds[key]) for key, value in values.items()}
    for key, value in coerced.items():
        check_type(key, value, kinds[key])
    return RunConfig(**coerced)  # type: ignore[arg-type]


def loads(text: str) -> RunConfig:
    """Read a configuration from TOML text. Raises ConfigError."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    return from_mapping(values)


def load(path: Path) -> RunConfig:
    """Read a configuration file. Raises ConfigError with the file's name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None
    try:
        return loads(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def dumps(config: RunConfig) -> str:
    """Write a configuration as TOML, every default included."""
    document = tomlkit.document()
    for name, value in dataclasses.asdict(config).items():
        document.add(name, list(value) if isinstance(value, tuple) else value)
    return tomlkit.dumps(document)


def changes(before: RunConfig, after: RunConfig) -> dict[str, tuple[object, object]]:
    """Keys whose values differ, with both values, in the order they are written."""
    old, new = dataclasses.asdict(before), dataclasses.asdict(after)
    return {key: (old[key], new[key]) for key in old if old[key] != new[key]}


def _coerce(key: str, value: object, kind: object) -> object:
    """Whole floats to int, ints to float, lists to tuples; anything else as it is."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in (float, float | str) and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{key} should be at most 1.8e308") from None
    if isinstance(value, list):
        return tuple(value)
    return value
