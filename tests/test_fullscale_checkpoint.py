"""Checkpoints: any state comes back as it was; whatever damages one is noticed."""

import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fullscale import checkpoint as checkpoints
from fullscale import manifest, snapshot
from fullscale.checkpoint import Leaf
from fullscale.counters import Counters
from fullscale.files import StorageError
from fullscale.manifest import Damaged
from tests.support.trainer import SMALL_LQR

KIND = ("test", 1)


class Part(NamedTuple):
    array: Any
    nothing: Any
    keys: Any


def sharding(devices: int) -> NamedSharding:
    grid = jax.make_mesh(
        (devices,), ("x",), (AxisType.Auto,), devices=jax.devices()[:devices]
    )
    return NamedSharding(grid, PartitionSpec("x"))


def tree(devices: int) -> Any:
    """A state with everything in it, its leading axis of 8 spread over devices."""
    rng = np.random.default_rng(0)

    def spread(x: Any) -> Any:
        return jax.device_put(x, sharding(devices))

    part = Part(
        array={"b": spread(rng.normal(size=(8, 3)).astype(np.float32))},
        nothing=None,
        keys=spread(jax.vmap(jax.random.key)(jnp.arange(8))),
    )
    return {
        "part": part,
        "several": (spread(jnp.arange(8) > 3), [spread(jnp.ones(8, jnp.bfloat16))]),
        "count": jnp.int32(2**31 - 1),
        "empty": jnp.zeros((8, 0)),
        "tuple": (),
        "not finite": spread(jnp.array([np.nan, np.inf, -np.inf, -0.0] * 2)),
    }


def save(run: Path, updates: int, state: Any = None, **changes: Any) -> Path:
    run.mkdir(exist_ok=True)
    how: dict[str, Any] = {"devices": 1, "code_version": "1.2.3", **changes}
    state = {"x": jnp.arange(3.0) + updates} if state is None else state
    counters = Counters(updates, *(n * updates for n in (10, 20, 30)))
    return snapshot.save(run, SMALL_LQR, state, counters, **how)


def bits(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.ascontiguousarray(np.asarray(leaf)).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_any_tree_comes_back_bit_for_bit_on_any_devices(
    tmp_path: Path, devices: int
) -> None:
    save(tmp_path / "run", 5, tree(2))
    checkpoint = checkpoints.newest_intact(tmp_path / "run", pytest.fail)
    assert checkpoint is not None
    wanted = tree(devices)
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), wanted
    )
    assert snapshot.difference(checkpoint.leaves, template) == ""
    found = snapshot.restore(checkpoint, template)
    structures: list[object] = [jax.tree.structure(x) for x in (found, wanted)]
    assert structures[0] == structures[1]
    for old, new in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(bits(new), bits(old))
        assert new.sharding.is_equivalent_to(old.sharding, old.ndim)


def test_a_part_can_be_read_to_the_host(tmp_path: Path) -> None:
    save(tmp_path, 1, tree(4))
    checkpoint = checkpoints.at(tmp_path, pytest.fail)
    part = snapshot.read_arrays(checkpoint, "part/")
    assert list(part) == ["part/array/b"]
    np.testing.assert_array_equal(part["part/array/b"], tree(1)["part"].array["b"])
    every = snapshot.read_arrays(checkpoint)
    assert every.keys() == checkpoint.leaves.keys() - {"part/keys"}
    assert every["empty"].shape == (8, 0)


@pytest.mark.parametrize("big", [2**31 - 1, 2**31, 2**32, 10**12, 10**16 + 1, 2**63])
def test_counters_of_any_size_are_exact(tmp_path: Path, big: int) -> None:
    counters = Counters(7, big, big + 1, big + 2)
    how = {"devices": 3, "code_version": "9"}
    state = {"x": jnp.zeros(1)}
    snapshot.save(tmp_path, SMALL_LQR, state, counters, **how)  # type: ignore[arg-type]
    found = checkpoints.at(tmp_path, pytest.fail)
    assert found.counters == counters
    assert (found.config, found.devices, found.code_version) == (SMALL_LQR, 3, "9")


