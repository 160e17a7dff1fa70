"""What an answer costs: no heavy module, and less than a second."""

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = ("jax", "scipy", "xarray", "matplotlib", "rich")
CHECK = """
import sys
{first}
from bridge import predict
code = predict.main(["--budget", "1e12", "--json"])
found = {{name.split(".")[0] for name in sys.modules}} & set({heavy!r})
sys.stderr.write(" ".join(sorted(found)))
sys.exit(code)
"""


def loaded(first: str) -> str:
    script = CHECK.format(first=first, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["budget"] == 10**12
    return done.stderr


def test_predict_loads_nothing_heavy() -> None:
    assert loaded("") == ""


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert loaded("import scipy") == "scipy"


def test_an_answer_takes_less_than_a_second() -> None:
    """CPU time, least of five: wall time would judge the machine's other work."""
    command = [sys.executable, "-m", "bridge.predict", "--budget", "1e12", "--json"]
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds.append(used)
    assert min(seconds) < 1.0
