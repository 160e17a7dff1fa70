"""A new run that starts from the learner of a checkpoint, under another configuration.

Parameters, the optimiser's state, the anchor and normalisers are taken over;
environments, keys and counters are new. Where plain PPO (`com = "reset"`) goes over to
PPO-EWMA, the anchor starts as the policy; between two numbers it stays what it is. A
network of twice the width starts as the same function (`widen`), its moments padded
with zeros.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fullscale import config as config_module
from fullscale import keys, snapshot
from fullscale.arrays import Arrays, join, under, zeros
from fullscale.config import ConfigError, RunConfig
from fullscale.moved import POLICY, moved
from fullscale.origin import Switch, check_switch, complain, recordable
from fullscale.program import compile_program, sizes_of
from fullscale.state import TrainState
from fullscale.widen import widen, widen_vector


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
    arrays = transfer(
        old, snapshot.host_arrays(fresh), fresh_optimiser=plan.fresh_optimiser
    )
    state = snapshot.with_arrays(fresh, arrays)
    found = moved(parent.config, config, old, state)
    if found.kl.max() > 0:
        complain(
            f"the new configuration itself moves the policy, by {found.kl.max():.3g} "
            "nats from the checkpoint's"
        )
    about = {
        "path": str(Path(parent.folder).resolve()),
        "sha256": parent.sha256,
        **parent.counters._asdict(),
        "code_version": parent.code_version,
        "config_hash": parent.config.content_hash(),
        "changes": recordable(config_module.changes(parent.config, config)),
        "fresh_optimiser": plan.fresh_optimiser,
        "kl": found.kl.tolist(),
        "kl_of_rounding": found.rounding.tolist(),
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
        if name.startswith("normaliser/") and name in old
    }
    return found


class _Parts:
    """A learner before and after, its arrays taken apart by what they are."""

    def __init__(self, old: Arrays, fresh: Arrays) -> None:
        self.old, self.fresh = old, fresh
        self.before = under(old, "learner/parameters/")
        drawn = under(fresh, "learner/parameters/")
        try:
            self.parameters = widen(self.before, drawn)
        except ValueError as error:
            raise ConfigError(
                f"the checkpoint's networks do not fit: {error}"
            ) from None

    def policy(self, arrays: Arrays) -> Arrays:
        return under(arrays, POLICY)

    def carried(self, vector: np.ndarray) -> np.ndarray:
        """A vector over the policy's parameters, as wide as the new policy.

        New units have there what they have in the new policy: it was never elsewhere.
        """
        return widen_vector(
            vector, self.policy(self.before), self.policy(self.parameters)
        )

    def padded(self, vector: np.ndarray, of: Callable[[Arrays], Arrays]) -> np.ndarray:
        """A vector over parameters that were never moved: zeros for the new ones."""
        return widen_vector(vector, of(self.before), of(zeros(self.parameters)))


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
    return {path.split("/")[-1]: path for path in under(arrays, "learner/optimiser/")}


def _anchor(parts: _Parts) -> Arrays:
    prefix = "learner/anchor/"
    anchor = under(parts.fresh, prefix)
    if not anchor:
        return {}
    policy = join(parts.policy(parts.parameters))
    if not under(parts.old, prefix):
        return {prefix + "vector": policy}
    kept = {name: parts.old[name] for name in anchor}
    return {**kept, prefix + "vector": parts.carried(kept[prefix + "vector"])}


def _velocity(parts: _Parts) -> Arrays:
    """Zero where there was none, and for new parameters."""
    policy, anchor = "learner/velocity/policy/", "learner/velocity/anchor"
    found: dict[str, np.ndarray] = {}
    if under(parts.old, policy) and under(parts.fresh, policy):
        found |= widen(under(parts.old, policy), zeros(under(parts.fresh, policy)))
    if anchor in parts.old and anchor in parts.fresh:
        found[anchor] = parts.padded(parts.old[anchor], parts.policy)
    return found
