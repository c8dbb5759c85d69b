"""Programs that look for Horovod, in their published versions: they find Roundelay, and train together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import get_clients
from ranks import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
PROGRAMS = {
    "lightning1": ("lightning_training.py", "1"),
    "lightning2": ("lightning_training.py", "2"),
    "ludwig": ("ludwig_strategy.py",),
}


# Not Lightning 2 with --mpi: where it finds mpi4py, its rank 0 alone splits the communicator.
@pytest.mark.parametrize(
    ("client", "way"),
    [
        ("lightning1", ""),
        ("lightning1", "--mpi"),
        ("lightning2", ""),
        ("ludwig", ""),
        ("ludwig", "--mpi"),
    ],
)
def test_a_client_of_horovods_trains(client: str, way: str) -> None:
    script, *words = PROGRAMS[client]
    path = os.pathsep.join([str(get_clients.get(client)), str(ROOT / "python")])
    command = [sys.executable, "-m", "roundelay.run.cli", "-np", "2", "--as-horovod", *way.split()]
    done = subprocess.run(
        [*command, sys.executable, "-W", "ignore", str(HERE / script), *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "trained" in line) == [
        f"[rank {rank}] trained {rank}" for rank in range(2)
    ]
