"""Installs packages that the checks lack into build/gpu-site, from a folder of wheels, without a network.

`python -m benchmarks.gpu.wheels [--wheels DIR]` prints one line and exits with 2 if something is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = _ROOT / "tools" / "requirements-gpu.txt"
SITE = _ROOT / "build" / "gpu-site"  # gpu_check.sh puts it on PYTHONPATH


def _is_there(name: str) -> bool:
    if shutil.which(name):  # cmake or ninja, from anywhere
        return True
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def missing(requirements: str) -> list[str]:
    """Return the packages, one per line, that this Python lacks."""
    lines = (line.partition("#")[0].strip() for line in requirements.splitlines())
    return [line for line in lines if line and not _is_there(line)]


def _install(names: Sequence[str]) -> bool:
    if not names:
        return True
    # The list has all dependencies. If pip resolved them, it would ask for wheels of installed packages.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    return subprocess.call([*command, "--upgrade", "--target", str(SITE), *names]) == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--wheels", type=Path)
    folder = parser.parse_known_args(argv)[0].wheels
    names = missing(REQUIREMENTS.read_text())
    if folder is not None:
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder.resolve()))
        os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if names and folder is None:
        said = f"{' '.join(names)}: install them, or put their wheels into a folder and give --wheels DIR"
        print(f"gpu_check: missing in {sys.executable}: {said}", file=sys.stderr)
        return 2
    done = _install(names) and subprocess.call([sys.executable, str(_ROOT / "tools" / "get_catch2.py")]) == 0
    return 0 if done else 2


if __name__ == "__main__":
    sys.exit(main())
