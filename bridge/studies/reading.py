"""A study's TOML file as a `Study`; every mistake is one sentence with the file's name.

question = "…"                      claim = "…"           notes = "…" (may be left out)
scientific = ["com"]                nuisance = ["seed"]
[scale.laptop.lqr]                  knobs of every arm of that task at that scale
[arm.NAME]                          its own knobs; "*16" and "/4" scale the task's
    parent, fresh_optimiser, tasks  start from an arm's checkpoint; only these tasks
[arm.NAME.TASK]                     its knobs on one task only
[[effect]]                          see `study.Effect`; `tasks` says it once for many
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bridge.errors import UsageError
from bridge.studies import measures
from bridge.studies.study import COMPARISONS, Cell, Effect, Study
from fullscale.config import ConfigError
from fullscale.presets import PRESETS, preset

FOLDER = Path(__file__).parent
SCALES = ("laptop", "gpu", "cluster")
CHILD_SEED = 500  # an arm that starts from a checkpoint draws numbers of its own
_TOP = (
    "question",
    "claim",
    "notes",
    "scientific",
    "nuisance",
    "scale",
    "arm",
    "effect",
)
_ARM = ("parent", "fresh_optimiser", "tasks")
_EFFECT = (*(f.name for f in fields(Effect) if f.name != "task"), "tasks")


def names() -> tuple[str, ...]:
    """The studies that there are."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def find(name: str) -> Path:
    """The file of a study, by its name or its path.

    Raises:
        UsageError: there is none.
    """
    if name.endswith(".toml"):
        return Path(name)
    if name in names():
        return FOLDER / f"{name}.toml"
    close = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UsageError(f"unknown study {name!r}; {hint}there are {', '.join(names())}")


def load(path: Path, scale: str) -> Study:
    """Read a study at one scale.

    Raises:
        UsageError: the file cannot be read, or says something impossible.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read the study {str(path)!r}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    try:
        return read(path.stem, values, scale)
    except (UsageError, ConfigError) as error:
        raise UsageError(f"{path}: {error}") from None


def read(name: str, values: Mapping[str, Any], scale: str) -> Study:
    """A study from the values of its file. Raises UsageError or ConfigError."""
    _known(values, _TOP, "the study")
    for key in ("question", "claim", "scientific", "scale", "arm", "effect"):
        if key not in values:
            raise UsageError(f"the study lacks the key {key!r}")
    if scale not in values["scale"]:
        there = ", ".join(values["scale"])
        raise UsageError(f"the study has no scale {scale!r}; it has {there}")
    tasks, arms = values["scale"][scale], values["arm"]
    cells = tuple(cell for task in tasks for cell in _cells(task, tasks[task], arms))
    return Study(
        name=name,
        scale=scale,
        question=values["question"],
        claim=values["claim"],
        scientific=tuple(values["scientific"]),
        nuisance=tuple(values.get("nuisance", ("seed",))),
        cells=cells,
        effects=tuple(e for x in values["effect"] for e in _effects(x, tasks, cells)),
        notes=values.get("notes", ""),
    )


def _cells(task: str, base: Mapping, arms: Mapping[str, Mapping]) -> list[Cell]:
    made: dict[str, Cell] = {}
    for name, arm in arms.items():
        if task not in arm.get("tasks", (task,)):
            continue
        own = {k: v for k, v in arm.items() if k not in _ARM and k not in PRESETS}
        own |= arm.get(task, {})
        parent = arm.get("parent", "")
        if parent and parent not in made:
            raise UsageError(
                f"arm {name!r} starts from {parent!r}, which should be an arm above it"
            )
        if parent and "seed" not in own:
            own["seed"] = int(base.get("seed", 0)) + CHILD_SEED
        made[name] = Cell(
            task=task,
            arm=name,
            config=_config(task, base, own),
            parent=parent,
            fresh_optimiser=arm.get("fresh_optimiser", False),
        )
    return list(made.values())


def _config(task: str, base: Mapping, own: Mapping) -> Any:
    common = {k: v for k, v in base.items() if k != "budget"}
    plain = preset(task, base.get("budget", 0), **common)
    scaled = {key: _scaled(plain, key, value) for key, value in own.items()}
    return preset(task, **{"budget": base["budget"], **common, **scaled})


def _scaled(plain: Any, key: str, value: object) -> object:
    """A number of its own, or the task's times or over a number: "*16", "/4"."""
    if not (isinstance(value, str) and value[:1] in ("*", "/")):
        return value
    number = getattr(plain, key, None)
    try:
        by = float(value[1:])
    except ValueError:
        by = 0.0
    if isinstance(number, bool) or not isinstance(number, int | float) or by <= 0:
        raise UsageError(
            f"{key} = {value!r} should scale a number of the task by a positive one; "
            f"the task's is {number!r}"
        )
    return number * by if value[0] == "*" else number / by


def _effects(
    values: Mapping[str, Any], tasks: Mapping, cells: Sequence[Cell]
) -> list[Effect]:
    _known(values, _EFFECT, "an effect")
    for key in ("name", "measure", "comparison", "arms", "predicted", "source"):
        if key not in values:
            raise UsageError(f"an effect lacks the key {key!r}")
    own = {key: value for key, value in values.items() if key != "tasks"}
    own["arms"] = tuple(own["arms"])
    own |= {k: float(own.get(k, d)) for k, d in _ENDS.items()}
    found = []
    for task in values.get("tasks", tuple(tasks)):
        if task in tasks:  # a scale may have fewer tasks than the study
            effect = Effect(task=task, **own)
            _check(effect, cells)
            found.append(effect)
    return found


_ENDS = {"predicted": float("nan"), "low": float("-inf"), "high": float("inf")}


def _check(effect: Effect, cells: Sequence[Cell]) -> None:
    """Refuse what cannot be computed. Raises UsageError."""
    where = f"effect {effect.name!r}"
    if effect.comparison not in COMPARISONS:
        raise UsageError(
            f"{where}: comparison = {effect.comparison!r} should be one of "
            f"{', '.join(COMPARISONS)}"
        )
    measures.check(effect.measure, effect.task)
    there = {cell.arm for cell in cells if cell.task == effect.task}
    for arm in effect.arms:
        if arm not in there:
            raise UsageError(f"{where}: {effect.task} has no arm {arm!r}")
    wanted = {"value": 1, "ratio": 2, "difference": 2}.get(effect.comparison)
    if wanted and len(effect.arms) != wanted:
        raise UsageError(
            f"{where}: a {effect.comparison} is of {wanted} arms, not of "
            f"{len(effect.arms)}"
        )
    if (effect.comparison == "slope") != bool(effect.x):
        raise UsageError(f"{where}: a slope, and nothing else, needs x")
    if effect.comparison == "slope" and len(effect.arms) < 3:
        raise UsageError(f"{where}: a slope needs three arms or more")
    if not effect.low <= effect.predicted <= effect.high or effect.low == effect.high:
        raise UsageError(
            f"{where}: predicted = {effect.predicted:g} should lie between low = "
            f"{effect.low:g} and high = {effect.high:g}"
        )


def _known(values: Mapping, known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"unknown key {key!r} in {where}{hint}")
