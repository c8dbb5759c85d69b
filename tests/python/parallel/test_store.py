"""Ranks that meet without MPI: torchrun, variables set by hand, srun's variables, roundelayrun --gloo."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from in_time import wait_until
from programs import store
from rank_program import Program, program
from starts import LIMIT_S, ROUNDELAYRUN, TORCHRUN, environment, free_port, run

pytestmark = pytest.mark.slow


def torchrun(np: int, folder: Path, work: Program, *flags: str, **more: str) -> tuple[int, str]:
    launcher = [*TORCHRUN, "--standalone", "--nproc-per-node", str(np)]
    return run([*launcher, *flags, *work.words(folder)], **more)


class Ranks:
    """Processes that find each other by variables set by hand."""

    def __init__(
        self, folder: Path, work: Program, size: int, ranks: list[int], port: str, **more: str
    ) -> None:
        self.processes = {
            rank: subprocess.Popen(
                [sys.executable, *work.words(folder)],
                env=environment(**{**self.place(rank, size, port), **more}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in ranks
        }

    def place(self, rank: int, size: int, port: str) -> dict[str, str]:
        numbers = {"RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
        return {**{name: str(number) for name, number in numbers.items()}, "MASTER_ADDR": "127.0.0.1"}

    def end(self) -> dict[int, tuple[int, str]]:
        """Each rank's exit status and output."""
        try:
            output = {
                rank: process.communicate(timeout=LIMIT_S)[0] for rank, process in self.processes.items()
            }
        finally:
            for process in self.processes.values():
                process.kill()
        return {rank: (self.processes[rank].returncode, output[rank]) for rank in output}


class Tasks(Ranks):
    """As srun starts them without PMIx."""

    def place(self, rank: int, size: int, port: str) -> dict[str, str]:
        numbers = {"JOB_ID": port, "STEP_ID": 0, "PROCID": rank, "LOCALID": rank, "STEP_NUM_TASKS": size}
        place = {f"SLURM_{name}": str(number) for name, number in numbers.items()}
        return {**place, "SLURM_STEP_NODELIST": "localhost"}


def test_torchrun_trains_without_mpi(tmp_path: Path) -> None:
    status, output = torchrun(2, tmp_path, program(store.train_and_init_again))
    assert status == 0, output
    assert output.count("done ") == 2


@pytest.mark.parametrize("fabric", ["tcp", "c10d"])
def test_torchrun_without_shared_memory(fabric: str, tmp_path: Path) -> None:
    work = program(store.work_without_shared_memory)
    status, output = torchrun(3, tmp_path, work, ROUNDELAY_FABRIC=fabric)
    assert status == 0, output
    assert output.count("done ") == 3


def test_torchrun_starts_a_job_again(tmp_path: Path) -> None:
    work = program(store.fail_at_the_first_attempt)
    status, output = torchrun(2, tmp_path, work, "--max-restarts", "1")
    assert status == 0, output
    assert output.count("attempt 1 done ") == 2
    assert "attempt 0" not in output


def test_the_variables_of_srun(tmp_path: Path) -> None:
    ranks = Tasks(tmp_path, program(store.add), 2, [0, 1], str(os.getpid()))
    for rank, (status, output) in ranks.end().items():
        assert status == 0, output
        assert f"done {rank}" in output


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    work = program(store.try_to_meet_together, [0, 2])
    ended = Ranks(tmp_path, work, 4, [0, 2], free_port(), ROUNDELAY_START_TIMEOUT="5").end()
    for status, output in ended.values():
        assert status == 0, output
        assert "ranks 1, 3 of 4 did not come to init() within 5 s (ROUNDELAY_START_TIMEOUT)" in output


