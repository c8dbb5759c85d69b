"""roundelayrun's ranks have the variables of horovodrun's, by which libraries see that they are ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranks import PROGRAMS, ROOT
from roundelay.run.agent import agent
from roundelay.run.agent.horovod_variables import MARK, NAMES, of_rank

# Each rank writes which variables it has, and of which of them Roundelay says that they have no effect.
PROGRAM = str(PROGRAMS / "horovod_variables.py")


def cross(rank: int, local_rank: int, local_size: int, by_host: str, size: int = 6) -> tuple[str, str] | None:
    found = of_rank(rank, size, local_rank, local_size, by_host, "mpi")
    if "HOROVOD_CROSS_RANK" not in found:
        assert "HOROVOD_CROSS_SIZE" not in found
        return None
    return found["HOROVOD_CROSS_RANK"], found["HOROVOD_CROSS_SIZE"]


def test_cross_rank_counts_the_hosts_that_have_the_local_rank() -> None:
    assert cross(0, 0, 2, "2,1,3") == ("0", "3")
    assert cross(2, 0, 1, "2,1,3") == ("1", "3")
    assert cross(4, 1, 3, "2,1,3") == ("1", "2")
    assert cross(5, 2, 3, "2,1,3") == ("0", "1")
    assert cross(5, 5, 6, "") == ("0", "1")  # all ranks are on this host


def test_no_number_is_guessed() -> None:
    assert cross(0, 0, 2, "") is None  # a scheduler knows the hosts
    assert cross(1, 0, 3, "3,3") is None  # --map-by node: rank 1 is the first of the second host
    assert cross(0, 0, 2, "2,2") is None  # not the hosts of this job: they have 4 ranks
    assert of_rank(3, None, None, None, "", "mpi") == {
        "HOROVOD_RANK": "3",
        "HOROVOD_HOSTNAME": socket.gethostname(),
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        MARK: "1",
    }


@pytest.mark.parametrize(
    ("variables", "numbers"),
    [
        ("ROUNDELAY_RUN_RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "1 2 1 2 0 1 gloo"),
        (
            "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
            "OMPI_COMM_WORLD_LOCAL_SIZE=2 ROUNDELAY_RUN_RANKS_BY_HOST=2,2",
            "2 4 0 2 1 2 mpi",
        ),
        ("PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3", "1 3 1 3 0 1 mpi"),
    ],
)
def test_the_agent_reads_every_launchers_numbers(
    variables: str, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(one.split("=") for one in variables.split()))
    found = agent.expected(int(numbers[0]))
    order = [name for name in NAMES if name not in ("HOROVOD_HOSTNAME", "HOROVOD_CPU_OPERATIONS")]
    assert " ".join(found[name] for name in order) == numbers
    torchruns = [found.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    if numbers.endswith("mpi"):  # without an MPI the starter sets them
        assert torchruns == numbers.split()[:4]
    else:
        assert torchruns == [None] * 4


@pytest.mark.starts_jobs
@pytest.mark.parametrize("way", ["", "--mpi"])
def test_ranks_have_them_also_within_another_job(way: str, tmp_path: Path) -> None:
    """Of the job's own variables no line says that they have no effect; of the user's one does."""
    outer = dict.fromkeys(NAMES, "7") | {MARK: "1"}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ROUNDELAY_")},
        **outer,
        "HOROVOD_CCL_CACHE": "0",
        "PYTHONPATH": str(ROOT / "python"),
    }
    command = [sys.executable, "-m", "roundelay.run.cli", "-np", "2", *way.split()]
    done = subprocess.run(
        [*command, sys.executable, PROGRAM, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    backend = "mpi" if way else "gloo"
    for rank in range(2):
        said: dict[str, Any] = json.loads((tmp_path / str(rank)).read_text())
        numbers = [rank, 2, rank, 2, 0, 1, socket.gethostname(), backend, backend]
        assert said["set"] == {
            **dict(zip(NAMES, map(str, numbers), strict=True)),
            "HOROVOD_CCL_CACHE": "0",
        }
        assert [text.partition(" ")[0] for text in said["no effect"]] == ["HOROVOD_CCL_CACHE"]
