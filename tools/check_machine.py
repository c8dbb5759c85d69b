"""Tests whether the machine can build, before anything is downloaded.

Runs under the machine's own Python (no packages): `python3 tools/check_machine.py`.
Exits with 1 and prints one line with the cure for each missing thing.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def missing() -> "list[str]":
    """Return one line for each missing thing: its name and the command that installs it."""
    lines = []
    if sys.version_info < (3, 10):
        lines.append(f"Python {VERSION} is too old (3.10 or newer): make PYTHON=/path/to/a/newer/python3")
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        lines.append(f"Python {VERSION} has no venv module: apt-get install python3-venv")
    return lines + missing_to_compile()


def missing_to_compile() -> "list[str]":
    """Return such lines for what a compilation needs."""
    lines = []
    compilers = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    if not any(shutil.which(name) for name in compilers if name):
        lines.append("No C++ compiler found: apt-get install g++")
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        lines.append(f"Python {VERSION} has no headers (Python.h): apt-get install python3-dev")
    return lines


if __name__ == "__main__":
    found = missing()
    for line in found:
        print(f"roundelay: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)
