"""A prediction on record: written before the runs, hashed, never edited.

One JSON file. Its SHA-256 is taken over the canonical text (keys sorted, no spaces) of
everything but the hash; configurations made from it carry that hash, so do the runs.
Each cell holds a tested or testable number of environments with the predictive
distribution of its mean score and the null model's; every other knob is fixed.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import UsageError
from bridge.predictive import Predictive
from bridge.rule import Rule
from fullscale import config as config_module
from fullscale.config import ConfigError, RunConfig

FORMAT, VERSION = "ppo-outer-loop/prediction", 1
FREE_KEYS = ("num_envs", "seed", "num_seeds", "prediction")  # a run may choose these


class PredictionError(UsageError):
    """A prediction that cannot be read or used; the text says which and why."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of environments under the prediction.

    Attributes:
        num_envs: N.
        regret: expected regret, a fraction; None where it is infinite.
        ddr: predicted DDR in transitions per nat; None if not predicted.
        mean: of the mean score over the seeds, in score units; None if not predicted.
        sd: its standard deviation, in score units.
        predictive: its distribution on the stated scale.
        null: the null model's distribution on the same scale.
    """

    num_envs: int
    regret: float | None
    ddr: float | None = None
    mean: float | None = None
    sd: float | None = None
    predictive: Predictive | None = None
    null: Predictive | None = None

    def to_json(self) -> dict[str, object]:
        """The cell as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("predictive", "null"):
            if values[name] is not None:
                values[name] = values[name].to_json()
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Cell":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError."""
        fields = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        for name in ("predictive", "null"):
            if fields[name] is not None:
                fields[name] = Predictive.from_json(fields[name])  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is said before a run, and how it will be judged.

    Attributes:
        date: UTC, ISO 8601; a run that tests this starts later.
        code_version: version of the code that wrote it.
        domain: what was asked for.
        basis: "data", "transfer" or "prior".
        law: the law in words.
        calibration: its name and hash.
        inputs: what the command was given.
        null: the null model in words.
        config: every knob of the recommended run; its N is one of the cells'.
        cells: by increasing N.
        best_num_envs: interval of the best N at the level of `bridge.bracket`; empty
            where scores are predicted.
        rule: the verdict rule.
        survival_rate_if_right: probability that the recommended run survives if the
            prediction is right; None where it cannot survive.
        answer: the command's JSON answer at that time.
    """

    date: str
    code_version: str
    domain: str
    basis: str
    law: str
    calibration: Mapping[str, str]
    inputs: Mapping[str, object]
    null: str
    config: RunConfig
    cells: tuple[Cell, ...]
    best_num_envs: tuple[float, ...]
    rule: Rule
    survival_rate_if_right: float | None
    answer: Mapping[str, object]

    def cell(self, num_envs: int) -> Cell:
        """The cell with this N. Raises PredictionError if there is none."""
        for cell in self.cells:
            if cell.num_envs == num_envs:
                return cell
        covered = ", ".join(str(cell.num_envs) for cell in self.cells)
        raise PredictionError(
            f"num_envs = {num_envs} is not covered by this prediction; it covers "
            f"{covered}"
        )

    def payload(self) -> dict[str, object]:
        """Everything but the hash, as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["config"] = config_to_json(self.config)
        del values["config"]["prediction"]
        values["config_hash"] = self.config.content_hash()
        values["cells"] = [cell.to_json() for cell in self.cells]
        values["rule"] = self.rule.to_json()
        content = {"format": FORMAT, "version": VERSION, **values}
        return json.loads(json.dumps(content, allow_nan=False))

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical text."""
        return content_hash(self.payload())

    def says_the_same_as(self, other: "Prediction") -> bool:
        """Whether a run would be judged alike: date, code and prose aside."""
        bare = [
            dataclasses.replace(p, date="", code_version="", answer={}).payload()
            for p in (self, other)
        ]
        return bare[0] == bare[1]

    def run_config(
        self,
        *,
        num_envs: int | None = None,
        seed: int | None = None,
        num_seeds: int | None = None,
    ) -> RunConfig:
        """The configuration of a run that tests this; carries the hash.

        Args:
            num_envs: one of the cells'; the recommended one by default.
            seed: first seed.
            num_seeds: seeds of the run; the prediction's by default.

        Raises:
            PredictionError: no cell has this `num_envs`.
        """
        config = self.config
        size = config.num_envs if num_envs is None else num_envs
        return dataclasses.replace(
            config,
            num_envs=self.cell(size).num_envs,
            seed=config.seed if seed is None else seed,
            num_seeds=config.num_seeds if num_seeds is None else num_seeds,
            prediction=self.sha256,
        )


def dumps(prediction: Prediction) -> str:
    """The file's text."""
    payload = prediction.payload()
    content = {**payload, "sha256": content_hash(payload)}
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def load(path: Path) -> Prediction:
    """Read a prediction and verify its hash.

    Raises:
        PredictionError: missing, not a prediction, of an unknown version, or damaged.
    """
    name = repr(str(path))
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise PredictionError(f"cannot read {name}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise PredictionError(f"{name} is not a prediction: not JSON text") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PredictionError(f"{name} is not a prediction ({FORMAT})")
    if content.get("version") != VERSION:
        raise PredictionError(
            f"{name} has format version {content.get('version')!r}; this code reads "
            f"version {VERSION}"
        )
    stated = content.pop("sha256", None)
    if stated != content_hash(content):
        raise PredictionError(
            f"{name} is damaged or was edited: its content does not match its SHA-256"
        )
    try:
        return _from_payload(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PredictionError(f"{name} is not a whole prediction: {error}") from None


def _from_payload(content: Mapping[str, object]) -> Prediction:
    values = {f.name: content[f.name] for f in dataclasses.fields(Prediction)}
    values["config"] = _config_from_json(values["config"])  # type: ignore[arg-type]
    values["cells"] = tuple(Cell.from_json(cell) for cell in values["cells"])  # type: ignore[attr-defined]
    values["best_num_envs"] = tuple(values["best_num_envs"])  # type: ignore[arg-type]
    values["rule"] = Rule.from_json(values["rule"])  # type: ignore[arg-type]
    prediction = Prediction(**values)  # type: ignore[arg-type]
    prediction.cell(prediction.config.num_envs)
    return prediction


def content_hash(payload: Mapping[str, object]) -> str:
    """SHA-256 of the canonical text of a payload."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def config_to_json(config: RunConfig) -> dict[str, object]:
    """The keys as JSON values; an infinite value becomes the text "inf"."""
    return {
        key: "inf" if isinstance(value, float) and math.isinf(value) else value
        for key, value in dataclasses.asdict(config).items()
    }


def _config_from_json(values: Mapping[str, object]) -> RunConfig:
    numbers = {k: math.inf if v == "inf" else v for k, v in values.items()}
    try:
        return config_module.from_mapping(numbers)
    except ConfigError as error:
        raise PredictionError(f"its configuration cannot run: {error}") from None
