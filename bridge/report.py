"""The answer as a person reads it: the number first, the table, then the doubts."""

import math
import sys
import textwrap

from rich.console import Console
from rich.table import Table

from bridge.answer import SCORE_LEVEL, Answer
from bridge.prediction import Prediction
from bridge.prior import OutsideCheck

MAX_ROWS = 12
WIDTH = 100  # columns where the output is not a terminal


def text(answer: Answer, written: Prediction | None, out: str | None) -> str:
    """The answer as text, styled if standard output is a terminal.

    Args:
        answer: what was answered.
        written: the prediction, if it was put on record.
        out: the folder it was written to.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    with console.capture() as capture:
        console.print(_verdict(answer), soft_wrap=True)
        console.print(_table(answer))
        console.print(_recipe(answer), soft_wrap=True)
        for check in answer.outside_checks():
            console.print(_check(check), soft_wrap=True)
        console.print("\nCaveats")
        for caveat in answer.caveats:
            filled = textwrap.fill(caveat, console.width - 4, subsequent_indent="    ")
            console.print(f"  - {filled}", markup=False, soft_wrap=True)
        console.print(_next(answer, written, out), markup=False, soft_wrap=True)
    return capture.get().rstrip("\n")


def _verdict(answer: Answer) -> str:
    choice, request = answer.choice, answer.request
    low, high = choice.interval
    return (
        f"[bold]Use {answer.config.num_envs:,} parallel environments[/bold] for "
        f"{request.budget:,} transitions of {answer.domain.name}.\n"
        f"  within 5 points of the least expected regret: "
        f"{answer.num_envs(choice.low):,} to {answer.num_envs(choice.high):,}\n"
        f"  80 % interval of the best number: "
        f"{answer.num_envs(low):,} to {answer.num_envs(high):,}\n"
        f"  basis: {answer.domain.basis} ({answer.calibration['name']}, "
        f"{answer.calibration['hash'][:12]})"
    )


def _table(answer: Answer) -> Table:
    content = answer.to_json()["alternatives"]
    assert isinstance(content, list)
    scored = content[0]["score"] is not None
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in _headers(answer, scored=scored):
        table.add_column(name, justify="right", no_wrap=True)
    shown = _shown(answer)
    for index in shown:
        style = "bold" if index == answer.choice.index else ""
        table.add_row(*_row(answer, content[index], scored=scored), style=style)
    if len(shown) < len(content):
        table.caption = f"{len(content) - len(shown)} more in --json"
    return table


def _headers(answer: Answer, *, scored: bool) -> list[str]:
    score = ["score", f"{SCORE_LEVEL:.0%} interval", "DDR"] if scored else []
    hours = ["device-h"] if answer.request.device_hours is not None else []
    return ["N", *score, "regret", "best in", "updates", "grad steps", *hours]


def _row(answer: Answer, alternative: dict, *, scored: bool) -> list[str]:
    cells = [f"{alternative['num_envs']:,}"]
    if scored:
        low, high = alternative["score_interval"]
        digits = _decimals(high - low)
        ddr = alternative["ddr"] or alternative["ddr_noise"]
        cells += [
            f"{alternative['score']:.{digits}f}",
            f"{low:.{digits}f} … {high:.{digits}f}",
            f"{ddr:.2g}",
        ]
    regret = alternative["regret"]
    cells += [
        "∞" if regret is None else f"{regret:,.1%}",
        f"{alternative['best_share']:.0%}",
        f"{alternative['updates']:,}",
        f"{alternative['gradient_steps']:,}",
    ]
    if answer.request.device_hours is not None:
        cells.append(f"{answer.request.device_hours:,.4g}")
    return cells


def _decimals(width: float) -> int:
    """Decimals that show two digits of an interval's width."""
    return max(0, 1 - math.floor(math.log10(width))) if width > 0 else 6


def _shown(answer: Answer) -> list[int]:
    """The rows around the range and the interval, `MAX_ROWS` at most."""
    choice = answer.choice
    first = max(min(choice.low, choice.interval[0]) - 1, 0)
    last = min(max(choice.high, choice.interval[1]) + 1, len(answer.configs) - 1)
    while last - first >= MAX_ROWS:
        if choice.index - first > last - choice.index:
            first += 1
        else:
            last -= 1
    return list(range(first, last + 1))


def _recipe(answer: Answer) -> str:
    config, request = answer.config, answer.request
    hours = ""
    if request.device_hours is not None:
        hours = (
            f"\n  {request.device_hours:,.4g} device-hours, "
            f"{request.wall_clock_hours:,.4g} h on {request.devices or 1} device(s)"
        )
    return (
        f"\nRecipe: {config.num_minibatches:,} minibatches × "
        f"{config.minibatch_size:,}, epochs {config.update_epochs}, "
        f"learning rate {config.learning_rate:g}, rollout {config.rollout_length}, "
        f"com {config.com}, seeds {request.num_seeds}: {config.updates:,} updates, "
        f"{config.gradient_steps:,} gradient steps in sequence{hours}"
    )


def _check(check: OutsideCheck) -> str:
    low, high = check.best_num_envs_interval
    where = "inside" if check.inside else "outside"
    return (
        f"Outside check, not an input: {check.source}: {where} the prior's 80 % "
        f"interval of the best N there, {low:,.0f} to {high:,.0f}"
    )


def _next(answer: Answer, written: Prediction | None, out: str | None) -> str:
    if written is None:
        return (
            "\nNext: add --out DIR to put this on record and get a configuration to "
            "train"
        )
    return (
        f"\nOn record in {out}/prediction.json, {written.sha256[:12]}{_risk(written)}\n"
        f"Next: python -m fullscale.train {out}/config.toml --out RUN\n"
        f"then: python -m bridge.judge {out}/prediction.json RUN"
    )


def _risk(written: Prediction) -> str:
    chance = written.survival_rate_if_right
    if chance is None:
        return "; it predicts no score, so one run cannot decide about it"
    if chance < 0.005:
        return (
            "; one run cannot confirm it, because the null model (the nearest trained "
            "budget) says nearly the same"
        )
    return f"; if it is right, a run survives with probability {chance:.0%}"
