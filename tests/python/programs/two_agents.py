"""Starts rank 0's agent, and rank 1's when the gate opens: `two_agents.py AGENT GATE SCRIPT SCRIPT`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def agent(rank: int, script: str) -> subprocess.Popen[bytes]:
    """Starts the agent of a rank, whose program is a shell script."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", sys.argv[1], "--", "sh", "-c", script],
        env={**os.environ, "ROUNDELAY_RUN_RANK": str(rank)},
    )


first = agent(0, sys.argv[3])
Path(sys.argv[2]).read_text()
second = agent(1, sys.argv[4])
sys.exit(first.wait() or second.wait())
