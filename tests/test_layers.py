"""Imports point one way, and what must run without JAX does."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "theory": {"theory"},
    "fullscale": {"fullscale"},
    "bridge": {"theory", "fullscale", "bridge"},
}
HEAVY = ("jax", "flax", "optax", "gymnax", "orbax")
WITHOUT_JAX = (
    "theory", "theory.outer", "theory.laws", "theory.bandit", "theory.lqr",
    "theory.simulate", "theory.table", "theory.calibration", "theory.nulls",
    "theory.scores", "theory.plateau", "theory.detection", "theory.noise",
    "theory.exact_loops", "theory.labelled", "theory.figures",
    "theory.design_study.__main__",
    "theory.fit.__main__", "fullscale.config", "fullscale.presets",
    "fullscale.storage", "fullscale.train", "bridge.predict", "bridge.configure",
    "bridge.judge", "bridge.calibrate", "bridge.forecasts", "bridge.study",
    "bridge.studies.report",
)  # fmt: skip


def imported(source: str) -> set[str]:
    """Our packages that a module's source imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[0] for name in names} & set(ALLOWED)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_point_one_way(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        extra = imported(path.read_text(encoding="utf-8")) - ALLOWED[package]
        assert not extra, f"{path.relative_to(ROOT)} imports {extra}"


def heavy_after(statement: str) -> list[str]:
    """Which heavy modules a fresh interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return ast.literal_eval(out.stdout.splitlines()[-1])


def test_what_does_not_train_runs_without_jax() -> None:
    assert heavy_after("import " + ", ".join(WITHOUT_JAX)) == []


def test_the_checks_can_fail() -> None:
    assert imported("from bridge import predict\nimport theory.laws") == {
        "bridge",
        "theory",
    }
    assert "jax" in heavy_after("import fullscale.rollout")


def test_packages_import_nothing_heavy_themselves() -> None:
    code = "import sys, theory, fullscale, bridge; print('scipy' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "False"