@given(
    done=st.integers(0, 2**62),
    parts=st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
)
def test_counters_add_up_in_any_portions(done: int, parts: list[int]) -> None:
    one = Counters(done, done, done, done)
    whole = one.after(SMALL_LQR, sum(parts))
    for part in parts:
        one = one.after(SMALL_LQR, part)
    assert one == whole
    assert whole.transitions - done == sum(parts) * 16 * 8
    assert whole.gradient_steps - done == sum(parts) * 2 * 2


def test_what_differs_is_named() -> None:
    state = {"a": jnp.zeros((2, 3)), "b": None}
    leaves = snapshot.describe(state)
    assert leaves == {"a": Leaf((2, 3), "float32")}
    assert snapshot.difference(leaves, state) == ""
    text = snapshot.difference(leaves, {"a": jnp.zeros((2, 4)), "b": None})
    assert text == "a is float32[2, 3] instead of float32[2, 4]"
    text = snapshot.difference(leaves, {"a": state["a"], "b": jnp.int32(0)})
    assert text == "b is not in it instead of int32[]"
    text = snapshot.difference(leaves, {"a": jnp.zeros((2, 3), jnp.int32)})
    assert "instead of int32[2, 3]" in text
    assert "a is float32[2, 3] instead of left out" in snapshot.difference(leaves, {})


def sealed(folder: Path) -> Path:
    with manifest.new_folder(folder, *KIND) as new:
        (new / "deep").mkdir()
        (new / "deep" / "a").write_bytes(bytes(range(40)))
        (new / "b").write_bytes(b"text")
        (new / "empty").write_bytes(b"")
    return folder


