"""Probe environments: tiny tasks with known values, one for each way to be wrong.

All probes are one table of states; an episode visits one probe, chosen at random, so
that one short training run answers for all of them. Each state shows its own unit
vector (two of `memory` show the same one), and an action hits or misses the state's
target. The values are worked out by hand for the policy that always hits; γ = ½.

| probe | what fails if its value or policy is wrong |
|---|---|
| `one reward` | the critic, or its target |
| `reward by observation` | observations mixed up between rows |
| `two steps` | bootstrapping, discount |
| `time limit` | truncation taken for an end |
| `action by observation` | the policy gradient, log-densities, actions mixed up |
| `delayed choice` | credit for what an action does later |
| `memory` | what is carried from step to step; without a memory: chance |
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fullscale import keys, mesh
from fullscale.agent import Agent
from fullscale.config import RunConfig
from fullscale.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
)
from fullscale.environments.protocol import (
    Box,
    Discrete,
    Environment,
    MultiDiscrete,
    Step,
)
from fullscale.network import make_agent
from fullscale.schedule import rates

DISCOUNT = 0.5
SPREAD = 0.2  # standard deviation of Gaussian policies
MARK = 0.5  # target t asks a Gaussian for ∓MARK in both components
HEADS: dict[str, Box | Discrete | MultiDiscrete] = {
    "discrete": Discrete(2),
    "multi-discrete": MultiDiscrete((2, 3)),
    "gaussian": Box(2),
}
_END = -1


class State(NamedTuple):
    """One row of the table.

    Attributes:
        shows: index of the unit vector that is observed.
        target: which of two targets an action should hit.
        hit: reward of an action that hits.
        miss: reward of one that misses.
        after_hit: state that follows a hit; −1 ends the episode.
        after_miss: likewise for a miss.
        limit: whether the time limit cuts the episode at this step.
    """

    shows: int
    target: int
    hit: float
    miss: float
    after_hit: int = _END
    after_miss: int = _END
    limit: bool = False


TABLE = (
    State(0, 0, 1, 1),  # 0: one reward
    State(1, 0, 1, 1),  # 1, 2: reward by observation
    State(2, 0, -1, -1),
    State(3, 0, 0, 0, 4, 4),  # 3, 4: two steps
    State(4, 0, 1, 1),
    State(5, 0, 1, 1, 0, 0, limit=True),  # 5: time limit, with state 0 to come
    State(6, 0, 1, 0),  # 6, 7: action by observation
    State(7, 1, 1, 0),
    State(8, 1, 0, 0, 9, 10),  # 8–10: delayed choice
    State(9, 0, 1, 1),
    State(10, 0, 0, 0),
    State(11, 0, 0, 0, 13, 13),  # 11–14: memory of the cue that 11 or 12 shows
    State(12, 1, 0, 0, 14, 14),
    State(13, 0, 1, 0),
    State(13, 1, 1, 0),
)
SIZE = 1 + max(state.shows for state in TABLE)
STARTS = (0, 1, 2, 3, 5, 6, 7, 8, 11, 12)


class Probe(NamedTuple):
    """What must have been learned along one path through the table.

    Attributes:
        path: states, from the start of an episode, of a policy that hits.
        value: of these states if actions hit and a hit is worth its whole reward.
        acts: whether the action at each of them matters.
    """

    path: tuple[int, ...]
    value: tuple[float, ...]
    acts: tuple[bool, ...]


PROBES = {
    "one reward": [Probe((0,), (1,), (False,))],
    "reward by observation": [
        Probe((1,), (1,), (False,)),
        Probe((2,), (-1,), (False,)),
    ],
    "two steps": [Probe((3, 4), (DISCOUNT, 1), (False, False))],
    "time limit": [Probe((5,), (1 + DISCOUNT,), (False,))],
    "action by observation": [Probe((6,), (1,), (True,)), Probe((7,), (1,), (True,))],
    "delayed choice": [Probe((8, 9), (DISCOUNT, 1), (True, False))],
    "memory": [
        Probe((11, 13), (DISCOUNT, 1), (False, True)),
        Probe((12, 14), (DISCOUNT, 1), (False, True)),
    ],
}


def street(head: str) -> Environment:
    """All probes as one environment with this kind of actions."""
    table = {
        name: jnp.asarray(np.array([getattr(state, name) for state in TABLE]))
        for name in State._fields
    }
    starts = jnp.asarray(STARTS)

    def show(state: Int[Array, " env"]) -> Float[Array, "env obs"]:
        return jax.nn.one_hot(table["shows"][state], SIZE)

    def reset(key: Any, number: int) -> tuple[Array, Array]:
        state = starts[jax.random.randint(key, (number,), 0, len(STARTS))]
        return state, show(state)

    def step(key: Any, state: Int[Array, " env"], action: Array) -> Step:
        del key
        row = {name: column[state] for name, column in table.items()}
        hit, worth = judged(head, row["target"], action)
        following = jnp.where(hit, row["after_hit"], row["after_miss"])
        over = following == _END
        reward = row["miss"] + (row["hit"] - row["miss"]) * worth
        state = jnp.where(over, 0, following)
        return Step(state, show(state), reward, over, row["limit"] & ~over)

    return Environment(f"probes of {head}", SIZE, HEADS[head], None, reset, step)


def judged(
    head: str, target: Int[Array, " env"], action: Array
) -> tuple[Bool[Array, " env"], Float[Array, " env"]]:
    """Whether actions hit their targets, and what share of the reward they earn."""
    if head == "gaussian":
        mark = MARK * (2.0 * target[:, None] - 1.0)
        hit = (action * mark > 0).all(-1)
        return hit, 1.0 - jnp.square(action - mark).sum(-1)
    if head == "multi-discrete":
        wanted = jnp.stack([target, 2 * target], axis=-1)
        hit = (action == wanted).all(-1)
    else:
        hit = action == target
    return hit, hit.astype(float)


def hit_probability(policy: Distribution, target: int) -> float:
    """Exact chance that an action hits the target."""
    if isinstance(policy, Gaussian):
        sign = 2.0 * target - 1.0
        z = sign * policy.mean / jnp.exp(policy.log_std)
        return float(jax.scipy.special.ndtr(z).prod())
    if isinstance(policy, MultiCategorical):
        parts = zip(policy.components, (target, 2 * target), strict=True)
        return float(np.prod([jax.nn.softmax(p.logits)[0, t] for p, t in parts]))
    assert isinstance(policy, Categorical)
    return float(jax.nn.softmax(policy.logits)[0, target])


@functools.cache
def trained(head: str, network: str, updates: int = 12) -> tuple[Agent, Any]:
    """Agent and parameters after so many updates of 1,024 transitions."""
    config = RunConfig(
        environment="probes", budget=1024 * updates, num_envs=128, rollout_length=8,
        minibatch_size=128, update_epochs=4, learning_rate=0.03,
        final_learning_rate=0.001, discount=DISCOUNT,
        gae_lambda=0.9, network=network, hidden_sizes=(16,), initial_std=SPREAD,
        learn_std=False, max_grad_norm=float("inf"), meter_interval=0,
    )  # fmt: skip
    environment = street(head)
    agent = make_agent(config, environment)
    grid = mesh.make_mesh(1)
    start = mesh.compile_start(config, environment, agent, grid)
    chunk = mesh.compile_chunk(config, environment, agent, grid, updates)
    state = _run(start, keys.base_keys(0, 1))
    state, _ = _run(chunk, state, rates(config, range(updates)), jnp.int32(updates))
    return agent, jax.tree.map(lambda x: x[0], state.learner.parameters)


def _run(function: Any, *arguments: Any) -> Any:
    """Compiled without optimisation, which takes half the time; it runs but once."""
    options = {"xla_backend_optimization_level": 0}
    return function.lower(*arguments).compile(compiler_options=options)(*arguments)


def answers(
    agent: Agent, parameters: Any, path: tuple[int, ...]
) -> list[tuple[Distribution, float]]:
    """Policy and value at each state of a path, with what is remembered of it."""
    policy_carry, value_carry = agent.carry((1,))
    found = []
    for index, state in enumerate(path):
        observation = agent.see(jax.nn.one_hot(jnp.array([TABLE[state].shows]), SIZE))
        begins = jnp.array([index == 0])
        policy, policy_carry = agent.act(
            parameters["policy"], policy_carry, observation, begins
        )
        value, value_carry = agent.judge(
            parameters["value"], value_carry, observation, begins
        )
        found.append((policy, float(value[0])))
    return found
