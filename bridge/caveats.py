"""What to know before acting on an answer, one sentence each.

A caveat is a condition that a reader can check; nothing here changes the answer.
"""

from collections.abc import Iterator, Mapping, Sequence

from bridge import prior
from bridge.choice import Choice
from bridge.recipe import MIN_UPDATES
from fullscale.config import RunConfig
from fullscale.presets import NOT_YET_TRAINABLE
from theory.calibration import Calibration
from theory.forecast import KNOWN

CONVERGED = "The fit converged."  # what a calibration says of a sound estimate


def of_choice(configs: Sequence[RunConfig], choice: Choice) -> Iterator[str]:
    """Caveats about the candidates themselves."""
    config = configs[choice.index]
    if choice.index == len(configs) - 1 or choice.high == len(configs) - 1:
        yield (
            f"the range ends at the largest N with {MIN_UPDATES} updates, "
            f"{configs[-1].num_envs:,}: the law might ask for more"
        )
    if choice.low == 0 and len(configs) > 1:
        yield (
            f"the range starts at the smallest N that fills a minibatch of "
            f"{config.minibatch_size:,} transitions, {configs[0].num_envs:,}: the law "
            "might ask for fewer"
        )
    if config.transitions < config.budget:
        yield (
            f"whole updates use {config.transitions:,} of the {config.budget:,} "
            "transitions"
        )
    yield (
        "the choice is per transition: time per update (simulator latency, "
        f"{config.update_epochs * config.num_minibatches:,} sequential gradient steps) "
        "is not in it"
    )
    if config.environment in NOT_YET_TRAINABLE:
        yield (
            f"this version cannot train {config.environment!r} yet: fullscale.train "
            "refuses the configuration"
        )


def of_devices(config: RunConfig, devices: int | None) -> Iterator[str]:
    """Whether the recommended run can use the devices."""
    if devices is not None and config.num_blocks % devices:
        yield (
            f"{devices} devices do not divide the run's {config.num_blocks} "
            "environment blocks; use a power of two up to that"
        )


def of_calibration(
    calibration: Calibration, configs: Sequence[RunConfig], choice: Choice
) -> Iterator[str]:
    """How far the answer reaches beyond the runs behind it, and what they left open."""
    config = configs[choice.index]
    yield from _reach("budget", config.budget, calibration.budgets, "transitions")
    levels = calibration.varied["num_envs"]
    yield from _reach("num_envs", config.num_envs, levels, "environments")
    if calibration.ddr_column == "ddr":
        yield (
            "the law was fitted on raw DDR, not on DDR_noise: its transient share "
            "biases the source exponent"
        )
    if calibration.model.asymptote != KNOWN:
        yield "the asymptote is a fitted parameter, and regret is relative to its gap"
    for what, status in calibration.statuses.items():
        if status != CONVERGED:
            yield f"{what}: {status}"
    yield from _held_out(calibration.held_out)


def _held_out(held_out: Mapping[str, object]) -> Iterator[str]:
    """Whether the law has beaten each null model on runs it had not seen."""
    models = held_out.get("models")
    if not isinstance(models, Mapping):
        yield "no held-out runs have tested this law"
        return
    for name, scores in models.items():
        skill = scores.get("skill_of_law")
        if skill is not None and not skill["low"] > 0.0:
            yield (
                f"on held-out runs the law is not shown to beat the null {name!r}: "
                f"skill {skill['value']:.2f}, {skill['level']:.0%} interval "
                f"{skill['low']:.2f} to {skill['high']:.2f}"
            )


def of_prior(budget: int, best_regret: float) -> Iterator[str]:
    """What the prior is made of."""
    yield (
        "no run of ours is behind this: it is a prior over exponents, scaled by two "
        f"reported plateaus, of the baseline before 1e10 transitions and of "
        f"{prior.SECOND_NUM_ENVS:,} environments at an unreported budget"
    )
    yield (
        "both plateaus bound the best N from below only; how far above the bound it "
        f"lies is judgement (half-normal, {prior.EXCESS_DECADES:g} decade), and the "
        "upper end of the interval is made of it"
    )
    yield (
        f"that the baseline used {prior.BASELINE_NUM_ENVS:,} environments is inferred "
        "from the public configuration, not reported"
    )
    yield (
        "regret is from the flatness formula (no floor, noise aligned with curvature), "
        f"cut where a gap is {prior.WORST_GAP_RATIO:g} times the best; even the chosen "
        f"N is expected to cost {best_regret:.0%}, so read the 80 % interval, not the "
        "range"
    )
    low, high = prior.SECOND_BUDGETS
    if not low <= budget <= high:
        yield (
            f"the budget is outside {low:.0e} to {high:.0e}, where the reports are from"
        )


def _reach(
    name: str, value: int, levels: Sequence[int | float], unit: str
) -> Iterator[str]:
    low, high = min(levels), max(levels)
    if low <= value <= high:
        return
    factor = value / high if value > high else low / value
    beyond = "above" if value > high else "below"
    yield (
        f"{name} = {value:,} is {factor:.3g} times {beyond} the trained range of "
        f"{low:,.0f} to {high:,.0f} {unit}"
    )
