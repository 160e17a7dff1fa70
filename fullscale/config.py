"""One run's configuration: every knob, its unit, its default, and what is refused.

`RunConfig` is the only place where a default lives. Derived counts (updates, gradient
steps, minibatches) are properties, never stored. TOML in and out: `loads`, `dumps`.
Standard library and tomlkit only, so a prediction can write one without JAX.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit

MAX_BLOCKS = 64  # logical environment blocks; a device owns a whole number of them
RESET = "reset"  # `com`: the anchor is the behaviour policy of each update (plain PPO)


class ConfigError(ValueError):
    """A configuration that cannot run; its text names the value and a right one."""


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
        learning_rate: step of the inner optimiser (Adam).
        clip_epsilon: ratio clip ε of the surrogate.
        com: centre of mass of the anchor in gradient steps; "reset" is plain PPO.
        outer_learning_rate: σ in θ ← θ_k + σ(θ' − θ_k), θ the policy parameters.
        discount: γ.
        gae_lambda: λ of the advantage estimator.
        entropy_coefficient: weight of the entropy bonus (on `bandit` it is τ itself).
        value_coefficient: weight of the value loss in the joint loss.
        max_grad_norm: bound on the global gradient norm; inf switches it off.
        adam_beta1: decay of Adam's first moment.
        adam_beta2: decay of Adam's second moment.
        adam_epsilon: Adam's ε.
        normalise_advantages: standardise advantages over each (global) minibatch.
        network: "mlp" (tanh, separate nets) or "linear" (linear policy without bias,
            critic quadratic in the observation).
        hidden_sizes: widths of the MLP's hidden layers.
        initial_std: standard deviation of a Gaussian policy at the start.
        learn_std: whether that standard deviation is trained.
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
    learning_rate: float = 3e-4
    clip_epsilon: float = 0.2
    com: float | str = RESET
    outer_learning_rate: float = 1.0
    discount: float = 0.99
    gae_lambda: float = 0.95
    entropy_coefficient: float = 0.0
    value_coefficient: float = 0.5
    max_grad_norm: float = 0.5
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-5
    normalise_advantages: bool = True
    network: str = "mlp"
    hidden_sizes: tuple[int, ...] = (64, 64)
    initial_std: float = 1.0
    learn_std: bool = True
    seed: int = 0
    num_seeds: int = 1
    evaluation_episodes: int = 1024
    prediction: str = ""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_ranges(self)
        _check_minibatches(self)
        _check_seeds(self)
        if self.budget < self.samples_per_update:
            raise ConfigError(
                f"budget = {self.budget} is less than one update of num_envs × "
                f"rollout_length = {self.samples_per_update} transitions; use a budget "
                f"of at least {self.samples_per_update} or fewer environments"
            )

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
    def gradient_steps(self) -> int:
        """Gradient steps of the whole run."""
        return self.updates * self.update_epochs * self.num_minibatches

    @property
    def num_blocks(self) -> int:
        """Logical blocks that own environments, keys and permutations.

        The largest power of two ≤ 64 that divides N and m. It depends on the
        configuration only, never on the devices, which is what makes results
        independent of their number; a run can use any number that divides it.
        """
        common = math.gcd(self.num_envs, self.minibatch_size, MAX_BLOCKS)
        return common & -common

    @property
    def is_plain_ppo(self) -> bool:
        """Whether the anchor is reset to the behaviour policy at each update."""
        return self.com == RESET

    def content_hash(self) -> str:
        """SHA-256 over every key except `prediction` (which points the other way)."""
        values = dataclasses.asdict(self)
        del values["prediction"]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def field_names() -> tuple[str, ...]:
    """Names of all configuration keys, in the order they are written."""
    return tuple(field.name for field in dataclasses.fields(RunConfig))


def from_mapping(values: Mapping[str, object]) -> RunConfig:
    """Build a configuration from TOML or JSON values.

    Integers may be written as whole floats (`2e6`); unknown keys are refused with
    the nearest known one.

    Raises:
        ConfigError: unknown or missing key, wrong type, or an impossible combination.
    """
    names = field_names()
    for key in values:
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"unknown configuration key {key!r}{hint}")
    for key in ("environment", "budget"):
        if key not in values:
            raise ConfigError(f"the configuration lacks the key {key!r}")
    kinds = {field.name: field.type for field in dataclasses.fields(RunConfig)}
    coerced = {key: _coerce(value, kinds[key]) for key, value in values.items()}
    for key, value in coerced.items():
        _check_type(key, value, kinds[key])
    return RunConfig(**coerced)  # type: ignore[arg-type]


def loads(text: str) -> RunConfig:
    """Read a configuration from TOML text. Raises ConfigError."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    return from_mapping(values)


