"""torchrun restarts all workers after a loss; they go on from the last commit, which was in memory alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from elastic_jobs import MOST_S, PROGRAMS, ROOT
from in_time import wait_until


def expected(steps: int) -> torch.Tensor:
    """The weights that one process has after so many steps."""
    weight = torch.zeros(4, 8, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1 / 64, momentum=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        (weight @ torch.full((8,), step % 7, dtype=torch.float64)).sum().backward()
        optimizer.step()
    return weight.detach()


def test_restarted_workers_go_on_from_the_last_commit() -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run(
        [sys.executable, *command, str(PROGRAMS / "elastic_restarts.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(line["attempt"], line["begin"]) for line in lines] == [(1, 20), (1, 20)]
    for line in lines:
        weights = torch.tensor(line["weights"], dtype=torch.float64)
        torch.testing.assert_close(weights, expected(40), rtol=0, atol=0)
    # Who holds the commits ends with the agent.
    agent = str(lines[0]["agent"])
    wait_until(lambda: not _keepers(agent), MOST_S, "a keeper is left")


def _keepers(agent: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
        if any(word.endswith("restarts/keeper.py") for word in words) and words[-2] == agent:
            found.append(process.name)
    return found
