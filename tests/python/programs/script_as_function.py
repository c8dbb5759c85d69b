"""Runs a script as a function on two ranks: `script_as_function.py SCRIPT`."""

from __future__ import annotations

import runpy
import sys

import roundelay


def job(path: str) -> None:
    """Runs on each rank."""
    sys.argv = [path]
    runpy.run_path(path)


if __name__ == "__main__":
    roundelay.run(job, (sys.argv[1],), np=2)
