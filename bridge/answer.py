"""The answer to "how many environments?": the choice, its alternatives, its caveats.

`answer` is a pure function of a request; `to_json` gives the keys that others rely on.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bridge import caveats, prior
from bridge.choice import Choice, choose
from bridge.domains import Domain
from bridge.evidence import Evidence, from_calibration, from_prior
from bridge.prior import OutsideCheck, Prior
from bridge.recipe import candidates
from fullscale.config import RunConfig

SCORE_LEVEL = 0.8  # central level of every score interval shown


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked.

    Attributes:
        budget: transitions of one seed's run.
        num_seeds: seeds of the run.
        devices: devices it would use; None if not told.
        throughput: transitions per second and device; None if not told.
    """

    budget: int
    num_seeds: int
    devices: int | None = None
    throughput: float | None = None

    @property
    def device_hours(self) -> float | None:
        """Device-hours of the whole run, all seeds."""
        if self.throughput is None:
            return None
        return self.budget * self.num_seeds / self.throughput / 3600.0

    @property
    def wall_clock_hours(self) -> float | None:
        """Hours of the whole run on all devices."""
        hours = self.device_hours
        return None if hours is None else hours / (self.devices or 1)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to use, and on what grounds.

    Attributes:
        request: what was asked.
        domain: of the request.
        configs: the settings compared, by increasing N.
        evidence: what is known of each.
        choice: among them.
        prior: the prior answered from; None with a calibration.
        caveats: what to know before acting on it, one sentence each.
    """

    request: Request
    domain: Domain
    configs: tuple[RunConfig, ...]
    evidence: Evidence
    choice: Choice
    prior: Prior | None
    caveats: tuple[str, ...]

    @property
    def config(self) -> RunConfig:
        """The recommended run."""
        return self.configs[self.choice.index]

    @functools.cached_property
    def calibration(self) -> dict[str, str]:
        """Name and hash of what the answer was computed from."""
        if self.domain.calibration is None:
            return {"name": f"prior/{prior.DOMAIN}", "hash": prior.content_hash()}
        calibration = self.domain.calibration
        return {"name": calibration.name, "hash": calibration.content_hash}

    def num_envs(self, index: int) -> int:
        """N of a candidate."""
        return self.configs[index].num_envs

    def to_json(self) -> dict[str, object]:
        """The JSON object of `predict --json`."""
        choice, config = self.choice, self.config
        best = self._alternative(choice.index)
        low, high = choice.interval
        return {
            "num_envs": config.num_envs,
            "num_envs_low": self.num_envs(choice.low),
            "num_envs_high": self.num_envs(choice.high),
            "num_envs_interval": [self.num_envs(low), self.num_envs(high)],
            "budget": self.request.budget,
            "domain": self.domain.name,
            "score": best["score"],
            "score_interval": best["score_interval"],
            "ddr": best["ddr"],
            "ddr_noise": best["ddr_noise"],
            "updates": config.updates,
            "gradient_steps": config.gradient_steps,
            "minibatch_size": config.minibatch_size,
            "num_minibatches": config.num_minibatches,
            "learning_rate": config.learning_rate,
            "com": config.com,
            "regret": best["regret"],
            "num_seeds": self.request.num_seeds,
            "environment": config.environment,
            "device_hours": self.request.device_hours,
            "wall_clock_hours": self.request.wall_clock_hours,
            "alternatives": [self._alternative(i) for i in range(len(self.configs))],
            "outside_checks": [asdict(check) for check in self.outside_checks()],
            "caveats": list(self.caveats),
            "basis": self.domain.basis,
            "calibration": self.calibration,
        }

    def outside_checks(self) -> tuple[OutsideCheck, ...]:
        """Known large runs beside what the prior says of them; none with data."""
        return () if self.prior is None else prior.outside_checks(self.prior)

    def _alternative(self, index: int) -> dict[str, object]:
        config, evidence = self.configs[index], self.evidence
        told = self.domain.calibration
        ddr = None if evidence.ddr is None else float(evidence.ddr[index])
        noise_only = told is not None and told.ddr_column == "ddr_noise"
        regret = float(self.choice.regret[index])
        return {
            "num_envs": config.num_envs,
            "score": None if evidence.mean is None else float(evidence.mean[index]),
            "score_interval": (
                list(evidence.predictive[index].interval(SCORE_LEVEL))
                if evidence.predictive
                else None
            ),
            "regret": regret if math.isfinite(regret) else None,
            "ddr": None if noise_only else ddr,
            "ddr_noise": ddr if noise_only else None,
            "updates": config.updates,
            "gradient_steps": config.gradient_steps,
            "num_minibatches": config.num_minibatches,
            "device_hours": self.request.device_hours,
            "best_share": float(self.choice.best_shares[index]),
        }


def answer(request: Request, domain: Domain) -> Answer:
    """Choose a number of environments.

    Raises:
        UsageError: the budget is too small, or the domain's calibration does not fit.
        ChoiceError: the calibration gives no finite gap.
    """
    configs = candidates(domain.environment, request.budget, request.num_seeds)
    drawn = None
    if domain.calibration is None:
        drawn = prior.sample()
        evidence = from_prior(drawn, configs)
    else:
        evidence = from_calibration(domain.calibration, configs)
    choice = choose(evidence.gap)
    return Answer(
        request=request,
        domain=domain,
        configs=configs,
        evidence=evidence,
        choice=choice,
        prior=drawn,
        caveats=tuple(_caveats(request, domain, configs, choice)),
    )


def _caveats(
    request: Request,
    domain: Domain,
    configs: tuple[RunConfig, ...],
    choice: Choice,
) -> Iterator[str]:
    if domain.calibration is None:
        regret = float(choice.regret[choice.index])
        yield from caveats.of_prior(request.budget, regret)
    else:
        yield from caveats.of_calibration(domain.calibration, configs, choice)
    yield from caveats.of_choice(configs, choice)
    yield from caveats.of_devices(configs[choice.index], request.devices)
