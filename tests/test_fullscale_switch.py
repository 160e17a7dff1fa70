"""`--from`: another configuration goes on with a checkpoint's learner, exactly."""

import dataclasses
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from fullscale import checkpoint as checkpoints
from fullscale import config as config_module
from fullscale import keys, moved, origin, program, run, snapshot, storage, switch
from fullscale import train as command
from fullscale.arrays import join, nest, split, under
from fullscale.config import ConfigError, RunConfig
from fullscale.counters import Counters
from fullscale.environments import make_environment
from fullscale.moved import POLICY
from fullscale.network import make_agent
from fullscale.state import TrainState
from fullscale.storage import StorageError
from fullscale.update import make_optimiser
from fullscale.widen import widen
from tests.support.trainer import SMALL_LQR, SMALL_REACHER

PARENT = dataclasses.replace(
    SMALL_REACHER, com=8.0, outer_momentum=0.3, num_seeds=2, meter_interval=0,
    normalise_observations=True,
)  # fmt: skip
MEMORY = dataclasses.replace(PARENT, network="gru")
DONE = Counters(7, 7 * 256, 7 * 256 + 1, 7 * 8)


def lived(config: RunConfig) -> TrainState:
    """A state whose every number is as if something had happened to it."""
    compiled = program.compile_program(program.sizes_of(config), 1)
    state = compiled.start(keys.base_keys(config.seed, config.num_seeds))
    rng = np.random.default_rng(1)
    arrays = snapshot.host_arrays(state)
    moved_on = {
        name: array + np.abs(rng.normal(size=array.shape)).astype(array.dtype)
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }
    steps = {"learner/optimiser/1/count": np.full(config.num_seeds, 9, np.int32)}
    return snapshot.with_arrays(state, {**moved_on, **steps})


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], Path]:
    """The run folder of a checkpoint of such a state."""
    made: dict[RunConfig, Path] = {}

    def get(config: RunConfig) -> Path:
        if config not in made:
            made[config] = tmp_path_factory.mktemp("parent")
            snapshot.save(
                made[config], config, lived(config), DONE, devices=1, code_version="7"
            )
        return made[config]

    return get


def begin(
    place: Path, config: RunConfig, *, fresh_optimiser: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict]:
    """Arrays of the checkpoint and of the new run's first state, and its log's note."""
    plan = origin.switch(config, place, fresh_optimiser=fresh_optimiser)
    state, about = switch.start(plan, config, 1)
    return snapshot.read_arrays(plan.checkpoint), snapshot.host_arrays(state), about


def test_the_learner_is_the_checkpoints_and_the_rest_is_new(parent: Callable) -> None:
    config = dataclasses.replace(
        PARENT, num_envs=32, learning_rate=1e-3, clip_epsilon=0.1, seed=5,
        outer_learning_rate=0.5, entropy_coefficient=0.01, surrogate="kl", com=2.0,
    )  # fmt: skip
    old, new, about = begin(parent(PARENT), config)
    compiled = program.compile_program(program.sizes_of(config), 1)
    fresh = snapshot.host_arrays(compiled.start(keys.base_keys(5, 2)))
    assert new.keys() == old.keys() == fresh.keys()
    for name, array in new.items():
        taken = name.startswith(("learner/", "normaliser/"))
        np.testing.assert_array_equal(array, (old if taken else fresh)[name], name)
    assert new["update"].tolist() == [0, 0]
    assert about["kl"] == about["kl_of_rounding"] == [0.0, 0.0]
    assert {k: about[k] for k in DONE._fields} == DONE._asdict()
    assert about["path"] == str(parent(PARENT) / "checkpoints" / "000007")
    assert about["sha256"] == checkpoints.at(parent(PARENT), pytest.fail).sha256
    assert about["changes"]["com"] == [8.0, 2.0]
    assert about["fresh_optimiser"] is False


def test_what_becomes_of_the_anchor(parent: Callable) -> None:
    """reset → number: it is the policy; number → reset: it is gone; else it stays."""
    plain = dataclasses.replace(PARENT, com="reset", outer_momentum=0.0)
    old, new, _ = begin(parent(plain), PARENT)
    policy = join(under(old, POLICY))
    np.testing.assert_array_equal(new["learner/anchor/vector"], policy)
    assert new["learner/anchor/weight"].tolist() == [1.0, 1.0]
    assert new["learner/anchor/age"].tolist() == [0.0, 0.0]
    assert not any(array.any() for array in under(new, "learner/velocity/").values())
    old, new, _ = begin(parent(PARENT), plain)
    assert not under(new, "learner/anchor/")
    assert not under(new, "learner/velocity/")
    np.testing.assert_array_equal(join(under(new, POLICY)), join(under(old, POLICY)))


