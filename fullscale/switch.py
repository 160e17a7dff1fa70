"""A new run that starts from the learner of a checkpoint, under another configuration.

Parameters, the optimiser's state, the anchor and normalisers are taken over;
environments, keys and counters are new. Where plain PPO (`com = "reset"`) goes over to
PPO-EWMA, the anchor starts as the policy; between two numbers it stays what it is. A
network of twice the width starts as the same function (`widen`), its moments padded
with zeros.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fullscale import config as config_module
from fullscale import distributions, keys, snapshot
from fullscale.agent import Agent
from fullscale.checkpoint import Checkpoint
from fullscale.config import ConfigError, RunConfig
from fullscale.origin import Switch, check_switch, complain, recordable
from fullscale.program import Program, compile_program, sizes_of
from fullscale.state import TrainState
from fullscale.widen import Arrays, join, widen, widen_vector

MEMORY_STEPS = 4  # steps over which policies with a memory are compared


def start(plan: Switch, config: RunConfig, devices: int) -> tuple[TrainState, dict]:
    """The new run's first state, and what its log says of its parent.

    Raises:
        ConfigError: the learner does not fit the configuration, by key.
    """
    parent = plan.checkpoint
    check_switch(parent.config, config)
    program = compile_program(sizes_of(config), devices)
    fresh = program.start(keys.base_keys(config.seed, config.num_seeds))
    old = snapshot.read_arrays(parent)
    arrays = transfer(old, _host(fresh), fresh_optimiser=plan.fresh_optimiser)
    state = _placed(fresh, arrays)
    kl = _kl(parent, program, state, devices)
    if kl.max() > 0:
        complain(
            f"the switch moves the policy by {kl.max():.3g} nats, from the checkpoint's"
        )
    about = {
        "path": str(Path(parent.folder).resolve()),
        "sha256": parent.sha256,
        **parent.counters._asdict(),
        "code_version": parent.code_version,
        "config_hash": parent.config.content_hash(),
        "changes": recordable(config_module.changes(parent.config, config)),
        "fresh_optimiser": plan.fresh_optimiser,
        "kl": kl.tolist(),
    }
    return state, about


def transfer(old: Arrays, fresh: Arrays, *, fresh_optimiser: bool) -> Arrays:
    """Arrays by path of a state with the learner of `old`, everything else `fresh`.

    Raises:
        ConfigError: the optimiser's state does not fit, or another array of the
            learner.
    """
    found = dict(fresh)
    parts = _Parts(old, fresh)
    found |= parts.parameters
    if not fresh_optimiser:
        found |= _optimiser(parts)
    found |= _anchor(parts)
    found |= _velocity(parts)
    found |= {
        name: old[name]
        for name in fresh
        if "normaliser" in name and name in old and old[name].shape == fresh[name].shape
    }
    return found


class _Parts:
    """A learner before and after, its arrays taken apart by what they are."""

    def __init__(self, old: Arrays, fresh: Arrays) -> None:
        self.old, self.fresh = old, fresh
        self.before = _under(old, "learner/parameters/")
        drawn = _under(fresh, "learner/parameters/")
        try:
            self.parameters = widen(self.before, drawn)
        except ValueError as error:
            raise ConfigError(
                f"the checkpoint's networks do not fit: {error}"
            ) from None

    def policy(self, arrays: Arrays) -> Arrays:
        return _under(arrays, "learner/parameters/policy/")

    def moved(self, vector: np.ndarray) -> np.ndarray:
        """A vector over the policy's parameters, as wide as the new policy.

        New units have there what they have in the new policy: it was never elsewhere.
        """
        return widen_vector(
            vector, self.policy(self.before), self.policy(self.parameters)
        )

    def padded(self, vector: np.ndarray, of: Callable[[Arrays], Arrays]) -> np.ndarray:
        """A vector over parameters that were never moved: zeros for the new ones."""
        new = {name: np.zeros_like(array) for name, array in self.parameters.items()}
        return widen_vector(vector, of(self.before), of(new))


def _optimiser(parts: _Parts) -> Arrays:
    """Its arrays by their last names: a chain around them does not matter."""
    old, fresh = (_by_last_name(arrays) for arrays in (parts.old, parts.fresh))
    if old.keys() != fresh.keys():
        raise ConfigError(
            f"the checkpoint's optimiser state ({', '.join(sorted(old)) or 'empty'}) "
            f"is not what the new one needs ({', '.join(sorted(fresh)) or 'nothing'}); "
            "give --fresh-optimiser"
        )
    found = {}
    for name, path in fresh.items():
        array = parts.old[old[name]]
        if array.ndim == 2 and array.shape[1] == join(parts.before).shape[1]:
            array = parts.padded(array, lambda arrays: arrays)
        found[path] = array
    return found


def _by_last_name(arrays: Arrays) -> dict[str, str]:
    return {path.split("/")[-1]: path for path in _under(arrays, "learner/optimiser/")}


def _anchor(parts: _Parts) -> Arrays:
    prefix = "learner/anchor/"
    anchor = _under(parts.fresh, prefix)
    if not anchor:
        return {}
    policy = join(parts.policy(parts.parameters))
    if not _under(parts.old, prefix):
        return {prefix + "vector": policy}
    kept = {name: parts.old[name] for name in anchor}
    return {**kept, prefix + "vector": parts.moved(kept[prefix + "vector"])}


def _velocity(parts: _Parts) -> Arrays:
    """Zero where there was none, and for new parameters."""
    policy, anchor = "learner/velocity/policy/", "learner/velocity/anchor"
    found: dict[str, np.ndarray] = {}
    if _under(parts.old, policy) and _under(parts.fresh, policy):
        found |= widen(_under(parts.old, policy), _zeros(_under(parts.fresh, policy)))
    if anchor in parts.old and anchor in parts.fresh:
        found[anchor] = parts.padded(parts.old[anchor], parts.policy)
    return found


def _under(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name.startswith(prefix)}


def _zeros(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.zeros_like(array) for name, array in arrays.items()}


def _host(state: Any) -> dict[str, np.ndarray]:
    """Arrays of a state by path, without its keys."""
    return {
        name: np.asarray(array)
        for name, array in snapshot.by_path(state).items()
        if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    }


def _placed(state: TrainState, arrays: Arrays) -> TrainState:
    """A state with these arrays, each where the state's own lies."""
    named = snapshot.by_path(state)
    leaves = [
        jax.device_put(arrays[name].astype(old.dtype), old.sharding)
        if name in arrays
        else old
        for name, old in named.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(state), leaves)


