"""`theory.table` and `theory.cells`: what is stored, refused, averaged."""

import dataclasses
import math
import os
import types
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fullscale import config
from tests.support.simulated import SMALL, noisy_table, simulate
from theory import cells, columns, table
from theory.table import RunTable, TableError

BASE = {
    "environment": "lqr", "budget": 4096, "num_envs": 64, "rollout_length": 32,
    "seed": 0, "transitions": 4096, "ddr": 1e6, "score": -2.5, "com": "reset",
}  # fmt: skip


def row(**changes: object) -> dict[str, object]:
    return {**BASE, **changes}


def rows(count: int) -> list[dict[str, object]]:
    return [row(seed=seed) for seed in range(count)]


def same(left: RunTable, right: RunTable) -> bool:
    if list(left.data) != list(right.data):
        return False
    return all(
        left[name].dtype == right[name].dtype
        and all(
            a == b or (a != a and b != b)
            for a, b in zip(left[name].tolist(), right[name].tolist(), strict=True)
        )
        for name in left.data
    )


# What is stored.

finite = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda value: value != table.FILL
)
generated_rows = st.lists(
    st.fixed_dictionaries(
        {
            "transitions": st.integers(0, 2**62),
            "ddr": finite | st.none(),
            "score": finite,
            "com": st.just("reset") | st.none() | st.floats(0, 1e6),
            "normalise_advantages": st.booleans(),
            "hidden_sizes": st.lists(st.integers(1, 512), max_size=3).map(tuple),
            "code_version": st.text(
                st.characters(exclude_characters="\x00", codec="utf-8"), max_size=5
            ),
            "max_grad_norm": st.just(math.inf) | finite,
            "last_quarter_outer_kl": finite | st.none(),
        }
    ),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(generated_rows)
def test_what_is_written_is_read(tmp_path: Path, values: list[dict]) -> None:
    given_rows = [row(seed=i, **value) for i, value in enumerate(values)]
    written = table.from_rows(given_rows)
    table.write(tmp_path / "runs.nc", written)
    assert same(table.read(tmp_path / "runs.nc"), written)
    for before, after in zip(given_rows, table.to_rows(written), strict=True):
        assert after["transitions"] == before["transitions"]
        assert after["score"] == before["score"]
        assert after["com"] == (None if before["com"] == "reset" else before["com"])


def test_the_fill_value_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="it means 'missing'"):
        table.write(tmp_path / "t.nc", table.from_rows([row(ddr=table.FILL)]))


def test_large_counts_stay_exact_for_any_reader(tmp_path: Path) -> None:
    table.write(tmp_path / "t.nc", table.from_rows([row(transitions=10**16 + 1)]))
    with xarray.open_dataset(tmp_path / "t.nc", engine="h5netcdf") as dataset:
        assert dataset["transitions"].dtype == np.int64
        assert int(dataset["transitions"][0]) == 10**16 + 1
        assert dataset["transitions"].attrs["units"] == "transitions"
        assert np.isnan(dataset["com"].values).all()


def test_no_nan_on_disk_and_the_fill_value_is_declared(tmp_path: Path) -> None:
    table.write(tmp_path / "t.nc", table.from_rows([row(ddr=None), row(seed=1)]))
    with h5py.File(tmp_path / "t.nc") as file:
        for name in ("ddr", "com"):
            stored = file[name]
            assert not np.isnan(stored[:]).any()
            assert stored.attrs["_FillValue"] == table.FILL
        assert file["ddr"][0] == table.FILL
        assert file["ddr"][1] == 1e6


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.nc", "b.nc"):
        table.write(tmp_path / name, noisy_table())
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()


def test_appending_is_writing_all(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    table.append(path, rows(2))
    returned = table.append(path, [row(seed=2, score_anchor=-2.0)])
    whole = table.from_rows([*rows(2), row(seed=2, score_anchor=-2.0)])
    assert same(returned, whole)
    assert same(table.read(path), whole)


def test_the_file_is_readable_by_others(tmp_path: Path) -> None:
    table.write(tmp_path / "t.nc", noisy_table())
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "t.nc").stat().st_mode & 0o777 == 0o666 & ~mask


def test_config_columns_are_the_configuration_keys() -> None:
    assert tuple(columns.CONFIG) == config.field_names()
    kinds = {int: "int", float: "float", bool: "bool", str: "text"}
    for field in dataclasses.fields(config.RunConfig):
        expected = kinds.get(field.type, "text")  # type: ignore[arg-type]
        if isinstance(field.type, types.UnionType):  # com: a number, or reset
            expected = "float"
        assert columns.CONFIG[field.name][0] == expected


def test_identity_ignores_seed_and_budget_only_in_the_declared_way() -> None:
    made = table.from_rows(
        [row(), row(seed=1), row(budget=8192), row(num_envs=128), row(com=4.0)]
    )
    assert made.configurations().tolist() == [0, 0, 0, 1, 2]
    assert made.varied() == ("num_envs", "com")
    assert made.budgets() == (4096, 8192)


# What is refused.


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([], "at least one row"),
        ([row(), row()], "same run"),
        ([row(num_envs=3.5)], "'num_envs' should hold int values; it holds 3.5"),
        ([row(num_envs=True)], "'num_envs' should hold int"),
        ([row(score="good")], "'score' should hold float"),
        ([row(learn_std=2)], "'learn_std' should hold bool"),
        ([{k: v for k, v in BASE.items() if k != "score"}], "lacks the column 'score'"),
    ],
)
def test_bad_rows_are_refused(bad: list, words: str) -> None:
    with pytest.raises(TableError, match=words.replace("(", r"\(")):
        table.from_rows(bad)