@pytest.mark.parametrize("config", [PARENT, MEMORY], ids=["mlp", "gru"])
@pytest.mark.parametrize("com", [2.0, "reset"])
def test_a_wider_network_starts_as_the_same_function(
    config: RunConfig, com: float | str, parent: Callable
) -> None:
    """KL exactly 0 at equal width, rounding against the old program; the anchor too."""
    wider = dataclasses.replace(config, hidden_sizes=(16,))
    wider = dataclasses.replace(wider, com=com)
    old, new, about = begin(parent(config), wider)
    assert about["kl"] == [0.0, 0.0]
    assert 0 <= max(about["kl_of_rounding"]) < 1e-11
    if com == "reset":
        return
    np.testing.assert_array_equal(
        new["learner/anchor/weight"], old["learner/anchor/weight"]
    )
    found = {
        **split(new["learner/anchor/vector"], under(new, POLICY)),
        **under(new, "normaliser/"),
    }
    before = {
        **split(old["learner/anchor/vector"], under(old, POLICY)),
        **under(old, "normaliser/"),
    }
    seen = new["worlds/observation"]
    actors = (moved._Actor.of(config, before), moved._Actor.of(wider, found))
    assert moved._kl(*actors, seen).max() < 1e-11
    elsewhere = moved._Actor.of(config, old)
    assert moved._kl(actors[0], elsewhere, seen).min() > 1e-3


def test_the_measure_sees_what_is_not_the_same(parent: Callable) -> None:
    """A negative control: one outgoing weight of one new unit is not zero."""
    wider = dataclasses.replace(PARENT, hidden_sizes=(16,))
    plan = origin.switch(wider, parent(PARENT))
    state, _ = switch.start(plan, wider, 1)
    arrays = snapshot.read_arrays(plan.checkpoint)
    name = POLICY + "Dense_0/kernel"
    kernel = snapshot.host_arrays(state)[name].copy()
    assert (kernel[:, 8:] == 0).all()
    kernel[1, 12, 0] = 1e-2
    state = snapshot.with_arrays(state, {name: kernel})
    found = moved.moved(PARENT, wider, arrays, state)
    assert found.kl[0] == 0.0
    assert found.kl[1] > 1e-7


