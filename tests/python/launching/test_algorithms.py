"""One file with an algorithm gives the same bits under every launcher and fabric, and after a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import starts
from ranks import PROGRAMS, mpirun

pytestmark = pytest.mark.slow

SCRIPT = str(PROGRAMS / "one_algorithm.py")
# Of four ranks, each two believe that they are alone on a node.
TWO_NODES = 'ROUNDELAY_NODE_ID=$((RANK / 2)) LOCAL_RANK=$((RANK % 2)) exec "$0" "$@"'
# The launcher, and the fabric that it gives the job.
WAYS = {
    "roundelayrun": ([*starts.ROUNDELAYRUN, "-np", "2", "--gloo", sys.executable], "shm"),
    "torchrun": ([*starts.TORCHRUN, "--standalone", "--nproc-per-node", "3"], "tcp"),
    "torchrun, 4 ranks": ([*starts.TORCHRUN, "--standalone", "--nproc-per-node", "4"], "tcp"),
    "srun": ([sys.executable, str(Path(__file__).parent / "srun.py"), "-n", "2", sys.executable], "shm"),
    "function": ([sys.executable, str(PROGRAMS / "script_as_function.py")], "shm"),
    "two nodes": (
        [*starts.ROUNDELAYRUN, "-np", "4", "--gloo", "sh", "-c", TWO_NODES, sys.executable],
        "shm+tcp",
    ),
    "mpirun": ([*starts.MPIRUN, "-np", "4", sys.executable], "mpi"),
}


@pytest.fixture(scope="module")
def alone() -> str:
    """The digest of one process."""
    status, output = starts.run([sys.executable, SCRIPT])
    assert status == 0, output
    return output.split()[-1]


def _as_parameter(way: str) -> Any:
    """Folder parallel has the other fabrics, under mpirun."""
    marks: dict[str, Any] = {"torchrun": (), "srun": (), "function": (), "two nodes": ()}
    return pytest.param(way, marks=marks.get(way, pytest.mark.nightly))


@pytest.mark.parametrize("way", [_as_parameter(way) for way in WAYS])
def test_same_bits(way: str, alone: str) -> None:
    launcher, fabric = WAYS[way]
    if way == "mpirun" and mpirun() is None:
        pytest.skip("no mpirun")
    named = {} if "+" in fabric else {"ROUNDELAY_FABRIC": fabric}
    named |= {"TRANSPORT": "pipelined_tree"} if fabric.endswith("tcp") else {}
    status, output = starts.run([*launcher, SCRIPT], **named)
    assert status == 0, output
    assert f"fabric {fabric} digest {alone}" in output


@pytest.mark.nightly
def test_a_rank_that_is_killed(alone: str, tmp_path: Path) -> None:
    """The others end with an error. A run on another number of ranks goes on from the checkpoint."""
    file = tmp_path / "run.pt"
    command = [*starts.ROUNDELAYRUN, "-np", "2", "--gloo", sys.executable, SCRIPT, str(file)]
    status, output = starts.run(command, DIES_AT="5")
    assert status != 0
    assert "rank 1" in output
    assert file.exists()
    status, output = starts.run([sys.executable, SCRIPT, str(file)])
    assert status == 0, output
    assert output.split()[-1] == alone
