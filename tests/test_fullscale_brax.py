"""`brax/NAME` beside a stand-in for Brax: a cart pushed along a rail of length 3.

CI does not install Brax; the stand-in has what we use of it, with its habits: it
prints at import, its environments are single, rewards may be Python floats, and it
does not pass the checker of `shard_map`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fullscale.config import ConfigError
from fullscale.environments import make_environment
from fullscale.environments.protocol import Box, Environment
from fullscale.presets import PRESETS, check_trainable, family, preset
from tests.support.trainer import setup

STAND_IN = """
from typing import Any, NamedTuple
import jax, jax.numpy as jnp

print("Failed to import warp: No module named 'warp'")

class State(NamedTuple):
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any

class Cart:
    action_size = 1

    def reset(self, rng):
        position = jax.random.uniform(rng, (1,))
        zero = jnp.zeros(())
        return State(position, position, zero, zero, {"moved": zero}, {})

    def step(self, state, action):
        force = jax.lax.cond(action[0] > 9.0, lambda: 9.0, lambda: action[0])
        position = state.pipeline_state + force
        done = jnp.where(jnp.abs(position[0]) > 3.0, 1.0, 0.0)
        metrics = {"moved": jnp.abs(action[0])}
        return State(position, position, 1.0, done, metrics, state.info)

class Parts(Cart):
    def reset(self, rng):
        state = super().reset(rng)
        return state._replace(obs={"near": state.obs})

_envs = {"cart": Cart, "parts": Parts}

def get_environment(env_name, **kwargs):
    return _envs[env_name](**kwargs)
"""


def forget() -> None:
    for name in [n for n in sys.modules if n == "brax" or n.startswith("brax.")]:
        del sys.modules[name]


@pytest.fixture
def brax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in, installed as `brax.envs`."""
    package = tmp_path / "brax"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "envs.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield
    forget()


def made(name: str = "brax/cart") -> Environment:
    return make_environment(preset(name, 10**8))


def test_without_brax_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brax.envs", None)
    with pytest.raises(ConfigError, match=r"'brax/ant' needs the extra 'brax'") as told:
        made("brax/ant")
    assert "pip install 'ppo-outer-loop[brax]'" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.usefixtures("brax")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("brax/carts", "did you mean 'brax/cart'.*cart, parts"),
        ("brax/NAME", "no environment 'NAME'"),
        ("brax/parts", "should observe one vector"),
    ],
)
def test_what_brax_does_not_have_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(name)


@pytest.mark.parametrize("name", ["brax/", "brax/a/b", "brax/..", "brax", "brax/a\n"])
def test_names_are_checked_without_brax(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown environment"):
        check_trainable(name)


def test_every_name_of_brax_has_the_one_preset() -> None:
    assert family("brax/half_cheetah") == "brax/NAME"
    assert family("reacher") == "reacher"
    config = preset("brax/half_cheetah", 10**9)
    assert config.environment == "brax/half_cheetah"
    assert config.num_envs == PRESETS["brax/NAME"]["num_envs"]


@pytest.mark.usefixtures("brax")
def test_sizes_are_braxs_and_its_remarks_are_not_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = made()
    assert environment.name == "brax/cart"
    assert environment.observation_size == 1
    assert environment.action == Box(1, -1.0, 1.0)
    assert environment.horizon == 1000
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "warp" in printed.err


@pytest.mark.usefixtures("brax")
def test_steps_end_and_are_clipped() -> None:
    environment = made()
    state, start = environment.reset(jax.random.key(0), 3)
    step = jax.jit(environment.step)
    action = jnp.asarray([[-0.25], [5.0], [0.0]])
    dtypes = [x.dtype for x in jax.tree.leaves(state)]
    for time in range(1, 5):
        out = step(jax.random.key(0), state, action)
        moved = time * np.array([[-0.25], [1.0], [0.0]])
        np.testing.assert_allclose(out.observation, start + moved, rtol=1e-5)
        np.testing.assert_array_equal(out.reward, 1.0)
        gone = np.abs(np.asarray(out.observation[:, 0])) > 3
        np.testing.assert_array_equal(out.terminated, gone)
        assert not np.asarray(out.truncated).any()
        assert [x.dtype for x in jax.tree.leaves(out.state)] == dtypes
        state = out.state
    assert gone.any()
    assert not gone.all()


@pytest.mark.usefixtures("brax")
def test_the_time_limit_is_kept_beside_brax_and_an_end_goes_before_it() -> None:
    environment = made()
    state, _ = environment.reset(jax.random.key(0), 3)
    assert environment.elapse is not None
    old = environment.elapse(state, jnp.asarray([997, 998, 999]))
    step = jax.jit(environment.step)
    for cut in ([False, False, True], [False, True, True], [True, True, True]):
        out = step(jax.random.key(0), old, jnp.zeros((3, 1)))
        np.testing.assert_array_equal(out.truncated, cut)
        assert not np.asarray(out.terminated).any()
        old = out.state
    inner = state.inner._replace(pipeline_state=state.inner.pipeline_state + 3.0)
    last = environment.elapse(state._replace(inner=inner), jnp.full(3, 999))
    out = step(jax.random.key(0), last, jnp.ones((3, 1)))
    assert np.asarray(out.terminated).all()
    assert not np.asarray(out.truncated).any()


@pytest.mark.usefixtures("brax")
def test_the_trainer_takes_it() -> None:
    config = preset(
        "brax/cart", 1024, num_envs=16, rollout_length=8, minibatch_size=64,
        hidden_sizes=(4,), meter_interval=0,
    )  # fmt: skip
    one = setup.__wrapped__(config)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    state = jax.eval_shape(one.start, keys)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    after, metrics = jax.eval_shape(one.chunk, state, one.rates(), count)
    assert after == state
    assert metrics["outer_kl"].shape == (one.capacity, 1)
