"""The test process is stricter than production: four devices, no silent promotion."""

import os

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


@pytest.fixture(scope="session", autouse=True)
def _compile_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that several test processes need are compiled once."""
    folder = os.environ.get("PPO_OUTER_LOOP_CACHE")
    if folder is None:
        folder = str(tmp_path_factory.mktemp("jax-cache"))
        os.environ["PPO_OUTER_LOOP_CACHE"] = folder
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How likely it is that statistical assertions of this run failed falsely."""
    if statistical.DECLARED:
        terminalreporter.write_line(
            f"{len(statistical.DECLARED)} statistical assertions declared "
            f"false-failure rates of {statistical.total_declared_rate():.2g} in all"
        )
