"""What a transition costs, in floating-point operations, counted before compiling.

Each function is counted by XLA on a small batch. A backward pass counts as two forward
passes. Transcendental functions, integers and random numbers are not counted, so an
environment's figure says little where it is small.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fullscale import distributions
from fullscale.agent import Agent
from fullscale.config import RunConfig
from fullscale.environments.protocol import Environment
from fullscale.measure import KL_STATES

_ENVIRONMENTS = 64  # that the operations are counted on
_BACKWARD = 2.0  # forward passes that a backward pass costs


class Cost(NamedTuple):
    """Floating-point operations per transition.

    Attributes:
        environment: one step of it.
        acting: policy and critic during the rollout.
        learning: all epochs, forward and backward, the anchor's forward pass included.
        measuring: `outer_kl`, and the meters averaged over the updates between them.
    """

    environment: float
    acting: float
    learning: float
    measuring: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


def per_transition(config: RunConfig, environment: Environment, agent: Agent) -> Cost:
    """Operations per transition of a run."""
    policy, critic, step = forward(environment, agent)
    once = (1.0 + _BACKWARD) * (policy + critic)
    anchored = 0.0 if config.is_plain_ppo and config.surrogate == "clip" else policy
    learning = config.update_epochs * (once + anchored)
    stride = max(1, config.samples_per_update // KL_STATES)
    measuring = 2.0 * policy / stride
    if config.meter_interval:
        halves = learning if config.can_be_halved else 0.0
        gradient = (1.0 + _BACKWARD) * policy
        measuring += (halves + gradient) / config.meter_interval
    return Cost(step, policy + critic, learning, measuring)


def forward(environment: Environment, agent: Agent) -> tuple[float, float, float]:
    """Operations of one policy pass, one critic pass and one environment step."""
    number = _ENVIRONMENTS
    key = jax.eval_shape(lambda: jax.random.key(0))
    parameters = jax.eval_shape(agent.init, key)
    state, observation = jax.eval_shape(lambda k: environment.reset(k, number), key)
    carry = jax.eval_shape(lambda: agent.carry((number,)))
    starts = jax.ShapeDtypeStruct((number,), jnp.bool_)

    def act(p: Any, c: Any, o: Any, s: Any) -> Any:
        return agent.act(p["policy"], c.policy, agent.see(o), s)[0]

    def judge(p: Any, c: Any, o: Any, s: Any) -> Any:
        return agent.judge(p["value"], c.value, agent.see(o), s)[0]

    inputs = (parameters, carry, observation, starts)
    chosen = jax.eval_shape(act, *inputs)
    action = jax.eval_shape(distributions.sample, key, chosen)
    return (
        _operations(act, *inputs) / number,
        _operations(judge, *inputs) / number,
        _operations(environment.step, key, state, action) / number,
    )


def _operations(function: Any, *shapes: Any) -> float:
    analysis = jax.jit(function).lower(*shapes).cost_analysis()
    return float((analysis or {}).get("flops", 0.0))
