"""`python -m fullscale.evaluate RUN…`: scores of final policies or of checkpoints."""

import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from fullscale import command
from fullscale.config.error import UsageError
from fullscale.presets import check_runnable

if TYPE_CHECKING:
    from fullscale.policies import Policies

COMMAND = "python -m fullscale.evaluate"
OWN = "own"  # the tasks of the run's environment


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Score the policies of run folders on fresh episodes, the same for all runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, as `python -m fullscale.train` leaves them."""
    episodes: int | None = None
    """Episodes per seed; by default the configuration's `evaluation_episodes`."""
    tasks: str = OWN
    """Named set of tasks; "own" is the environment that the run was trained on."""
    checkpoint: int | None = None
    """Score the checkpoint after so many updates instead of the final policies."""
    video: Path | None = None
    """Also draw one episode of the first seed's policy into this .gif or .mp4 file."""
    json: bool = False
    """Print one JSON object on stdout and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return command.run(Arguments, _main, COMMAND, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    from fullscale import runtime

    runtime.set_up()
    scored = [_scored(arguments, run) for run in arguments.runs]
    if arguments.json:
        command.write(json.dumps({"runs": scored}, allow_nan=False))
    else:
        command.write("\n".join(_sentence(each) for each in scored))
    return command.DONE


def _check(arguments: Arguments) -> None:
    if not arguments.runs:
        raise UsageError("give at least one run folder")
    if arguments.episodes is not None and arguments.episodes < 1:
        raise UsageError(f"--episodes {arguments.episodes} should be at least 1")
    if arguments.checkpoint is not None and arguments.checkpoint < 0:
        raise UsageError(
            f"--checkpoint {arguments.checkpoint} should be a number of updates"
        )
    if arguments.tasks != OWN:
        raise UsageError(
            f"--tasks {arguments.tasks!r} is unknown; there are {[OWN]}: the episodes "
            "of the environment that the run was trained on"
        )
    if arguments.video is not None:
        from fullscale import video

        if len(arguments.runs) > 1:
            raise UsageError(
                f"--video draws one run, not {len(arguments.runs)}; name one"
            )
        video.check(arguments.video)


def _scored(arguments: Arguments, run: Path) -> dict[str, Any]:
    """One run's scores, as JSON has them."""
    from fullscale import policies, score
    from fullscale.environments import make_environment
    from fullscale.network import make_agent

    found = (
        policies.final(run)
        if arguments.checkpoint is None
        else policies.of_checkpoint(run, arguments.checkpoint)
    )
    config = found.config
    check_runnable(config)
    if arguments.episodes is not None:
        config = dataclasses.replace(config, evaluation_episodes=arguments.episodes)
    environment = make_environment(config)
    agent = make_agent(config, environment)
    policies_read = (found.policy, found.anchor, found.normaliser)
    scores = score.evaluate(config, environment, agent, *policies_read)
    if arguments.video is not None:
        _draw(arguments.video, found, environment, agent)
    exact = environment.exact_return is not None
    return {
        "run": str(run),
        "environment": config.environment,
        "tasks": arguments.tasks,
        "checkpoint": arguments.checkpoint,
        "updates": found.updates,
        "transitions": found.transitions,
        "episodes": 0 if exact else config.evaluation_episodes,
        **{name: _finite(values) for name, values in scores.items()},
    }


def _draw(path: Path, found: "Policies", environment: Any, agent: Any) -> None:
    from fullscale import score, video

    observations, rewards = score.one_episode(
        environment, agent, found.policy, found.normaliser
    )
    video.write(path, environment.name, observations, rewards)


def _finite(values: Any) -> list[float | None]:
    return [float(x) if math.isfinite(x) else None for x in values]


def _sentence(scored: dict[str, Any]) -> str:
    values = [x for x in scored["score"] if x is not None]
    number = len(scored["score"])
    if not values:
        return f"{scored['run']}: no seed's score is finite"
    mean = statistics.fmean(values)
    error = _standard_error(values, scored["score_standard_error"])
    how = f"{scored['episodes']:,} episodes each" if scored["episodes"] else "exact"
    anchor = scored.get("score_anchor")
    averaged = (
        f", anchor {statistics.fmean(x for x in anchor if x is not None):.6g}"
        if anchor and any(x is not None for x in anchor)
        else ""
    )
    return (
        f"{scored['run']}: {scored['environment']} score {mean:.6g}{error}{averaged} "
        f"({len(values)} of {number} seeds, {how}) after {scored['transitions']:,} "
        f"transitions in {scored['updates']:,} updates"
    )


def _standard_error(values: list[float], episodes: list[float | None]) -> str:
    """Of the mean over seeds; over episodes where there is one seed."""
    if len(values) > 1:
        return f" ± {statistics.stdev(values) / math.sqrt(len(values)):.2g}"
    return f" ± {episodes[0]:.2g}" if episodes[0] else ""


if __name__ == "__main__":
    sys.exit(main())
