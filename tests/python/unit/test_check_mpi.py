"""tools/check_mpi.sh says why a machine cannot have a root of its own, and is no failure there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ranks import ROOT


def _machine(folder: Path, commands: dict[str, str]) -> dict[str, str]:
    """Return an environment in which these commands do something else."""
    for name, program in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ({"id": "echo 1000"}, "only the user root may mount"),
        ({"id": "echo 0", "unshare": "exit 1", "apt-get": "exit 1"}, "this machine forbids mount namespaces"),
    ],
)
def test_a_skipped_check_says_why(tmp_path: Path, commands: dict[str, str], reason: str) -> None:
    env = _machine(tmp_path, commands)
    words = [str(ROOT / "tools" / "check_mpi.sh"), "openmpi", "_mpi"]
    run = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, f"=== mpi-check of openmpi SKIPPED: {reason}\n")
