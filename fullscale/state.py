"""The trainer's state, declared: what is carried, what is collected, what can be set.

Axis names: `time` T, `block` (logical blocks of this device), `env` (environments per
block), `batch` (transitions of a minibatch), `obs`, `action`.
"""

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from fullscale.agent import Carry, Inputs


class Rates(NamedTuple):
    """The knobs that are traced: changing one never recompiles."""

    learning_rate: Float[Array, "*update"]
    clip_epsilon: Float[Array, "*update"]
    kl_coefficient: Float[Array, "*update"]
    target_kl: Float[Array, "*update"]
    ewma_decay: Float[Array, "*update"]
    max_importance_ratio: Float[Array, "*update"]
    outer_learning_rate: Float[Array, "*update"]
    outer_momentum: Float[Array, "*update"]
    entropy_coefficient: Float[Array, "*update"]
    value_coefficient: Float[Array, "*update"]
    value_clip: Float[Array, "*update"]
    discount: Float[Array, "*update"]
    gae_lambda: Float[Array, "*update"]


class Anchor(NamedTuple):
    """The proximal policy of PPO-EWMA, an average of past policies.

    Attributes:
        vector: its parameters, raveled like the policy's.
        weight: W, the sum of the average's weights 1 + β + β² + …; exactly 1 means
            that the anchor is the current policy.
        age: mean age of what it averages, in gradient steps.
    """

    vector: Float[Array, " policy_parameter"]
    weight: Float[Array, ""]
    age: Float[Array, ""]


class Learner(NamedTuple):
    """What learning changes.

    Attributes:
        parameters: {"policy", "value"} of the networks.
        optimiser: its state over the ravel of the parameters.
        anchor: the proximal policy; None if it is reset at each update (plain PPO).
        velocity: of the outer step, over the policy's parameters and the anchor's;
            None without outer momentum.
    """

    parameters: Any
    optimiser: Any
    anchor: Anchor | None
    velocity: Any


class Worlds(NamedTuple):
    """The environments and the episode each is in.

    Attributes:
        state: environment states, leading axes [block, env].
        observation: what the policy sees next.
        episode_return: undiscounted reward of the episode so far.
        episode_length: transitions of the episode so far; negative to the end of one
            that began late and is not whole.
        carry: what the networks remember of it.
        discounted_return: of the episode so far; None where rewards are not normalised.
    """

    state: Any
    observation: Float[Array, "block env obs"]
    episode_return: Float[Array, "block env"]
    episode_length: Int[Array, "block env"]
    carry: Carry = Carry((), ())
    discounted_return: Float[Array, "block env"] | None = None

    @property
    def begins(self) -> Bool[Array, "block env"]:
        """Where an episode begins with the next transition."""
        return self.episode_length == 0


class Moments(NamedTuple):
    """Mean and variance (divided by the number) of some data."""

    mean: Float[Array, "*size"]
    variance: Float[Array, "*size"]


class Normaliser(NamedTuple):
    """What normalises, replicated over devices.

    Attributes:
        updates: merged so far.
        observation: of the environments' observations, [obs]; None if they are taken
            as they are.
        discounted_return: of Σ γ^k r over the past of each episode; its standard
            deviation divides rewards; None if they are taken as they are.
    """

    updates: Int[Array, ""]
    observation: Moments | None
    discounted_return: Moments | None


class TrainState(NamedTuple):
    """Everything that the next update depends on.

    Attributes:
        learner: networks and optimiser.
        worlds: environments.
        key: the seed's base key; streams are folded from it, it never changes.
        update: updates done.
        frozen: policies after update 1, 10, 100, … (raveled), to measure how far the
            run has come since; zeros before; None if nothing is ever measured.
        normaliser: moments of what came before this update; None if there is nothing
            to normalise.
    """

    learner: Learner
    worlds: Worlds
    key: Key[Array, ""]
    update: Int[Array, ""]
    frozen: Float[Array, "decade policy_parameter"] | None
    normaliser: Normaliser | None = None


class Trajectory(NamedTuple):
    """What one rollout collected.

    Attributes:
        observation: before the action, as the agent saw it.
        action: as sampled (before any clipping by the environment).
        log_prob: log-density of the action under the behaviour policy.
        value: critic's value of `observation`.
        next_value: critic's value of the true next observation where the episode was
            truncated; unused elsewhere.
        reward: reward of the transition.
        terminated: nothing follows.
        truncated: cut by the time limit.
        bad_reward: the environment's reward was not finite.
        bad_observation: the environment's next observation was not finite.
        start: an episode began with the transition.
        carry: what the networks remembered before each stretch of time.
        moments: of this device's observations before the agent's normaliser; None
            where there is none.
    """

    observation: Shaped[Array, "time block env obs"]
    action: Array
    log_prob: Float[Array, "time block env"]
    value: Float[Array, "time block env"]
    next_value: Float[Array, "time block env"]
    reward: Float[Array, "time block env"]
    terminated: Bool[Array, "time block env"]
    truncated: Bool[Array, "time block env"]
    bad_reward: Bool[Array, "time block env"]
    bad_observation: Bool[Array, "time block env"]
    start: Bool[Array, "time block env"]
    carry: Carry
    moments: Moments | None


class Episodes(NamedTuple):
    """Sums over whole episodes that ended in a rollout (sums: devices can add them).

    Attributes:
        number: whole episodes that ended.
        total_return: sum of their undiscounted returns.
        total_length: sum of their lengths in transitions.
    """

    number: Float[Array, ""]
    total_return: Float[Array, ""]
    total_length: Float[Array, ""]


class Batch(NamedTuple):
    """Transitions as the loss sees them; leading axes [...] = any batch.

    Attributes:
        observation: before the action, as the agent saw it; a `Stretch` of them where
            the agent has a memory.
        action: as sampled.
        log_prob: log-density of the action under the behaviour policy.
        advantage: in units of return, or standardised.
        target: what the critic should have said.
        value: what it said; None where the value loss is not clipped.
    """

    observation: Inputs
    action: Array
    log_prob: Float[Array, "*batch"]
    advantage: Float[Array, "*batch"]
    target: Float[Array, "*batch"]
    value: Float[Array, "*batch"] | None


class LossInfo(NamedTuple):
    """What a gradient step reports; means over its minibatch.

    Attributes:
        policy_loss: minus the surrogate objective.
        value_loss: half the mean squared error of the critic.
        entropy: of the policy, in nats.
        clip_fraction: share of ratios to the anchor outside [1 − ε, 1 + ε].
        approx_kl: estimate r − 1 − log r of KL(behaviour ‖ policy), never negative.
        importance_cap_fraction: share of anchor/behaviour ratios at their cap.
    """

    policy_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]
    clip_fraction: Float[Array, "..."]
    approx_kl: Float[Array, "..."]
    importance_cap_fraction: Float[Array, "..."]
