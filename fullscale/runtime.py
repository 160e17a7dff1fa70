"""Setting up JAX before its backend starts: quiet, cached, with the wanted devices.

Call `set_up` before anything that creates an array. The persistent compile cache is on
by default; `PPO_OUTER_LOOP_CACHE` names another folder for it, and an empty value
switches it off.
"""

import contextlib
import math
import os
from pathlib import Path

CACHE_VARIABLE = "PPO_OUTER_LOOP_CACHE"


def set_up(cpu_devices: int | None = None) -> None:
    """Quiet logs, compile cache, and on a CPU so many devices (threads of their own).

    Args:
        cpu_devices: devices to split the CPU into; None leaves JAX's default of one.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if cpu_devices == len(os.sched_getaffinity(0)) > 1:
        # Every core is a device of its own: threads of one would only disturb another.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    import jax

    if cpu_devices is not None:
        # In a process where JAX already runs, its devices stay as they are.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cpu_devices)
    default = Path.home() / ".cache" / "ppo-outer-loop" / "jax"
    folder = os.environ.get(CACHE_VARIABLE, str(default))
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def cpu_devices(num_seeds: int, wanted: int | None) -> int:
    """How many devices to split a CPU into: `wanted`, or cores that share the seeds.

    Seeds need no communication. Devices of one seed add up gradients at every step,
    which on a CPU costs more than it saves (0.4 ms for a small network).
    """
    return wanted or math.gcd(num_seeds, len(os.sched_getaffinity(0)))
