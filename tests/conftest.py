"""The test process is stricter than production: four devices, no silent promotion."""

import math
import os
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import jax
import pytest

from tests.support import statistical

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")

# How fast data are generated depends on who else uses the machine: no test's business.
COMMON = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
PROFILES = {
    "ci": {**COMMON, "derandomize": True, "database": None, "print_blob": True},
    "dev": {**COMMON, "max_examples": 25},
    "deep": {**COMMON, "max_examples": 2000},
}
for name, settings in PROFILES.items():
    hypothesis.settings.register_profile(name, **settings)  # type: ignore[arg-type]
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


DECLARED = pytest.StashKey[list[tuple[int, float]]]()  # of each process: number, rate


def pytest_configure(config: pytest.Config) -> None:
    """Programs that several test processes need are compiled once, in one folder."""
    config.stash[DECLARED] = []
    if "PPO_OUTER_LOOP_CACHE" not in os.environ:
        scratch = tempfile.TemporaryDirectory(prefix="ppo-outer-loop-tests-")
        config.add_cleanup(scratch.cleanup)
        os.environ["PPO_OUTER_LOOP_CACHE"] = scratch.name
    jax.config.update("jax_compilation_cache_dir", os.environ["PPO_OUTER_LOOP_CACHE"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints the summary what was declared in this one."""
    own = (len(statistical.DECLARED), statistical.total_declared_rate())
    session.config.stash[DECLARED].append(own)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["declared"] = own


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive it."""
    if "declared" in getattr(node, "workeroutput", {}):
        node.config.stash[DECLARED].append(node.workeroutput["declared"])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How likely it is that statistical assertions of this run failed falsely."""
    number = sum(number for number, _ in config.stash[DECLARED])
    if number:
        total = math.fsum(rate for _, rate in config.stash[DECLARED])
        terminalreporter.write_line(
            f"{number} statistical assertions declared "
            f"false-failure rates of {total:.2g} in all"
        )
