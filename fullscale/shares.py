"""What each device gets of a run: seeds, blocks of environments, rows of a minibatch.

Devices form a grid, seeds × environments (see `mesh`). Arithmetic only, without JAX.
"""

import math
from typing import NamedTuple

from fullscale.config import MAX_COUNT, ConfigError, RunConfig


class Share(NamedTuple):
    """One device's part.

    Attributes:
        seeds: seeds that it trains side by side.
        devices_per_seed: devices that share the environments of one seed.
        blocks: logical blocks of environments, of each of its seeds.
        num_envs: environments of each of its seeds.
        rows: rows of an update's batch, of each of its seeds: transitions, or
            stretches of them for networks with a memory.
        minibatch_rows: rows of each gradient step.
    """

    seeds: int
    devices_per_seed: int
    blocks: int
    num_envs: int
    rows: int
    minibatch_rows: int


def devices_per_seed(config: RunConfig, devices: int) -> int:
    """How many devices share one seed, seeds being spread first."""
    return devices // math.gcd(devices, config.num_seeds)


def fits(config: RunConfig, devices: int) -> bool:
    """Whether so many devices share the seeds and blocks evenly, in 31-bit indices.

    Rows of a batch are gathered by 32-bit indices, so a device can hold at most
    2^31 − 1 rows of a seed, and no environment's index may be larger.
    """
    per_seed = devices_per_seed(config, devices)
    return config.num_blocks % per_seed == 0 and indexable(config, devices)


def indexable(config: RunConfig, devices: int) -> bool:
    """Whether 32-bit indices reach all rows of a device and all environments."""
    rows = config.samples_per_update // config.segment
    per_seed = devices_per_seed(config, devices)
    return rows // per_seed <= MAX_COUNT and config.num_envs <= MAX_COUNT


def share(config: RunConfig, devices: int) -> Share:
    """One device's part of a run on so many devices.

    Raises:
        ConfigError: they cannot share it; the text has the nearest numbers that can.
    """
    check(config, devices)
    per_seed = devices_per_seed(config, devices)
    return Share(
        seeds=config.num_seeds * per_seed // devices,
        devices_per_seed=per_seed,
        blocks=config.num_blocks // per_seed,
        num_envs=config.num_envs // per_seed,
        rows=config.samples_per_update // config.segment // per_seed,
        minibatch_rows=config.minibatch_size // config.segment // per_seed,
    )


def check(config: RunConfig, devices: int) -> None:
    """Refuse numbers of devices that cannot share a run.

    Raises:
        ConfigError: with the nearest numbers that can.
    """
    if devices >= 1 and fits(config, devices):
        return
    choices = nearest(config, devices)
    if not choices:
        raise ConfigError(
            f"num_envs × rollout_length = {config.num_envs} × {config.rollout_length} "
            f"in {config.num_blocks} blocks leaves every device more than {MAX_COUNT} "
            "rows of a batch, which cannot be indexed; use a shorter rollout or a "
            f"num_envs and minibatch_size with more common factors of 2"
        )
    numbers = " and ".join(str(number) for number in choices)
    if devices >= 1 and not indexable(config, devices):
        raise ConfigError(
            f"devices = {devices} leaves each more than {MAX_COUNT} of the num_envs × "
            f"rollout_length = {config.num_envs} × {config.rollout_length} rows of a "
            f"batch, which cannot be indexed; the nearest that do not: {numbers}"
        )
    raise ConfigError(
        f"devices = {devices} should share num_seeds = {config.num_seeds} times "
        f"{config.num_blocks} blocks of environments evenly; the nearest that do: "
        f"{numbers}"
    )


def nearest(config: RunConfig, devices: int) -> list[int]:
    """The numbers of devices just below and above that fit, as far as there are any."""
    most = config.num_seeds * config.num_blocks
    below = (d for d in range(min(devices - 1, most), 0, -1) if fits(config, d))
    above = (d for d in range(max(devices + 1, 1), most + 1) if fits(config, d))
    return [d for d in (next(below, None), next(above, None)) if d is not None]
