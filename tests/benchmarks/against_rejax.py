"""Transitions per second of our trainer and of rejax's PPO, on the same work.

`python -m tests.benchmarks.against_rejax --rejax-python PATH/bin/python --json`, where
PATH is an environment made as `rejax_reacher` says. Reacher with the preset's sizes:
the same networks, environments, rollout, minibatches and epochs, one device each, both
compiled whole. They are timed in turn, so the ratio holds on a noisy machine. rejax
measures nothing and ignores time limits; ours does all that it does in a run, meters
apart.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path

import tyro

from fullscale import runtime
from fullscale.config import RunConfig
from fullscale.presets import preset
from tests.benchmarks.throughput import compiled_trainer
from tests.benchmarks.timing import machine, seconds, show

PEER = Path(__file__).with_name("rejax_reacher.py")
SHARED = (
    "num_envs", "rollout_length", "minibatch_size", "update_epochs", "hidden_sizes",
    "learning_rate", "discount", "gae_lambda", "clip_epsilon", "entropy_coefficient",
    "max_grad_norm",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Time our trainer and rejax in turn."""

    rejax_python: Path
    """Python of the environment that has rejax."""
    minibatch_size: int = 512
    """Transitions per gradient step."""
    num_envs: int = 128
    """Parallel environments."""
    updates: int = 32
    """Updates per timing."""
    repeats: int = 5
    """Timings of each; the median counts."""
    meters: bool = False
    """Leave our meters on, at their default interval."""
    json: bool = False
    """Print one JSON object and nothing else."""


def main(arguments: Arguments) -> int:
    """Time, and print."""
    config = preset(
        "reacher",
        10**9,
        num_envs=arguments.num_envs,
        minibatch_size=arguments.minibatch_size,
        **({} if arguments.meters else {"meter_interval": 0}),
    )
    runtime.set_up(cpu_devices=1)
    ours = compiled_trainer(config, 1, arguments.updates)
    ratios, rates = [], []
    count = config.samples_per_update * arguments.updates
    with _peer(arguments.rejax_python, config, arguments.updates) as peer:
        answer(peer)
        for _ in range(arguments.repeats):
            mine, theirs = seconds(ours), float(ask(peer))
            ratios.append(theirs / mine)
            rates.append((count / mine, count / theirs))
    result = {
        **{name: getattr(config, name) for name in SHARED},
        "meter_interval": config.meter_interval,
        "transitions_per_second": statistics.median(mine for mine, _ in rates),
        "rejax_transitions_per_second": statistics.median(other for _, other in rates),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "machine": machine(),
    }
    show(result, as_json=arguments.json)
    return 0


def ask(peer: subprocess.Popen) -> str:
    """One timing of the peer's."""
    assert peer.stdin is not None
    peer.stdin.write("go\n")
    peer.stdin.flush()
    return answer(peer)


def answer(peer: subprocess.Popen) -> str:
    """The peer's next line.

    Raises:
        RuntimeError: it ended instead; what it said is on stderr.
    """
    assert peer.stdout is not None
    line = peer.stdout.readline()
    if not line:
        raise RuntimeError(f"{PEER.name} ended with exit code {peer.wait()}")
    return line


def _peer(python: Path, config: RunConfig, updates: int) -> subprocess.Popen:
    shared = {name: getattr(config, name) for name in SHARED}
    want = json.dumps({**shared, "activation": "tanh", "updates": updates})
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [str(python), str(PEER), want], stdin=pipe, stdout=pipe, text=True
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments, description=__doc__)))
