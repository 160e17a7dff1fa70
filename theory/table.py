"""The run table: one row per (configuration, seed, budget), as a netCDF file.

In memory it is a mapping of equally long arrays: int64 (exact past 10¹²), float64 with
NaN for what was not measured (for `com`: no anchor memory, plain PPO), bool, or text.
On disk NaN becomes a declared fill value, so that no reader has to guess, and a
checksum over the content tells damage. xarray and h5py are imported when a file is
touched.
"""

import hashlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, Shaped

from theory import columns
from theory.sidecar import write_atomically

FORMAT, VERSION = "ppo-outer-loop/run-table", 1
FILL = 9.969209968386869e36  # netCDF's own fill value of a double

Row = Mapping[str, object]


class TableError(ValueError):
    """A run table that cannot be read, written or fitted; the text is one sentence."""


@dataclass(frozen=True)
class RunTable:
    """Rows of runs, as columns.

    Attributes:
        data: column name → values [run]; see `theory.columns` for units.
    """

    data: Mapping[str, Shaped[np.ndarray, "run"]]

    def __len__(self) -> int:
        return len(next(iter(self.data.values()), ()))

    def __getitem__(self, name: str) -> Shaped[np.ndarray, "run"]:
        try:
            return self.data[name]
        except KeyError:
            raise TableError(f"the run table lacks the column {name!r}") from None

    def __contains__(self, name: str) -> bool:
        return name in self.data

    def select(
        self, rows: Bool[np.ndarray, "run"] | Int[np.ndarray, "chosen"]
    ) -> "RunTable":
        """The chosen rows, in the order given."""
        return RunTable({name: values[rows] for name, values in self.data.items()})

    def budgets(self) -> tuple[int, ...]:
        """The budgets that occur, in transitions, increasing."""
        return tuple(int(value) for value in np.unique(self["budget"]))

    def varied(self) -> tuple[str, ...]:
        """Configuration columns, budget and seed aside, with more than one value."""
        return tuple(
            name
            for name in columns.IDENTITY
            if name in self.data and len(set(_texts(self.data[name]))) > 1
        )

    def configurations(self) -> Int[np.ndarray, "run"]:
        """A number per row: equal where all knobs but budget and seed are equal."""
        names = [name for name in columns.IDENTITY if name in self.data]
        keys = list(zip(*(_texts(self.data[name]) for name in names), strict=True))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys], dtype=np.int64)


def from_rows(rows: Sequence[Row]) -> RunTable:
    """Build a table from mappings column → value.

    `com` may be "reset"; `hidden_sizes` a sequence; a value that is None or absent is
    not measured.

    Raises:
        TableError: no rows, a value of the wrong kind, or an inconsistent table.
    """
    if not rows:
        raise TableError("a run table needs at least one row")
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        data = {n: columns.convert(n, [row.get(n) for row in rows]) for n in names}
    except ValueError as error:
        raise TableError(str(error)) from None
    table = RunTable(data)
    validate(table)
    return table


def validate(table: RunTable) -> None:
    """Check what every run table must satisfy.

    Raises:
        TableError: a required column is missing, no rows, or two rows are the same run.
    """
    for name in columns.REQUIRED:
        table[name]
    if len(table) == 0:
        raise TableError("the run table has no rows")
    keys: dict[tuple[object, ...], int] = {}
    names = zip(
        table.configurations().tolist(),
        table["budget"].tolist(),
        table["seed"].tolist(),
        strict=True,
    )
    for row, key in enumerate(names):
        if key in keys:
            raise TableError(
                f"rows {keys[key]} and {row} are the same run (num_envs = "
                f"{table['num_envs'][row]}, budget = {key[1]}, seed = {key[2]})"
            )
        keys[key] = row


def write(path: Path, table: RunTable) -> None:
    """Write the table, whole or not at all.

    Raises:
        TableError: the table is inconsistent, or the file cannot be written.
    """
    import xarray

    validate(table)
    variables, encoding = {}, {}
    for name, values in table.data.items():
        kind, unit = columns.ALL.get(name, ("", ""))
        stored, fill = _stored(values)
        variables[name] = ("run", stored, {"units": unit} if unit else {})
        if kind == "bool" or values.dtype == bool:
            variables[name][2]["kind"] = "bool"
        encoding[name] = {"_FillValue": fill}
    attributes = {
        "format": FORMAT,
        "version": VERSION,
        "columns": ",".join(table.data),
        "sha256": _digest(table),
    }
    dataset = xarray.Dataset(variables, attrs=attributes)
    data = dataset.to_netcdf(None, engine="h5netcdf", encoding=encoding)
    try:
        write_atomically(path, bytes(data))
    except OSError as error:
        raise TableError(f"cannot write {str(path)!r}: {error.strerror}") from None


