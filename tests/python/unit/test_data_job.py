"""The processes of one job on one node find each other's cache, and those of other jobs do not."""

from __future__ import annotations

import os

import pytest

import roundelay.torch as hvd
from roundelay.torch.data import job

TORCHRUN = {
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "host",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "run",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-host-7@1"}
MPICH = {"PMI_SIZE": "4"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
LAUNCHERS = {
    "torchrun": (TORCHRUN, "RANK", {"MASTER_PORT": "29501"}),
    "torchrun, restarted": (TORCHRUN, "RANK", {"TORCHELASTIC_RESTART_COUNT": "1"}),
    "Open MPI": (OPEN_MPI, "OMPI_COMM_WORLD_RANK", {"PMIX_NAMESPACE": "prterun-host-8@1"}),
    "MPICH": (MPICH, "PMI_RANK", {"PMI_JOBID": "another"}),
    "Slurm": (SLURM, "SLURM_PROCID", {"SLURM_STEP_ID": "2"}),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_one_launch(launcher: str) -> None:
    variables, rank, change = LAUNCHERS[launcher]
    members = [job.this_process({**variables, rank: str(number)}) for number in range(4)]
    assert [member.rank for member in members] == [0, 1, 2, 3]
    assert len({(member.job, member.node) for member in members}) == 1
    other = job.this_process({**variables, rank: "0", **change})
    assert other.job != members[0].job
    assert other.node == members[0].node


def test_a_worker_that_comes_later_is_of_the_same_elastic_job() -> None:
    def worker(number: int, launcher: str) -> job.Member:
        return job.this_process({"ROUNDELAY_RUN_WORKER": f"{number} 127.0.0.1 {launcher}"})

    first, later, other = worker(0, "host:7"), worker(3, "host:7"), worker(3, "host:8")
    assert (first.rank, later.rank) == (0, 3)
    assert (first.job, first.node) == (later.job, later.node)
    assert other.job != later.job


def test_a_process_without_launcher_is_a_job() -> None:
    alone = job.this_process({})
    assert alone == job.this_process({})
    assert alone.rank == 0
    assert str(os.getpid()) in alone.job
    assert alone.words == f"rank 0 (process {os.getpid()})"


def test_a_node_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUNDELAY_NODE_ID", "left half")
    assert job.node_name() == "left half"


def test_jobs_of_some_ranks_of_one_launch() -> None:
    before = job.this_process(TORCHRUN | {"RANK": "0"}).job
    jobs = []
    for ranks in (None, [0]):
        hvd.init(comm=ranks)
        jobs.append(job.this_process(TORCHRUN | {"RANK": "0"}).job)
        hvd.shutdown()
    assert len(set(jobs)) == 2
    assert jobs[0] == before  # a cache may be made before init()
