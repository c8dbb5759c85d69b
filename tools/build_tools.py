"""Tells which tools the build of the package lacks, each with the command that brings it.

Imports nothing that may be missing. tools/build_backend.py asks before each build.
"""

import ast
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import check_machine

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
PROGRAMS = ("cmake", "ninja")  # a package brings one, and so may the system


def requirements(pyproject: str) -> list[str]:
    """Return `requires` of [build-system]. A list of strings in TOML is also one in Python."""
    match = re.search(r"^requires = (\[.*?\])$", pyproject, re.MULTILINE | re.DOTALL)
    assert match is not None, "pyproject.toml: no build-system.requires"
    return list(ast.literal_eval(match.group(1)))


def is_here(requirement: str) -> bool:
    """Tell whether a package is installed, and new enough. A version that is named with == may be another."""
    name, _, least = requirement.partition(">=")
    name = name.partition("==")[0]
    if name in PROGRAMS and shutil.which(name):
        return True
    try:
        return numbers(version(name)) >= numbers(least)
    except PackageNotFoundError:
        return False


def numbers(text: str) -> list[int]:
    """Return the numbers of a version, for comparisons."""
    return [int(number) for number in re.findall(r"\d+", text)]


def missing() -> list[str]:
    """Return one line for each kind of missing thing, with the command that brings it."""
    if sys.version_info < (3, 10):  # no command brings the packages to it
        return [f"Python {check_machine.VERSION} is too old: install with Python 3.10 or newer"]
    lines = check_machine.missing_to_compile()
    packages = [line for line in requirements(PYPROJECT.read_text()) if not is_here(line)]
    if packages:
        install = shlex.join([sys.executable, "-m", "pip", "install", *packages])
        lines.append(f"the build needs {', '.join(packages)}: {install}")
    return lines