@pytest.mark.parametrize(
    ("network", "sizes"),
    [("mlp", (3, 7)), ("gru", (3, 4))],
)
@pytest.mark.parametrize("batch", [7, 300])
def test_policies_and_critics_of_any_size_widen(
    network: str, sizes: tuple[int, ...], batch: int
) -> None:
    """In one program bit for bit; between programs of two widths to rounding."""
    small = dataclasses.replace(SMALL_REACHER, network=network, hidden_sizes=sizes)
    wide = dataclasses.replace(small, hidden_sizes=tuple(2 * size for size in sizes))
    environment = make_environment(small)
    agents = [make_agent(config, environment) for config in (small, wide)]
    trees = [agent.init(jax.random.key(i)) for i, agent in enumerate(agents)]
    old, fresh = (
        {k: np.asarray(v)[None] for k, v in snapshot.by_path(tree).items()}
        for tree in trees
    )
    rng = np.random.default_rng(0)
    old = {k: v + rng.normal(size=v.shape).astype(v.dtype) for k, v in old.items()}
    loud = widen(old, fresh)
    silent = widen(old, {name: np.zeros_like(array) for name, array in fresh.items()})
    assert any((loud[name] != silent[name]).any() for name in loud)
    x = jax.random.normal(jax.random.key(2), (batch, environment.observation_size))

    @partial(jax.jit, static_argnums=0)
    def outputs(index: int, parameters: dict) -> Any:
        agent, start = agents[index], jnp.ones(batch, bool)
        carry = agent.carry((batch,))
        said = []
        for step in range(3):
            first = start & (step == 0)
            out, policy = agent.act(parameters["policy"], carry.policy, x, first)
            value, critic = agent.judge(parameters["value"], carry.value, x, first)
            carry = carry._replace(policy=policy, value=critic)
            said.append((out, value))
        return said

    def of(arrays: dict) -> dict:
        return jax.tree.map(lambda a: a[0], nest(arrays, ""))

    one, two = outputs(1, of(loud)), outputs(1, of(silent))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        outputs(0, of(old)),
        one,
    )


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_widening_is_exact_in_exact_arithmetic(sizes: list[int], seed: int) -> None:
    """Integers through integer activations, whatever the new units do."""
    rng = np.random.default_rng(seed)
    wide = [sizes[0], *(2 * size for size in sizes[1:-1]), sizes[-1]]

    def network(widths: list[int]) -> dict[str, np.ndarray]:
        return {
            f"{i}/{name}": rng.integers(-4, 5, (1, *shape)).astype(float)
            for i, (a, b) in enumerate(itertools.pairwise(widths))
            for name, shape in (("kernel", (a, b)), ("bias", (b,)))
        }

    def output(arrays: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        for i in range(len(arrays) // 2):
            x = np.mod(x @ arrays[f"{i}/kernel"][0] + arrays[f"{i}/bias"][0], 7) - 3
        return x

    old, x = network(sizes), rng.integers(-4, 5, (6, sizes[0])).astype(float)
    new = widen(old, network(wide))
    np.testing.assert_array_equal(output(new, x), output(old, x))
    for name, array in old.items():
        corner = tuple(slice(0, n) for n in array.shape)
        np.testing.assert_array_equal(new[name][corner], array)


def test_what_cannot_widen_is_refused_by_name() -> None:
    old = {"a": np.zeros((1, 2, 3)), "b": np.zeros((1, 3))}
    with pytest.raises(ValueError, match=r"a has shape \(2, 7\), neither \(2, 3\)"):
        widen(old, {"a": np.zeros((1, 2, 7)), "b": np.zeros((1, 6))})
    with pytest.raises(ValueError, match="b is in only one"):
        widen(old, {"a": np.zeros((1, 2, 3))})
    with pytest.raises(ValueError, match="8 parameters instead of 9"):
        split(np.zeros((1, 8)), old)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=4)
)
def test_vectors_are_ravelled_as_jax_does(shapes: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(0)
    tree = {f"n{i}": {"w": rng.normal(size=s)} for i, s in enumerate(shapes)}
    arrays = {name: array[None] for name, array in snapshot.by_path(tree).items()}
    vector = np.asarray(ravel_pytree(tree)[0])[None]
    np.testing.assert_allclose(join(arrays), vector, rtol=1e-6)
    again = split(join(arrays), arrays)
    assert again.keys() == arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(again[name], arrays[name])
    back = nest(arrays, "n0/")
    np.testing.assert_array_equal(back["w"], arrays["n0/w"])


def test_moments_and_velocity_are_padded_with_zeros(parent: Callable) -> None:
    """Taken apart by JAX: old numbers at old places, zero everywhere else."""
    wider = dataclasses.replace(PARENT, hidden_sizes=(16,), max_grad_norm=float("inf"))
    old, new, _ = begin(parent(PARENT), wider)
    parameters = [nest(arrays, "learner/parameters/") for arrays in (old, new)]
    unravels = [
        ravel_pytree(jax.tree.map(lambda x: x[0], tree))[1] for tree in parameters
    ]
    names = [("learner/optimiser/1/mu", "learner/optimiser/mu")]
    names += [("learner/optimiser/1/nu", "learner/optimiser/nu")]

    def check(before: np.ndarray, after: np.ndarray) -> None:
        corner = tuple(slice(0, n) for n in before.shape)
        np.testing.assert_array_equal(after[corner], before)
        rest = np.array(after)
        rest[corner] = 0
        assert not rest.any()

    for theirs, ours in names:
        for seed in range(2):
            before = unravels[0](old[theirs][seed])
            jax.tree.map(check, before, unravels[1](new[ours][seed]))
    for name, array in under(old, "learner/velocity/policy/").items():
        check(array, new[name])
    assert new["learner/optimiser/count"].tolist() == [9, 9]


def test_a_fresh_optimiser_is_fresh(parent: Callable) -> None:
    old, new, about = begin(parent(PARENT), PARENT, fresh_optimiser=True)
    vector = jnp.zeros(join(under(old, "learner/parameters/")).shape[1])
    fresh = snapshot.by_path(make_optimiser(PARENT).init(vector))
    for name, array in fresh.items():
        found = new[f"learner/optimiser/{name}"]
        np.testing.assert_array_equal(found, np.stack([array, array]))
    np.testing.assert_array_equal(join(under(new, POLICY)), join(under(old, POLICY)))
    assert about["fresh_optimiser"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"hidden_sizes": (12,)},
            r"hidden_sizes = \[12\] should be .* \[8\], or twice",
        ),
        ({"hidden_sizes": (8, 8)}, r"hidden_sizes = \[8, 8\] should be .* twice"),
        ({"num_seeds": 1}, "num_seeds = 1 should be the checkpoint's, 2"),
        ({"environment": "pendulum"}, "environment = 'pendulum' should be .*'reacher'"),
        ({"network": "gru"}, "network = 'gru' should be the checkpoint's, 'mlp'"),
        ({"learn_std": False}, "learn_std = False should be the checkpoint's, True"),
        ({"normalise_observations": False}, "normalise_observations = False should"),
        ({"normalise_rewards": True}, "normalise_rewards = True should be False"),
        ({"optimiser": "sgd"}, r"\(count, mu, nu\) is not what .* \(nothing\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_key(
    changes: dict, words: str, parent: Callable
) -> None:
    with pytest.raises(ConfigError, match=words):
        begin(parent(PARENT), dataclasses.replace(PARENT, **changes))