def _kl(
    parent: Checkpoint, program: Program, state: TrainState, devices: int
) -> np.ndarray:
    """KL(checkpoint's policy ‖ new policy) per seed, in nats.

    Over the observations in which the new run's environments start; policies with a
    memory see them several times in a row.
    """
    before = compile_program(sizes_of(parent.config), devices)
    shapes = jax.eval_shape(before.start, keys.base_keys(0, parent.config.num_seeds))
    tree = shapes.learner.parameters["policy"]
    prefix = "learner/parameters/policy"
    arrays = snapshot.read_arrays(parent, prefix)
    old = jax.tree.unflatten(jax.tree.structure(tree), list(arrays.values()))
    new = jax.device_get(state.learner.parameters["policy"])
    seen = jax.device_get(state.worlds.observation)
    agents = (before.agent, program.agent)
    steps = MEMORY_STEPS if program.agent.stretch else 1
    compare = jax.jit(jax.vmap(lambda o, n, x: policy_kl(agents, (o, n), x, steps)))
    return np.asarray(compare(old, new, seen))


def policy_kl(
    agents: tuple[Agent, Agent], policies: tuple[Any, Any], observation: Any, steps: int
) -> Any:
    """Mean KL(first ‖ second) of two policies that see the same, step after step.

    Args:
        agents: of the two.
        policies: their parameters.
        observation: of the environment, [..., obs].
        steps: how often it is seen.
    """
    shape = observation.shape[:-1]
    carries = [agent.carry(shape).policy for agent in agents]
    total = jnp.zeros(())
    for step in range(steps):
        said = []
        for i, (agent, policy) in enumerate(zip(agents, policies, strict=True)):
            first = jnp.full(shape, step == 0)
            out, carries[i] = agent.act(
                policy, carries[i], agent.see(observation), first
            )
            said.append(out)
        total = total + distributions.kl(*said).mean()
    return total / steps
