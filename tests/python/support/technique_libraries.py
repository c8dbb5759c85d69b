"""Techniques of libraries: negate, which is an example, and cyclic, the plainest one with a state.

The texts are those that users write. ``cyclic`` sends one of ``parts`` parts of each bucket in a step.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from mpi_jobs import ROOT
from roundelay import _core

EXAMPLE = ROOT / "examples" / "technique" / "negate.cc"


def _text(name: str) -> str:
    library = Path(__file__).with_name(f"{name}.so")
    assert library.exists(), f"no {library.name}: cmake --build build/dev --target test_techniques"
    return f"{library}:{name}"


NEGATE, CYCLIC = _text("negate"), _text("cyclic")


def canonical(text: str) -> str:
    """Returns the form that errors, reports and states have, with the library's fingerprint."""
    return _core.technique_text(text)


def include_dir() -> Path:
    """Returns the folder that ``roundelay --include-dir`` shows."""
    command = [sys.executable, "-m", "roundelay.cli", "--include-dir"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def compile_library(source: str | Path, library: Path, *flags: str) -> Path:
    """Compiles a library as the documentation says, from a file or from a text; returns its path."""
    if isinstance(source, str):
        file = library.with_suffix(".cc")
        file.write_text(source)
        source = file
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    options = ("-std=c++20", "-O1", "-shared", "-fPIC", f"-I{include_dir()}", *flags)
    run = subprocess.run(
        [*compiler, *options, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return library
