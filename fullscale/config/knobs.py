"""`RunConfig`: the only place where a default lives.

Derived counts (updates, gradient steps, minibatches) are properties, never stored.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass

from fullscale.config import checks

MAX_BLOCKS = 64  # logical environment blocks; a device owns a whole number of them
RESET = "reset"  # `com`: the anchor is the behaviour policy of each update (plain PPO)
CONSTANT = "constant"  # `final_…`: the knob keeps its first value
FULL = "full"  # precision: JAX's default float


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Every knob of a run.

    Attributes:
        environment: name of the environment, see `fullscale.presets`.
        budget: transitions the whole run may use; rounded down to whole updates.
        num_envs: parallel environments N, over all devices and hosts.
        rollout_length: transitions T per environment and update.
        minibatch_size: transitions m per gradient step, over all devices.
        update_epochs: passes E over the batch of one update.
        optimiser: inner optimiser, "adam" or "sgd".
        learning_rate: step of the inner optimiser.
        momentum: of "sgd": v ← momentum·v + gradient.
        adam_beta1: decay of Adam's first moment.
        adam_beta2: decay of Adam's second moment.
        adam_epsilon: Adam's ε.
        max_grad_norm: bound on the global gradient norm; inf switches it off.
        surrogate: what keeps a policy near the anchor: "clip" or "kl" (a penalty).
        clip_epsilon: ratio clip ε of "clip"; 0 keeps the first step's whole gradient.
        kl_coefficient: weight of KL(anchor ‖ policy) in "kl".
        target_kl: an update's remaining gradient steps are skipped once a minibatch's
            KL estimate (`approx_kl`, behaviour to policy) exceeds it; inf: never.
        com: centre of mass of the anchor in gradient steps; "reset" is plain PPO.
        max_importance_ratio: cap on anchor/behaviour ratios where com is a number.
        outer_learning_rate: σ in θ ← θ_k + σ v, θ the policy parameters.
        outer_momentum: μ in v ← μ v + (θ' − θ_k); 0 leaves v = θ' − θ_k.
        schedule: how knobs go to their final values over the updates: "linear",
            "cosine" or "exponential".
        final_learning_rate: value at the last update, or "constant".
        final_clip_epsilon: likewise.
        final_outer_learning_rate: likewise.
        final_com: likewise; needs a number in `com`.
        discount: γ.
        gae_lambda: λ of the advantage estimator.
        entropy_coefficient: weight of the entropy bonus (on `bandit` it is τ itself).
        value_coefficient: weight of the value loss in the joint loss.
        value_clip: bound on a value's move from its rollout value in the value loss,
            in units of return; inf switches it off.
        normalise_advantages: standardise advantages.
        advantage_scope: over what: each (global) "minibatch", the whole "batch" once
            per update, or each logical "block" of a minibatch (what trainers do that
            standardise on every device by itself).
        normalise_observations: standardise observations by running moments, which
            stand still during an update.
        normalise_rewards: divide rewards by the running standard deviation of
            discounted returns, which stands still during an update.
        network: "mlp" (tanh, separate nets), "gru" (the same with a recurrent layer)
            or "linear" (linear policy without bias, critic quadratic in the
            observation).
        hidden_sizes: widths of the hidden layers; the last one is the GRU's.
        segment_length: transitions per stretch through which "gru" is trained; 0 is
            the whole rollout.
        initial_std: standard deviation of a Gaussian policy at the start.
        learn_std: whether that standard deviation is trained.
        compute_precision: of the networks, "full" or "bfloat16".
        storage_precision: of stored observations, "full" or "bfloat16"; the policy
            acts on what is stored.
        staggered_starts: spread the environments' first episodes over the time limit:
            "on", "off", or "auto", which is on where a rollout is shorter than that.
        meter_interval: updates between readings of the noise instruments; 0: never.
        nonfinite: what a NaN or infinity in a reward, an observation or a gradient
            does: "stop" the run, or "mask" it (end the episode; skip the step).
        seed: first seed; seed i of the run uses seed + i.
        num_seeds: seeds trained side by side; a dimension of every result.
        evaluation_episodes: fresh episodes behind the final score (not in the budget).
        prediction: SHA-256 of the prediction this run tests; empty if none.
    """

    environment: str
    budget: int
    num_envs: int = 128
    rollout_length: int = 32
    minibatch_size: int = 512
    update_epochs: int = 4
    optimiser: str = "adam"
    learning_rate: float = 3e-4
    momentum: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-5
    max_grad_norm: float = 0.5
    surrogate: str = "clip"
    clip_epsilon: float = 0.2
    kl_coefficient: float = 1.0
    target_kl: float = math.inf
    com: float | str = RESET
    max_importance_ratio: float = 100.0
    outer_learning_rate: float = 1.0
    outer_momentum: float = 0.0
    schedule: str = "linear"
    final_learning_rate: float | str = CONSTANT
    final_clip_epsilon: float | str = CONSTANT
    final_outer_learning_rate: float | str = CONSTANT
    final_com: float | str = CONSTANT
    discount: float = 0.99
    gae_lambda: float = 0.95
    entropy_coefficient: float = 0.0
    value_coefficient: float = 0.5
    value_clip: float = math.inf
    normalise_advantages: bool = True
    advantage_scope: str = "minibatch"
    normalise_observations: bool = False
    normalise_rewards: bool = False
    network: str = "mlp"
    hidden_sizes: tuple[int, ...] = (64, 64)
    segment_length: int = 0
    initial_std: float = 1.0
    learn_std: bool = True
    compute_precision: str = FULL
    storage_precision: str = FULL
    staggered_starts: str = "auto"
    meter_interval: int = 16
    nonfinite: str = "stop"
    seed: int = 0
    num_seeds: int = 1
    evaluation_episodes: int = 1024
    prediction: str = ""

    def __post_init__(self) -> None:
        checks.check(self)

    @property
    def samples_per_update(self) -> int:
        """Samples per update, n = N·T, in transitions."""
        return self.num_envs * self.rollout_length

    @property
    def num_minibatches(self) -> int:
        """Minibatches per epoch, n/m."""
        return self.samples_per_update // self.minibatch_size

    @property
    def updates(self) -> int:
        """Whole updates that fit into the budget (rounded down, never over)."""
        return self.budget // self.samples_per_update

    @property
    def transitions(self) -> int:
        """Transitions the run will use: updates · N · T ≤ budget, an exact int."""
        return self.updates * self.samples_per_update

    @property
    def gradient_steps_per_update(self) -> int:
        """Gradient steps of one update, E·n/m (fewer are taken past `target_kl`)."""
        return self.update_epochs * self.num_minibatches

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the whole run."""
        return self.updates * self.gradient_steps_per_update

    @property
    def segment(self) -> int:
        """Transitions in a row of the batch: 1, or a GRU's stretch of training."""
        if self.network != "gru":
            return 1
        return self.segment_length or self.rollout_length

    @property
    def num_blocks(self) -> int:
        """Logical blocks that own environments, keys and permutations.

        The largest power of two ≤ 64 that divides N and the rows of a minibatch, and
        half of both where they are even, so that each block can be cut into two
        halves for the split-half meter. It depends on the configuration only, never on
        the devices, which is what makes results independent of their number; a run can
        use any number that divides it.
        """
        rows = self.minibatch_size // self.segment
        envs = self.num_envs
        if envs % 2 == 0 and rows % 2 == 0:
            envs, rows = envs // 2, rows // 2
        common = math.gcd(envs, rows, MAX_BLOCKS)
        return common & -common

    @property
    def can_be_halved(self) -> bool:
        """Whether the split-half meter can run: an even share of every block."""
        rows = self.minibatch_size // self.segment
        return (
            self.num_envs % (2 * self.num_blocks) == 0
            and rows % (2 * self.num_blocks) == 0
        )

    @property
    def is_plain_ppo(self) -> bool:
        """Whether the anchor is reset to the behaviour policy at each update."""
        return self.com == RESET

    def content_hash(self) -> str:
        """SHA-256 over every key that is not at its default, except `prediction`.

        (`prediction` points the other way; keys at their default are left out so that
        a configuration keeps its hash when a later version has more keys.)
        """
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        values = {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if key != "prediction" and value != defaults[key]
        }
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def field_names() -> tuple[str, ...]:
    """Names of all configuration keys, in the order they are written."""
    return tuple(field.name for field in dataclasses.fields(RunConfig))
