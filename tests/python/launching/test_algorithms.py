"""One file with an algorithm gives the same bits under every launcher and fabric, and after a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import starts
from ranks import mpirun

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys
import torch
from roundelay import _core
from roundelay.algorithms import Algorithm, run, say
from roundelay.algorithms.trees import digest

seed = torch.Generator().manual_seed(0)
rows = torch.randn(999, 7, generator=seed) * 10.0 ** torch.randint(-4, 5, (999, 7), generator=seed)

def evaluate(state, shard):
    if "DIES_AT" in os.environ and state["step"] == int(os.environ["DIES_AT"]) and shard is rows_of_last:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sum": (shard * state["weights"]).sum(0), "rows": len(shard)}

def update(state, total):
    return {"weights": state["weights"] - total["sum"] / total["rows"], "step": state["step"] + 1}

class Rows(list):
    def __getitem__(self, which):
        global rows_of_last
        found = rows[which]
        rows_of_last = found if which.stop == len(rows) else None
        return found

first = {"weights": torch.ones(7), "step": 0}
data = Rows(range(len(rows)))
file = sys.argv[1] if len(sys.argv) > 1 else None
by = os.environ.get("TRANSPORT")
result = run(Algorithm(first, evaluate, update), data, 8, checkpoint=file, checkpoint_every=1, transport=by)
say("fabric", _core.transports()["fabric"], "digest", digest(result.state).hex())
"""
# Runs the script as a function on two ranks.
FUNCTION = """
import runpy, sys
import roundelay

def job(path):
    sys.argv = [path]
    runpy.run_path(path)

roundelay.run(job, (sys.argv[1],), np=2)
"""
# Of four ranks, each two believe that they are alone on a node.
TWO_NODES = 'ROUNDELAY_NODE_ID=$((RANK / 2)) LOCAL_RANK=$((RANK % 2)) exec "$0" "$@"'
# The launcher, and the fabric that it gives the job.
WAYS = {
    "roundelayrun": ([*starts.ROUNDELAYRUN, "-np", "2", "--gloo", sys.executable], "shm"),
    "torchrun": ([*starts.TORCHRUN, "--standalone", "--nproc-per-node", "3"], "c10d"),
    "torchrun, 4 ranks": ([*starts.TORCHRUN, "--standalone", "--nproc-per-node", "4"], "c10d"),
    "srun": ([sys.executable, str(Path(__file__).parent / "srun.py"), "-n", "2", sys.executable], "shm"),
    "function": ([sys.executable, "-c", FUNCTION], "shm"),
    "two nodes": (
        [*starts.ROUNDELAYRUN, "-np", "4", "--gloo", "sh", "-c", TWO_NODES, sys.executable],
        "shm+c10d",
    ),
    "mpirun": ([*starts.MPIRUN, "-np", "4", sys.executable], "mpi"),
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("script") / "algorithm.py"
    file.write_text(SCRIPT)
    return file


@pytest.fixture(scope="module")
def alone(script: Path) -> str:
    """The digest of one process."""
    status, output = starts.run([sys.executable, str(script)])
    assert status == 0, output
    return output.split()[-1]


def _as_parameter(way: str) -> Any:
    """Folder parallel has the other fabrics, under mpirun."""
    marks: dict[str, Any] = {"torchrun": (), "srun": (), "function": (), "two nodes": ()}
    return pytest.param(way, marks=marks.get(way, pytest.mark.nightly))


@pytest.mark.parametrize("way", [_as_parameter(way) for way in WAYS])
def test_same_bits(way: str, script: Path, alone: str) -> None:
    launcher, fabric = WAYS[way]
    if way == "mpirun" and mpirun() is None:
        pytest.skip("no mpirun")
    named = {} if "+" in fabric else {"ROUNDELAY_FABRIC": fabric}
    named |= {"TRANSPORT": "pipelined_tree"} if fabric.endswith("c10d") else {}
    status, output = starts.run([*launcher, str(script)], **named)
    assert status == 0, output
    assert f"fabric {fabric} digest {alone}" in output


@pytest.mark.nightly
def test_a_rank_that_is_killed(script: Path, alone: str, tmp_path: Path) -> None:
    """The others end with an error. A run on another number of ranks goes on from the checkpoint."""
    file = tmp_path / "run.pt"
    command = [*starts.ROUNDELAYRUN, "-np", "2", "--gloo", sys.executable, str(script), str(file)]
    status, output = starts.run(command, DIES_AT="5")
    assert status != 0
    assert "rank 1" in output
    assert file.exists()
    status, output = starts.run([sys.executable, str(script), str(file)])
    assert status == 0, output
    assert output.split()[-1] == alone