def test_an_inconsistent_table_is_not_written(tmp_path: Path) -> None:
    whole = table.from_rows(rows(2))
    twice = RunTable({name: values[[0, 0]] for name, values in whole.data.items()})
    with pytest.raises(TableError, match="same run"):
        table.write(tmp_path / "t.nc", twice)
    assert not (tmp_path / "t.nc").exists()


def test_a_refused_append_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    table.append(path, rows(2))
    before = path.read_bytes()
    with pytest.raises(TableError, match="same run"):
        table.append(path, [row(seed=5), row(seed=1)])
    assert path.read_bytes() == before


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.nc"
    table.append(path, rows(1))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(TableError, match="No space left"):
        table.append(path, [row(seed=9)])
    assert [item.name for item in tmp_path.iterdir()] == ["t.nc"]
    assert path.read_bytes() == before


def edit(path: Path, **attributes: object) -> None:
    with h5py.File(path, "a") as file:
        file.attrs.update(attributes)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"format": "other"}, "is not a run table"),
        ({"version": 2}, "format version 2; this code reads version 1"),
        ({"sha256": "0"}, "damaged"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, attributes: dict, words: str) -> None:
    table.write(tmp_path / "t.nc", table.from_rows(rows(2)))
    edit(tmp_path / "t.nc", **attributes)
    with pytest.raises(TableError, match=words):
        table.read(tmp_path / "t.nc")


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no run table"):
        table.read(tmp_path / "t.nc")
    (tmp_path / "t.nc").write_text("text")
    with pytest.raises(TableError, match="not a readable netCDF file"):
        table.read(tmp_path / "t.nc")
    xarray.Dataset({"x": ("run", [1.0])}).to_netcdf(
        tmp_path / "o.nc", engine="h5netcdf"
    )
    with pytest.raises(TableError, match="is not a run table"):
        table.read(tmp_path / "o.nc")


def test_damage_never_passes_for_data(tmp_path: Path) -> None:
    whole = table.from_rows(rows(30))
    table.write(tmp_path / "t.nc", whole)
    data = (tmp_path / "t.nc").read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        (tmp_path / "d.nc").write_bytes(damaged)
        try:
            assert same(table.read(tmp_path / "d.nc"), whole)
        except TableError:
            noticed += 1
    assert noticed > 10
    for length in (0, 100, len(data) // 2, len(data) - 100):
        (tmp_path / "d.nc").write_bytes(data[:length])
        with pytest.raises(TableError):
            table.read(tmp_path / "d.nc")


# Cells.


def test_cells_equal_a_loop_over_rows() -> None:
    made = simulate(3, design=SMALL)
    found = cells.from_table(made)
    groups: dict[tuple, list[dict]] = {}
    for item in table.to_rows(made):
        key = (item["num_envs"], item["outer_learning_rate"], item["budget"])
        groups.setdefault(key, []).append(item)
    assert len(found) == len(groups)
    for i in range(len(found)):
        key = (
            int(found.knobs["num_envs"][i]),
            found.knobs["outer_learning_rate"][i],
            int(found.budget[i]),
        )
        group = groups[key]
        kl = sum(item["transitions"] / item["ddr"] for item in group)
        total = sum(item["transitions"] for item in group)
        assert found.ddr[i] == pytest.approx(total / kl, rel=1e-12)
        scores = [item["score"] for item in group]
        assert found.score[i] == pytest.approx(np.mean(scores), rel=1e-12)
        assert found.seed_variance[i] == pytest.approx(np.var(scores, ddof=1))
        assert found.num_seeds[i] == len(group)


def test_order_of_rows_does_not_matter() -> None:
    made = simulate(3, design=SMALL)
    order = np.random.default_rng(0).permutation(len(made))
    one, two = cells.from_table(made), cells.from_table(made.select(order))
    key_one = np.lexsort([one.budget, *one.knobs.values()])
    key_two = np.lexsort([two.budget, *two.knobs.values()])
    np.testing.assert_allclose(one.score[key_one], two.score[key_two], rtol=1e-14)
    np.testing.assert_allclose(one.ddr[key_one], two.ddr[key_two], rtol=1e-14)


def test_a_single_seed_has_no_variance() -> None:
    found = cells.from_table(table.from_rows([row(), row(num_envs=128)]))
    assert np.isnan(found.seed_variance).all()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"ddr": 0.0}, "ddr = 0.0 in row 1 should be positive and finite"),
        ({"ddr": None}, "ddr = nan"),
        ({"ddr": math.inf}, "ddr = inf"),
        ({"transitions": 0}, "transitions = 0"),
        ({"score": None}, "score is not finite in row 1"),
        ({"environment": "bandit"}, "several environments"),
        ({"network": "mlp"}, "'network' varies"),
        ({"com": 3.0}, "com = nan in row 0"),
        ({"clip_epsilon": 0.0}, "clip_epsilon = nan"),
    ],
)
def test_what_cannot_be_fitted_is_refused(bad: dict, words: str) -> None:
    made = table.from_rows([row(), row(seed=1, **bad)])
    with pytest.raises(TableError, match=words):
        cells.from_table(made)


def test_too_few_budgets_are_refused() -> None:
    made = table.from_rows([row(), row(budget=8192)])
    with pytest.raises(TableError, match="has 2 budgets; a fit needs 3"):
        cells.from_table(made, min_budgets=3)
