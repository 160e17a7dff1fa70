"""From an answer to the prediction that goes on record, and onto the disk.

A folder that holds the same prediction, apart from its date, is left as it is; one that
holds another is refused: a prediction is never edited.
"""

import datetime
import importlib.metadata
import math
import sys
from pathlib import Path

from bridge import bracket, deposit, prediction, prior
from bridge.answer import Answer
from bridge.domains import PRIOR
from bridge.errors import UsageError
from bridge.prediction import Cell, Prediction, PredictionError
from bridge.rule import BEST_NUM_ENVS, SCORES, Rule, survival_rate_if_right
from fullscale import config as config_module

PREDICTION, CONFIG = "prediction.json", "config.toml"
LAWS = {
    "joint": "gap = floor + bias·(B²/D)^(−s/2) + noise·D^(−1/2), D = DDR of the knobs",
    "saturating": "gap = floor + bias·(1 + r·z/s)^(−s) + noise·D^(−1/2), z = B/√D",
    "free": "gap = floor + bias·B^(−b)·D^d + noise·D^(−γ), D = DDR of the knobs",
    PRIOR: "N* = N₀·(B/1e10)^p with prior exponents; no score is predicted",
}


def put(folder: Path, answer: Answer) -> Prediction:
    """Write the prediction and the recommended configuration, both or neither.

    Args:
        folder: made if missing.
        answer: what was answered.

    Returns:
        The prediction on record: an earlier one if it says the same.

    Raises:
        UsageError: the folder holds another prediction, or cannot be written.
    """
    made = predict(answer)
    kept = _earlier(folder / PREDICTION)
    if kept is not None:
        if not kept.says_the_same_as(made):
            raise UsageError(
                f"{str(folder)!r} holds another prediction, of {kept.date}; a "
                "prediction is never edited, give another --out"
            )
        sys.stderr.write(f"note: the prediction of {kept.date} stands unchanged\n")
        made = kept
    texts = {
        PREDICTION: prediction.dumps(made),
        CONFIG: config_module.dumps(made.run_config()),
    }
    deposit.place(folder, texts)
    return made


def predict(answer: Answer) -> Prediction:
    """The prediction of an answer, dated now."""
    calibration = answer.domain.calibration
    kind = BEST_NUM_ENVS if calibration is None else SCORES
    rule = Rule(kind=kind, min_seeds=answer.request.num_seeds)
    return Prediction(
        date=datetime.datetime.now(datetime.UTC).isoformat(),
        code_version=_code_version(),
        domain=answer.domain.name,
        basis=answer.domain.basis,
        law=LAWS[PRIOR if calibration is None else calibration.model.family],
        calibration=answer.calibration,
        inputs=_inputs(answer),
        null=_null(answer),
        config=answer.config,
        cells=tuple(_cell(answer, i) for i in range(len(answer.configs))),
        best_num_envs=_best_num_envs(answer, rule),
        rule=rule,
        survival_rate_if_right=_survival_rate(answer, rule),
        answer=answer.to_json(),
    )


def _earlier(path: Path) -> Prediction | None:
    try:
        path.stat()
    except (OSError, ValueError):
        return None
    try:
        return prediction.load(path)
    except PredictionError as error:
        raise UsageError(f"{error}; it is not replaced, give another --out") from None


def _inputs(answer: Answer) -> dict[str, object]:
    """What was asked, and hashes of what was read."""
    inputs: dict[str, object] = {
        "budget": answer.request.budget,
        "domain": answer.domain.name,
        "num_seeds": answer.request.num_seeds,
    }
    calibration = answer.domain.calibration
    if calibration is not None:
        inputs["calibration_hash"] = answer.calibration["hash"]
        inputs["table_sha256"] = calibration.table_sha256
    return inputs


def _null(answer: Answer) -> str:
    if answer.domain.calibration is None:
        return "none: no score is predicted"
    return (
        "persistence: every setting scores as the law says it would at the nearest "
        f"trained budget, {answer.evidence.null_budget} transitions"
    )


def _best_num_envs(answer: Answer, rule: Rule) -> tuple[float, ...]:
    if answer.prior is None:
        return ()
    level = bracket.interval_level(rule)
    return prior.best_interval(answer.prior, float(answer.request.budget), level)


def _survival_rate(answer: Answer, rule: Rule) -> float | None:
    if rule.kind != SCORES:
        return None
    index, evidence = answer.choice.index, answer.evidence
    return survival_rate_if_right(
        rule, evidence.predictive[index], evidence.null[index]
    )


def _cell(answer: Answer, index: int) -> Cell:
    evidence, regret = answer.evidence, float(answer.choice.regret[index])
    return Cell(
        num_envs=answer.num_envs(index),
        regret=regret if math.isfinite(regret) else None,
        ddr=None if evidence.ddr is None else float(evidence.ddr[index]),
        mean=None if evidence.mean is None else float(evidence.mean[index]),
        sd=None if evidence.sd is None else float(evidence.sd[index]),
        predictive=evidence.predictive[index] if evidence.predictive else None,
        null=evidence.null[index] if evidence.null else None,
    )


def _code_version() -> str:
    try:
        return importlib.metadata.version("ppo-outer-loop")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
