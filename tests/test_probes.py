"""Every head and network learns known values and policies from 12,288 transitions.

Every kind of each in the fast tier, every pair of them in the slow one.
"""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import probes
from tests.support.probes import HEADS, PROBES, SPREAD, TABLE, Probe

NETWORKS = ("linear", "mlp", "gru")
FAST = {("gaussian", "linear"), ("discrete", "mlp"), ("multi-discrete", "gru")}
pairs = pytest.mark.parametrize(
    ("head", "network"),
    [
        pytest.param(*pair, marks=[] if pair in FAST else pytest.mark.slow)
        for pair in itertools.product(HEADS, NETWORKS)
    ],
)
MARKS: dict[str, list] = {
    "discrete": [0, 1],
    "multi-discrete": [[0, 0], [1, 2]],
    "gaussian": [[-probes.MARK] * 2, [probes.MARK] * 2],
}
EXACT = 1.0 - 2 * SPREAD**2  # what a Gaussian around its mark earns of a reward of 1
BLIND = 1.0 - 2 * (SPREAD**2 + probes.MARK**2)  # around 0, between its two marks


def worth(head: str, probe: Probe, value: float) -> float:
    """The value where a hit earns what this head can earn of it."""
    earned = any(TABLE[s].hit != TABLE[s].miss for s in probe.path)
    return value * EXACT if head == "gaussian" and earned else value


@pairs
@pytest.mark.parametrize("name", [name for name in PROBES if name != "memory"])
def test_values_and_policies_are_the_known_ones(
    head: str, network: str, name: str
) -> None:
    for probe in PROBES[name]:
        check(head, network, probe)


def check(head: str, network: str, probe: Probe) -> None:
    agent, parameters = probes.trained(head, network)
    found = probes.answers(agent, parameters, probe.path)
    rows = zip(probe.path, found, probe.value, probe.acts, strict=True)
    for state, (policy, value), expected, acts in rows:
        assert value == pytest.approx(worth(head, probe, expected), abs=0.1), state
        if acts:
            assert probes.hit_probability(policy, TABLE[state].target) >= 0.9, state


@pairs
def test_only_a_memory_knows_what_is_no_longer_seen(head: str, network: str) -> None:
    """Without one, nothing is better than chance, and the critic knows that."""
    if network == "gru":
        for probe in PROBES["memory"]:
            check(head, network, probe)
        return
    agent, parameters = probes.trained(head, network)
    chance = BLIND if head == "gaussian" else 0.5
    hits = []
    for probe in PROBES["memory"]:
        *_, (policy, value) = probes.answers(agent, parameters, probe.path)
        assert value == pytest.approx(chance, abs=0.2)
        hits.append(probes.hit_probability(policy, TABLE[probe.path[-1]].target))
    assert sum(hits) <= 1.0 + 1e-6


@pytest.mark.parametrize("head", HEADS)
def test_the_table_does_what_the_probes_say(head: str) -> None:
    """Values of the policy that hits, by walking each path with the environment."""
    environment = probes.street(head)
    marks = np.array(MARKS[head])
    for probe in (one for ones in PROBES.values() for one in ones):
        rewards, states = [], list(probe.path)
        for index, state in enumerate(states):
            action = jnp.asarray(marks[TABLE[state].target])[None]
            out = environment.step(None, jnp.array([state]), action)
            rewards.append(float(out.reward[0]))
            last = index == len(states) - 1
            assert bool(out.terminated[0] | out.truncated[0]) == last
            if not last:
                assert int(out.state[0]) == states[index + 1]
        future = 1.0 if bool(out.truncated[0]) else 0.0  # state 0 is worth 1
        for reward, value in reversed(list(zip(rewards, probe.value, strict=True))):
            future = reward + probes.DISCOUNT * future
            assert future == pytest.approx(value)


def test_misses_miss() -> None:
    for head, wrong in (
        ("discrete", [0]),
        ("multi-discrete", [[1, 1]]),
        ("gaussian", [[0.5, -0.5]]),
    ):
        action = jnp.asarray(wrong)
        hit, earned = probes.judged(head, jnp.array([1]), action)
        assert not bool(hit[0])
        assert float(earned[0]) <= 0.0
        out = probes.street(head).step(None, jnp.array([8]), action)
        assert int(out.state[0]) == 10


def test_starts_are_those_of_the_probes() -> None:
    first = {probe.path[0] for ones in PROBES.values() for probe in ones}
    assert first == set(probes.STARTS)
    shown = np.array([state.shows for state in TABLE])
    assert shown[13] == shown[14]
    assert len(set(shown)) == len(TABLE) - 1