def test_a_fixed_spread_is_part_of_the_policy(parent: Callable) -> None:
    fixed = dataclasses.replace(SMALL_LQR, num_seeds=1)
    other = dataclasses.replace(fixed, initial_std=0.5)
    with pytest.raises(ConfigError, match=r"initial_std = 0.5 should be .*0.3"):
        origin.switch(other, parent(fixed))


def test_another_precision_moves_the_policy_and_says_so(
    parent: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    half = dataclasses.replace(PARENT, storage_precision="bfloat16")
    _, _, about = begin(parent(PARENT), half)
    assert 0 < min(about["kl"]) < 1
    assert max(about["kl_of_rounding"]) == 0
    assert "the new configuration itself moves the policy" in capsys.readouterr().err


def call(path: Path, config: RunConfig, out: Path, **options: Any) -> int:
    path.write_text(config_module.dumps(config))
    return command.main(command.Arguments(path, out, **options))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of its own: counters from 0, a log that names its parent, resumable."""
    path, old, new = (tmp_path / name for name in ("c.toml", "old", "new"))
    assert call(path, SMALL_LQR, old, devices=1, json=True) == 0
    config = dataclasses.replace(SMALL_LQR, budget=8 * 128, clip_epsilon=0.05)
    options = {"start_from": old, "json": True, "devices": 1}
    assert call(path, config, new, **options) == 0
    record = storage.read(new)
    assert record.transitions.tolist() == [128 * k for k in range(1, 9)]
    assert record.parent["updates"] == 16
    assert record.parent["transitions"] == 2048
    assert record.parent["kl"] == [0.0]
    assert not record.is_of_one_piece
    assert [p.name for p in checkpoints.found(new)] == ["000008", "000000"]
    before, after = (
        snapshot.read_arrays(checkpoints.read(folder), "learner/")
        for folder in (old / "checkpoints" / "000016", new / "checkpoints" / "000000")
    )
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    capsys.readouterr()
    assert call(path, config, new, **options) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert call(path, config, new, **options, resume=True) == 0
    assert "is finished; nothing to do" in capsys.readouterr().err


def test_a_stopped_child_goes_on_without_its_parent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its own first checkpoint, of update 0; killed before that, it says so."""
    old, new, twin = (tmp_path / name for name in ("old", "new", "twin"))
    run.train(SMALL_LQR, old, 1)
    config = dataclasses.replace(SMALL_LQR, clip_epsilon=0.05)
    plan = origin.switch(config, old)
    run.train(config, twin, 1, plan=plan)

    def stop(row: dict) -> None:
        raise KeyboardInterrupt(row["updates"])

    with pytest.raises(KeyboardInterrupt):
        run.train(config, new, 1, stop, plan=plan)
    run.train(config, new, plan=origin.resume(config, new))
    first, second = storage.read(new), storage.read(twin)
    for name, values in first.metrics.items():
        np.testing.assert_array_equal(values, second.metrics[name], name)
    lines = (new / storage.METRICS).read_bytes().splitlines(keepends=True)
    (new / storage.METRICS).write_bytes(lines[0])
    for folder in checkpoints.found(new):
        folder.rename(tmp_path / f"gone{folder.name}")
    with pytest.raises(StorageError, match="stopped before its own first checkpoint"):
        origin.resume(config, new)
    capsys.readouterr()


def test_a_damaged_checkpoint_is_no_beginning(tmp_path: Path, parent: Callable) -> None:
    with pytest.raises(StorageError, match="holds no checkpoint"):
        origin.switch(PARENT, tmp_path)
    folder = snapshot.save(
        tmp_path, PARENT, lived(PARENT), DONE, devices=1, code_version="7"
    )
    (folder / "host.json").write_text(json.dumps({}))
    with pytest.raises(StorageError, match=r"000007': host.json has 2 bytes"):
        origin.switch(PARENT, folder)
    with pytest.raises(StorageError, match="none of the checkpoints"):
        origin.switch(PARENT, tmp_path)


def test_a_wider_network_learns_with_its_new_units(
    tmp_path: Path, parent: Callable
) -> None:
    wider = dataclasses.replace(PARENT, hidden_sizes=(16,), budget=2 * 256)
    plan = origin.switch(wider, parent(PARENT))
    run.train(wider, tmp_path / "run", 1, plan=plan)
    first, last = (
        snapshot.read_arrays(checkpoints.read(folder), POLICY + "Dense_0/kernel")
        for folder in reversed(checkpoints.found(tmp_path / "run"))
    )
    (kernel,), (trained,) = first.values(), last.values()
    assert (kernel[:, 8:] == 0).all()
    assert (trained[:, 8:] != 0).any(axis=(1, 2)).all()
