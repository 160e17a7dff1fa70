import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig, dumps, from_mapping, loads
from fullscale.presets import (
    NOT_YET_TRAINABLE,
    PRESETS,
    check_runnable,
    check_trainable,
    preset,
)
from theory import columns

rates = st.floats(1e-8, 1e3)
configs = st.builds(
    lambda envs, length, factor, **rest: RunConfig(
        environment="reacher",
        num_envs=envs,
        rollout_length=length,
        minibatch_size=math.gcd(envs * length, factor),
        budget=envs * length * rest.pop("updates"),
        **rest,
    ),
    envs=st.integers(1, 2**20),
    length=st.integers(1, 512),
    factor=st.integers(1, 2**12),
    updates=st.integers(1, 10**6),
    learning_rate=rates,
    clip_epsilon=rates,
    com=st.just("reset") | st.floats(0, 1e6),
    outer_learning_rate=rates,
    max_grad_norm=st.just(math.inf) | rates,
    hidden_sizes=st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, 2**31 - 2),
    normalise_advantages=st.booleans(),
)


@given(configs)
def test_toml_round_trip_is_the_identity(config: RunConfig) -> None:
    assert loads(dumps(config)) == config


@given(configs)
def test_every_key_is_written(config: RunConfig) -> None:
    text = dumps(config)
    assert all(f"{name} = " in text for name in config_module.field_names())


@given(configs)
def test_derived_counts_are_exact_and_never_over_budget(config: RunConfig) -> None:
    assert config.num_minibatches * config.minibatch_size == config.samples_per_update
    assert config.transitions <= config.budget
    assert config.budget - config.transitions < config.samples_per_update
    per_update = config.update_epochs * config.num_minibatches
    assert config.gradient_steps == config.updates * per_update


@given(configs)
def test_blocks_divide_environments_and_minibatches(config: RunConfig) -> None:
    blocks = config.num_blocks
    assert blocks & (blocks - 1) == 0
    assert blocks <= config_module.MAX_BLOCKS
    assert config.num_envs % blocks == config.minibatch_size % blocks == 0
    assert config.samples_per_update // blocks * blocks == config.samples_per_update


@given(configs, st.sampled_from(config_module.field_names()))
def test_a_changed_key_changes_the_hash_and_prediction_does_not(
    config: RunConfig, name: str
) -> None:
    other = dataclasses.replace(config, prediction="f" * 64)
    assert other.content_hash() == config.content_hash()
    if name == "clip_epsilon":
        other = dataclasses.replace(config, clip_epsilon=config.clip_epsilon + 1)
        assert other.content_hash() != config.content_hash()


def test_counts_past_two_to_the_31_are_exact() -> None:
    config = preset("reacher", 10**12 + 4096, num_envs=128, rollout_length=32)
    assert config.transitions == (10**12 + 4096) // 4096 * 4096
    assert loads(dumps(config)).budget == 10**12 + 4096


def test_whole_floats_are_integers_and_integers_are_floats() -> None:
    config = loads('environment = "lqr"\nbudget = 2e6\nlearning_rate = 1')
    assert config.budget == 2_000_000
    assert type(config.budget) is int
    assert config.learning_rate == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_envs": 0}, ["num_envs = 0", "positive"]),
        ({"num_envs": -4}, ["num_envs = -4"]),
        ({"num_envs": 2.5}, ["num_envs = 2.5", "int"]),
        ({"num_envs": True}, ["num_envs = True", "int"]),
        ({"learning_rate": math.nan}, ["learning_rate = nan"]),
        ({"learning_rate": math.inf}, ["learning_rate = inf"]),
        ({"clip_epsilon": -0.1}, ["clip_epsilon = -0.1"]),
        ({"discount": 1.5}, ["discount = 1.5", "[0, 1]"]),
        ({"adam_beta1": 1.0}, ["adam_beta1 = 1.0", "[0, 1)"]),
        ({"network": "cnn"}, ["network = 'cnn'", "mlp"]),
        ({"com": -1.0}, ["com = -1.0", "reset"]),
        ({"com": "off"}, ["com = 'off'", "reset"]),
        ({"hidden_sizes": ()}, ["hidden_sizes"]),
        ({"minibatch_size": 500}, ["500", "512", "256", "4096"]),
        ({"budget": 100}, ["budget = 100", "4096"]),
        ({"seed": 2**40}, ["seed", str(2**40)]),
        ({"num_envs": 10**15}, ["num_envs", str(10**15)]),
    ],
)
def test_impossible_values_are_refused_by_name(change: dict, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"environment": "reacher", "budget": 10**6, **change})
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_presets_take_numbers_as_files_do() -> None:
    """And one configuration, whichever way it was written."""
    written = preset("lqr", 10**6, com=2, learning_rate=1, final_com=4)
    same = preset("lqr", 10**6, com=2.0, learning_rate=1.0, final_com=4.0)
    assert written == same
    assert written.content_hash() == same.content_hash()
    assert type(written.com) is float
    with pytest.raises(ConfigError, match="learning_rate = True should be of type"):
        preset("lqr", 10**6, learning_rate=True)
    with pytest.raises(ConfigError, match=r"unknown .* did you mean 'com'"):
        preset("lqr", 10**6, comm=2)
    for changes in ({"learning_rate": 10**400}, {"com": 10**400}):
        (key,) = changes
        with pytest.raises(ConfigError, match=rf"{key} should be at most 1\.8e308"):
            preset("lqr", 10**6, **changes)
    with pytest.raises(ConfigError, match=r"rate should be at most 1\.8e308"):
        loads(f'environment = "lqr"\nbudget = 2048\nlearning_rate = 1{"0" * 400}')


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        loads('environment = "lqr"\nbudget = 1\nlearning_rat = 1.0')


@pytest.mark.parametrize("missing", ["environment", "budget"])
def test_required_keys_are_required(missing: str) -> None:
    values = {"environment": "reacher", "budget": 10**6}
    del values[missing]
    with pytest.raises(ConfigError, match=missing):
        from_mapping(values)


def test_a_configuration_cannot_be_changed() -> None:
    config = preset("lqr", 10**6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_envs = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_valid_and_round_trip(name: str) -> None:
    config = preset(name, 10**9)
    assert loads(dumps(config)) == config
    if name in NOT_YET_TRAINABLE:
        with pytest.raises(ConfigError, match="Kinetix"):
            check_trainable(name)
    else:
        check_trainable(name)


def test_more_updates_than_can_be_counted_are_not_run() -> None:
    with pytest.raises(ConfigError, match="use more environments"):
        check_runnable(preset("lqr", 10**18))
    check_runnable(preset("lqr", 10**6, com=8.0))
    check_runnable(preset("lqr", 10**6))


def test_an_unknown_environment_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reacher'"):
        preset("reachr", 10**6)


def test_the_run_table_has_a_column_for_every_key() -> None:
    assert set(columns.CONFIG) == set(config_module.field_names())