def read(path: Path) -> RunTable:
    """Read a run table.

    Raises:
        TableError: missing, damaged, not a run table, of an unknown version, or
            inconsistent.
    """
    if not path.is_file():
        raise TableError(f"there is no run table {str(path)!r}")
    try:
        attributes, data = _contents(path)
    except Exception as error:  # h5py raises many kinds on a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(
            f"{str(path)!r} is not a readable netCDF file: {reason}"
        ) from None
    if attributes.get("format") != FORMAT:
        raise TableError(f"{str(path)!r} is not a run table ({FORMAT!r})")
    if attributes.get("version") != VERSION:
        raise TableError(
            f"{str(path)!r} has format version {attributes.get('version')}; this code "
            f"reads version {VERSION}"
        )
    table = RunTable(data)
    if attributes.get("sha256") != _digest(table):
        raise TableError(
            f"{str(path)!r} is damaged: its content does not match its checksum"
        )
    validate(table)
    return table


def append(path: Path, rows: Sequence[Row]) -> RunTable:
    """Add rows to the table at `path`, which is created if absent.

    Returns:
        The table as it is now on disk.

    Raises:
        TableError: a row is already there or of the wrong kind, or the file is bad.
    """
    added = from_rows(rows)
    table = concatenate([read(path), added]) if path.exists() else added
    write(path, table)
    return table


def concatenate(tables: Iterable[RunTable]) -> RunTable:
    """One table after the other; columns that one lacks are not measured there.

    Raises:
        TableError: the tables share a run, or a column has different kinds.
    """
    rows = [row for table in tables for row in to_rows(table)]
    return from_rows(rows)


def to_rows(table: RunTable) -> list[dict[str, object]]:
    """The rows as mappings with Python values; None for what was not measured."""
    names = list(table.data)
    lists = [[_python(v) for v in table.data[name].tolist()] for name in names]
    return [
        dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)
    ]


def _texts(values: np.ndarray) -> list[str]:
    """Values as texts, so that NaN equals NaN."""
    return [repr(value) for value in values.tolist()]


def _python(value: object) -> object:
    return None if isinstance(value, float) and np.isnan(value) else value


def _stored(values: np.ndarray) -> tuple[np.ndarray, object]:
    """Values as they go to disk, and the fill value to declare (None for none)."""
    if values.dtype == bool:
        return values.astype(np.int8), None
    if values.dtype == np.float64:
        if np.any(values == FILL):
            raise TableError(f"the value {FILL!r} cannot be stored: it means 'missing'")
        return np.where(np.isnan(values), FILL, values), FILL
    if values.dtype == np.int64:
        return values, columns.INT_FILL if np.any(values == columns.INT_FILL) else None
    return values.astype(object), None


def _contents(path: Path) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """Attributes and variables; h5py, because h5netcdf fails noisily on damage."""
    import h5py

    with h5py.File(path, "r") as file:
        names = [name for name in file if not _is_bare_dimension(file[name])]
        data = {name: _loaded(file[name]) for name in names}
        attributes = dict(file.attrs)
    order = str(attributes.get("columns", "")).split(",")
    return attributes, {name: data[name] for name in order if name in data}


def _is_bare_dimension(variable: typing.Any) -> bool:
    """Whether this is netCDF's mark of a dimension that has no variable."""
    name = variable.attrs.get("NAME", b"")
    return b"not a netCDF variable" in np.asarray(name).tobytes()


def _loaded(variable: typing.Any) -> np.ndarray:
    if variable.dtype.kind == "O":
        return np.array(variable.asstr()[:], dtype=object)
    values = np.asarray(variable[:])
    if variable.attrs.get("kind") == "bool":
        return values.astype(bool)
    if values.dtype.kind == "f":
        return np.where(values == FILL, np.nan, values.astype(np.float64))
    return values.astype(np.int64)


def _digest(table: RunTable) -> str:
    """SHA-256 over names and content, columns in alphabetical order."""
    digest = hashlib.sha256()
    for name in sorted(table.data):
        values, _ = _stored(table.data[name])
        content = (
            "\x1f".join(map(str, values.tolist())).encode()
            if values.dtype == object
            else np.ascontiguousarray(values).tobytes()
        )
        digest.update(f"{name}\x1e{values.dtype}\x1e{len(content)}\x1e".encode())
        digest.update(content)
    return digest.hexdigest()