def test_places_where_ranks_cannot_meet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # and never answers
        port = str(taken.getsockname()[1])
        places = [
            {"RANK": "1", "MASTER_PORT": free_port()},
            {"RANK": "1", "MASTER_PORT": port},
            {"RANK": "0", "MASTER_PORT": port},
            {"RANK": "0", "MASTER_ADDR": "192.0.2.1"},
            {"RANK": "1", "MASTER_ADDR": "no.such.host.invalid"},
        ]
        work = program(store.try_places, places)
        status, output = Ranks(tmp_path, work, 2, [0], port, ROUNDELAY_START_TIMEOUT="1.5").end()[0]
    assert status == 0, output
    said = [line for line in output.splitlines() if line.startswith("init: ")]
    expected = [
        r"nobody listens on 127\.0\.0\.1:\d+ \(127\.0\.0\.1: connection refused\).* Set MASTER_ADDR to",
        rf"no store of PyTorch answers on 127\.0\.0\.1:{port}: .*; another program has the port, or ",
        rf"cannot listen on 127\.0\.0\.1:{port}: address already in use; choose another MASTER_PORT",
        r"cannot listen on 192\.0\.2\.1:\d+: cannot assign requested address; set MASTER_ADDR to",
        # Some name servers do not answer within the start timeout.
        r"nobody listens on no\.such\.host\.invalid:\d+ "
        r'\(("no\.such\.host\.invalid" has no address|'
        r'the lookup of "no\.such\.host\.invalid" takes too long)',
    ]
    assert len(said) == len(expected), output
    for line, pattern in zip(said, expected, strict=True):
        assert re.search(pattern, line), line


def test_a_local_rank_that_we_count_differently(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, program(store.try_to_meet), 2, [0, 1], free_port(), LOCAL_RANK="0")
    for status, output in ranks.end().values():
        assert status == 0, output
        assert "init failed on rank 1: the launcher says LOCAL_RANK=0, but this is rank 1 of 2" in output
        assert "ROUNDELAY_NODE_ID" in output


@pytest.mark.parametrize("fabric", ["tcp", "c10d"])
def test_a_rank_that_dies_without_shared_memory(fabric: str, tmp_path: Path) -> None:
    work = program(store.rank_1_is_killed)
    ended = Ranks(tmp_path, work, 2, [0, 1], free_port(), ROUNDELAY_FABRIC=fabric).end()
    assert ended[1][0] == -signal.SIGKILL
    status, output = ended[0]
    assert status == 0, output
    assert "rank 1" in output.partition("noticed:")[2]


def test_roundelayrun_without_mpi(tmp_path: Path) -> None:
    launcher = [*ROUNDELAYRUN, "-np", "2", "--gloo"]
    # Left by a launcher around this one.
    stale = {"RANK": "7", "TORCHELASTIC_USE_AGENT_STORE": "True", "PMIX_RANK": "3", "MASTER_PORT": "1"}
    status, output = run([*launcher, sys.executable, *program(store.add).words(tmp_path)], **stale)
    assert status == 0, output
    assert "[rank 0] done 0" in output
    assert "[rank 1] done 1" in output


def test_two_jobs_that_share_a_port(tmp_path: Path) -> None:
    """The second is told so, rank by rank; the first goes on."""
    port = free_port()
    first = Ranks(tmp_path, program(store.try_to_meet_and_stay, first=True), 2, [0, 1], port)
    try:
        wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, LIMIT_S, "not all are up")
        other = program(store.try_to_meet_and_stay, first=False)
        second = Ranks(tmp_path, other, 2, [0, 1], port, ROUNDELAY_START_TIMEOUT="4").end()
    finally:
        (tmp_path / "over").touch()
        ended = first.end()
    for status, output in ended.values():
        assert status == 0, output
        assert output.count("init went well") == 2, output
    assert (
        f"cannot listen on 127.0.0.1:{port}: address already in use; choose another MASTER_PORT"
        in second[0][1]
    )
    assert "rank 0 of 2 did not come to init() within 4 s (ROUNDELAY_START_TIMEOUT)" in second[1][1]
