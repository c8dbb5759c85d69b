"""Runs the launcher of `roundelay.run`: `roundelayrun` with a function for a program.

Runs as a script, `start.py PAYLOAD RESULTS CALLER flags ... python worker.py ...`: two descriptors that it
inherited, its parent's pid, and roundelayrun's command line. It ends its job when its parent dies.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[3])  # this very Roundelay, wherever the caller found it


def main() -> int:
    """Runs the script; returns its exit status."""
    from roundelay.run import cli
    from roundelay.run.launcher.result_pipe import ResultPipe
    from roundelay.run.system.processes import die_with_parent

    payload, results, caller = map(int, sys.argv[1:4])
    for signum in (signal.SIGINT, signal.SIGTERM):  # only the caller sends them, whatever its shell ignores
        signal.signal(signum, signal.SIG_DFL)
    die_with_parent(signal.SIGTERM)
    if os.getppid() != caller:
        return 1
    return cli.main(sys.argv[4:], prog="roundelay.run", result_pipe=ResultPipe(payload, results))


if __name__ == "__main__":
    sys.exit(main())