@given(data=st.data())
def test_any_flipped_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = sealed(tmp_path_factory.mktemp("m") / "x")
    sha256 = manifest.verify(folder, *KIND)
    path = folder / data.draw(st.sampled_from(["deep/a", "b", manifest.MANIFEST]))
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with pytest.raises(Damaged):
        manifest.verify(folder, *KIND)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert manifest.verify(folder, *KIND) == sha256


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "b").unlink(), "b is missing"),
        (lambda f: (f / "b").write_bytes(b"tex"), "b has 3 bytes instead of 4"),
        (lambda f: (f / "empty").write_bytes(b"1"), "empty has 1 bytes instead of 0"),
        (lambda f: (f / "b").write_bytes(b"tEXT"), "b is not what was written"),
        (lambda f: (f / manifest.MANIFEST).unlink(), "it was not finished"),
        (
            lambda f: (f / manifest.MANIFEST).write_bytes(b""),
            "manifest.json is damaged",
        ),
        (lambda f: (f / manifest.MANIFEST).write_bytes(b"[1]"), "json is damaged"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    folder = sealed(tmp_path / "x")
    damage(folder)
    with pytest.raises(Damaged, match=words):
        manifest.verify(folder, *KIND)


def test_other_formats_and_versions_are_refused(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "x")
    with pytest.raises(StorageError, match=r"version 1; this code reads 'test', .* 2"):
        manifest.verify(folder, "test", 2)
    with pytest.raises(StorageError, match="its format is 'test'"):
        manifest.verify(folder, "other", 1)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    sealed(tmp_path / "x")

    def fail() -> None:
        with manifest.new_folder(tmp_path / "x", *KIND) as folder:
            (folder / "half").write_bytes(b"")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    manifest.verify(tmp_path / "x", *KIND)
    with manifest.new_folder(tmp_path / "x", *KIND) as folder:
        (folder / "other").write_bytes(b"")
    assert {path.name for path in (tmp_path / "x").iterdir()} == {
        "other",
        manifest.MANIFEST,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def numbers(run: Path) -> list[str]:
    return [path.name for path in checkpoints.found(run)]


def test_the_newest_two_and_the_kept_ones_stay(tmp_path: Path) -> None:
    assert numbers(tmp_path) == []
    for updates in (1, 9, 10, 999_999, 1_000_000):
        save(tmp_path, updates, kept=updates == 9)
    assert numbers(tmp_path) == ["1000000", "999999", "000009"]
    save(tmp_path, 1_000_000, {"other": jnp.zeros(2)})
    assert numbers(tmp_path) == ["1000000", "999999", "000009"]
    assert "other" in checkpoints.at(tmp_path, pytest.fail).leaves


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def biggest(folder: Path) -> Path:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return max(
        files, key=lambda path: (path.name != "manifest.json", path.stat().st_size)
    )


def test_damage_means_the_one_before_loudly(tmp_path: Path) -> None:
    said: list[str] = []
    for updates in (1, 2, 3):
        save(tmp_path, updates, kept=True)
    flip(biggest(tmp_path / "checkpoints" / "000003" / "state"))
    (tmp_path / "checkpoints" / "000002" / "host.json").unlink()
    found = checkpoints.newest_intact(tmp_path, said.append)
    assert found is not None
    assert found.counters.updates == 1
    assert len(said) == 2
    assert "000003: state/" in said[0]
    assert "going on from the one before, 000001" in said[0]
    assert "000002: host.json is missing" in said[1]
    (tmp_path / "checkpoints" / ".000004.half").mkdir()
    checkpoints.clean(tmp_path, found, said.append)
    assert numbers(tmp_path) == ["000001"]
    assert (tmp_path / "checkpoints" / "000003.damaged").is_dir()
    assert not (tmp_path / "checkpoints" / ".000004.half").exists()
    assert "only half-written is gone: .000004.half" in said[2]
    flip(tmp_path / "checkpoints" / "000001" / "config.toml")
    with pytest.raises(
        StorageError, match=r"none of the checkpoints .*\(000001: config"
    ):
        checkpoints.newest_intact(tmp_path, said.append)


def test_a_checkpoint_can_be_named_by_its_folder_or_its_run(tmp_path: Path) -> None:
    folder = save(tmp_path, 4)
    assert checkpoints.at(folder, pytest.fail) == checkpoints.at(tmp_path, pytest.fail)
    with pytest.raises(StorageError, match="holds no checkpoint"):
        checkpoints.at(tmp_path / "nothing", pytest.fail)
    (folder / "config.toml").unlink()
    with pytest.raises(
        StorageError, match=r"checkpoint .*000004': config.toml is miss"
    ):
        checkpoints.at(folder, pytest.fail)


def test_a_configuration_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "000001"
    path.parent.mkdir()
    with manifest.new_folder(path, checkpoints.FORMAT, checkpoints.VERSION) as folder:
        (folder / "config.toml").write_text('environment = "lqr"\nbudget = 1\nnew = 2')
    with pytest.raises(StorageError, match="unknown configuration key 'new'"):
        checkpoints.newest_intact(tmp_path, pytest.fail)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("RESOURCE_EXHAUSTED: Failed to write [OS error 28: ENOSPC No space]", 28),
        ("PERMISSION_DENIED: ... [OS error 13: EACCES Permission denied]", 13),
        ("RESOURCE_EXHAUSTED: Error writing", errno.ENOSPC),
    ],
)
def test_what_the_storage_layer_raises_becomes_an_os_error(
    text: str, number: int
) -> None:
    found = snapshot._as_os_error(ValueError(text))
    assert isinstance(found, OSError)
    assert (found.errno, found.strerror) == (number, os.strerror(number))
    other = ValueError("something else")
    assert snapshot._as_os_error(other) is other


def test_a_full_disk_leaves_what_was_there_and_says_nothing_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    save(tmp_path, 1)

    def full(*_: object, **__: object) -> None:
        logging.getLogger("absl").error("a page of tracebacks")
        raise ValueError("RESOURCE_EXHAUSTED: [OS error 28: No space left on device]")

    with monkeypatch.context() as patch:
        patch.setattr("orbax.checkpoint.PyTreeCheckpointer.save", full)
        with pytest.raises(OSError, match="No space left") as caught:
            save(tmp_path, 2)
    assert caught.value.errno == errno.ENOSPC
    assert caplog.text == ""
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]
    assert checkpoints.at(tmp_path, pytest.fail).counters.updates == 1

    def full_at_the_end(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full_at_the_end)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]


def test_the_host_file_is_json_that_people_can_read(tmp_path: Path) -> None:
    folder = save(tmp_path, 3, kept=True)
    host = json.loads((folder / "host.json").read_text())
    assert host["counters"] == {
        "updates": 3, "transitions": 30, "simulator_transitions": 60,
        "gradient_steps": 90,
    }  # fmt: skip
    assert host["kept"] is True
    assert host["leaves"] == {"x": ["float32", [3]]}
