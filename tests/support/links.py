"""Check Markdown files: relative links lead somewhere, commands name modules.

`python -m tests.support.links FILE…`
"""

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"python -m ((?:theory|fullscale|bridge|tests)[\w.]*)")


def problems(path: Path) -> list[str]:
    """Dead relative links and commands of modules that do not exist."""
    text = path.read_text(encoding="utf-8")
    links = {link for link in LINK.findall(text) if "://" not in link}
    dead = [f"{path}: dead link {x}" for x in links if not (path.parent / x).exists()]
    modules = set(COMMAND.findall(text))
    missing = [f"{path}: no module {m}" for m in modules if not _exists(m)]
    return sorted(dead + missing)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main(paths: Sequence[str]) -> int:
    found = [problem for path in paths for problem in problems(Path(path))]
    sys.stdout.write("".join(f"{problem}\n" for problem in found))
    sys.stdout.write(f"{len(paths)} files checked, {len(found)} problems\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
