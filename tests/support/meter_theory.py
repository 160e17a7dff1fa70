"""What the meters should read on `bandit` and `lqr` when the inner loop is SGD.

The outer step is η·ĝ with η = σ·α·(gradient steps) for small steps, ĝ the mean of N
independent environments' gradients g_a with mean ḡ and covariance C, and F̂ the mean of
their Fisher informations F_a. The states of the batch are those that the KL is read on,
so that F̂ is correlated with ĝ; with e = g_a − ḡ,

    noise = ½η²·[(1 − 1/N)·tr FC + E eᵀF_a e/N]/N
    signal = ½η²·[ḡᵀFḡ + 2·E eᵀF_a ḡ/N]

for the meter and for the two parts of `outer_kl` alike (docs/meters.md). On `lqr` what
has no closed form is a mean over the environments of `theory`'s own simulator, returned
in independent groups so that its error counts.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fullscale.state import Learner, TrainState
from theory import bandit, lqr
from theory.exact_loops import Rollouts


class Expected(NamedTuple):
    """Means, each [group] (one group where they are exact), for η = 1.

    Attributes:
        noise: of `outer_noise_kl`.
        signal: of `outer_signal_kl`.
        trace: of `noise_trace`, transitions as units.
        square: of `gradient_square`.
    """

    noise: np.ndarray
    signal: np.ndarray
    trace: np.ndarray
    square: np.ndarray


def on_bandit(logits: np.ndarray, num_envs: int) -> Expected:
    """In closed form; the critic says 0, and the entropy's gradient is exact."""
    task = bandit.standard()
    gradient, fisher = task.gradient(logits), bandit.fisher(logits)
    covariance = task.gradient_noise(logits, 0.0)
    noise = 0.5 * np.trace(fisher @ covariance) / num_envs
    signal = 0.5 * gradient @ fisher @ gradient
    found = noise, signal, np.trace(covariance), gradient @ gradient
    return Expected(*(np.array([x]) for x in found))


class Environments(NamedTuple):
    """Statistics of one environment's T transitions, means over groups [group].

    Attributes:
        noise: eᵀFe with F exact.
        own_noise: eᵀF_a e.
        own_signal: eᵀF_a ḡ.
        trace: |e|².
    """

    noise: np.ndarray
    own_noise: np.ndarray
    own_signal: np.ndarray
    trace: np.ndarray


@functools.lru_cache(maxsize=4)
def environments(rollout_length: int, groups: int, envs: int) -> Environments:
    """Of K = 0 with the exact critic, from `theory`'s simulator: [groups] of `envs`."""
    system, generator = lqr.standard(), np.random.default_rng(0)
    task = Rollouts(system, rollout_length, decay=0.95)
    gain = np.zeros((1, system.B.size))
    exact = task.gradient(gain)[0]
    fisher = system.fisher(gain.reshape(system.B.shape[::-1]))
    rows = []
    for _ in range(groups):
        start = visited(envs, generator)[None]
        batch, _ = task.sample(gain, envs * rollout_length, start, generator)
        scores = task.scores(gain, batch) * batch.advantages[..., None]
        e = scores.reshape(envs, rollout_length, -1).mean(1) - exact
        states = batch.states.reshape(envs, rollout_length, -1)
        seen = states.swapaxes(1, 2) @ states / rollout_length / system.action_sd**2
        own = (e.reshape(envs, *system.B.shape[::-1]) @ seen).reshape(envs, -1)
        rows.append(
            (
                ((e @ fisher) * e).sum(1).mean(),
                (own * e).sum(1).mean(),
                (own @ exact).mean(),
                (e**2).sum(1).mean(),
            )
        )
    return Environments(*np.array(rows).T)


def on_lqr(
    num_envs: int, rollout_length: int, groups: int, envs: int = 2048
) -> Expected:
    """At K = 0 with the exact critic, [group]; ḡ and F are in closed form."""
    system = lqr.standard()
    gain = np.zeros(system.B.shape[::-1])
    exact = system.termination * system.gradient(gain).ravel()
    found = environments(rollout_length, groups, envs)
    plain = (1 - 1 / num_envs) * found.noise + found.own_noise / num_envs
    straight = exact @ system.fisher(gain) @ exact
    return Expected(
        noise=0.5 * plain / num_envs,
        signal=0.5 * (straight + 2 * found.own_signal / num_envs),
        trace=rollout_length * found.trace,
        square=np.array([exact @ exact]),
    )


def visited(number: int, generator: np.random.Generator) -> np.ndarray:
    """States that K = 0 visits when episodes follow one another, [number, state].

    The age of an episode is geometric, and given the age the state is normal.
    """
    system = lqr.standard()
    ages = generator.geometric(system.termination, size=number) - 1
    states = generator.normal(size=(number, len(system.A)))
    drive = system.state_sd**2 * np.eye(len(system.A))
    drive = drive + system.action_sd**2 * system.B @ system.B.T
    covariance = np.eye(len(system.A))
    for age in range(ages.max() + 1):
        states[ages == age] = states[ages == age] @ np.linalg.cholesky(covariance).T
        covariance = system.A @ covariance @ system.A.T + drive
    return states


def at_no_control(learner: Learner) -> Learner:
    """K = 0 and the critic that is exact for it: V(x) = −xᵀPx − c."""
    system = lqr.standard()
    gain = np.zeros(system.B.shape[::-1])
    p = system.value_matrix(gain)
    constant = -np.trace(p) - system.value(gain)
    rows, columns = np.triu_indices(len(p))
    kernel = -np.where(rows == columns, 1.0, 2.0) * p[rows, columns]
    parameters: Any = {
        "policy": {"Dense_0": {"kernel": jnp.zeros(gain.T.shape)}},
        "value": {
            "Dense_0": {
                "kernel": jnp.asarray(kernel[:, None], jnp.float32),
                "bias": jnp.asarray([-constant], jnp.float32),
            }
        },
    }
    return learner._replace(parameters=parameters)


def visiting(state: TrainState, generator: np.random.Generator) -> TrainState:
    """The states with environments where K = 0 has long been acting."""
    shape, where = state.worlds.observation.shape, state.worlds.observation.sharding
    drawn = visited(int(np.prod(shape[:-1])), generator).reshape(shape)
    x = jax.device_put(drawn.astype(np.float32), where)  # else it compiles twice
    return state._replace(worlds=state.worlds._replace(state=x, observation=x))