def load(path: Path) -> RunConfig:
    """Read a configuration file. Raises ConfigError with the file's name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None
    try:
        return loads(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def dumps(config: RunConfig) -> str:
    """Write a configuration as TOML, every default included."""
    document = tomlkit.document()
    for name, value in dataclasses.asdict(config).items():
        document.add(name, list(value) if isinstance(value, tuple) else value)
    return tomlkit.dumps(document)


def _coerce(value: object, kind: object) -> object:
    """Whole floats to int, ints to float, lists to tuples; anything else as it is."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in (float, float | str) and type(value) is int:
        return float(value)
    if isinstance(value, list):
        return tuple(value)
    return value


def _check_types(config: RunConfig) -> None:
    for field in dataclasses.fields(config):
        _check_type(field.name, getattr(config, field.name), field.type)


def _check_type(name: str, value: object, kind: object) -> None:
    if not _is_a(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{name} = {value!r} should be of type {wanted}")


def _is_a(value: object, kind: object) -> bool:
    if kind == tuple[int, ...]:
        return isinstance(value, tuple) and all(type(v) is int for v in value)
    if kind == float | str:
        return type(value) in (float, str)
    return type(value) is kind


_POSITIVE = (
    "budget", "num_envs", "rollout_length", "minibatch_size", "update_epochs",
    "learning_rate", "value_coefficient", "max_grad_norm", "adam_epsilon",
    "initial_std", "num_seeds", "evaluation_episodes", "outer_learning_rate",
)  # fmt: skip
_NOT_NEGATIVE = ("clip_epsilon", "entropy_coefficient", "seed")
_UNIT_INTERVAL = ("discount", "gae_lambda")
_DECAYS = ("adam_beta1", "adam_beta2")


def _check_ranges(config: RunConfig) -> None:
    for name in _POSITIVE:
        _require(config, name, lambda v: v > 0, "be positive")
    for name in _NOT_NEGATIVE:
        _require(config, name, lambda v: v >= 0, "not be negative")
    for name in _UNIT_INTERVAL:
        _require(config, name, lambda v: 0 <= v <= 1, "lie in [0, 1]")
    for name in _DECAYS:
        _require(config, name, lambda v: 0 <= v < 1, "lie in [0, 1)")
    _require(
        config, "network", lambda v: v in ("mlp", "linear"), "be 'mlp' or 'linear'"
    )
    _require(config, "com", _valid_com, 'be "reset" or a number ≥ 0 of gradient steps')
    _require(config, "hidden_sizes", lambda v: v and min(v) > 0, "hold positive widths")


def _valid_com(com: float | str) -> bool:
    return com == RESET or (isinstance(com, float) and 0 <= com < math.inf)


def _require(config: RunConfig, name: str, accept: Callable, should: str) -> None:
    value = getattr(config, name)
    finite = not isinstance(value, float) or math.isfinite(value)
    if name == "max_grad_norm":
        finite = finite or value == math.inf
    if not finite or not accept(value):
        raise ConfigError(f"{name} = {value!r} should {should}")


MAX_COUNT = 2**31 - 1  # seeds and updates are 32-bit on the device


def _check_seeds(config: RunConfig) -> None:
    if config.seed + config.num_seeds > MAX_COUNT:
        raise ConfigError(
            f"seed = {config.seed} with num_seeds = {config.num_seeds} should stay "
            f"below {MAX_COUNT}"
        )


MAX_SAMPLES = 2**40  # transitions of one update


def _check_minibatches(config: RunConfig) -> None:
    if config.samples_per_update > MAX_SAMPLES:
        raise ConfigError(
            f"num_envs × rollout_length = {config.num_envs} × {config.rollout_length} "
            f"should be at most {MAX_SAMPLES} transitions per update"
        )
    samples, size = config.samples_per_update, config.minibatch_size
    if samples % size == 0:
        return
    below = max(d for d in _divisors(samples) if d < size) if size > 1 else 1
    above = min((d for d in _divisors(samples) if d > size), default=samples)
    raise ConfigError(
        f"minibatch_size = {size} does not divide num_envs × rollout_length = "
        f"{config.num_envs} × {config.rollout_length} = {samples}; the nearest that "
        f"do are {below} and {above}"
    )


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in small]
