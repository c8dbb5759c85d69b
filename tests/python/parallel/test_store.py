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
from starts import LIMIT_S, ROUNDELAYRUN, TORCHRUN, environment, free_port, run

pytestmark = pytest.mark.slow

PRELUDE = """
import faulthandler, os, sys
faulthandler.dump_traceback_later(80, exit=True)
import torch
import roundelay.torch as hvd
from roundelay import _core
torch.set_num_threads(1)

def say(text):  # in one write: ranks share the pipe
    os.write(1, f"{text}\\n".encode())
"""
TRAIN = """
def train():
    torch.manual_seed(1)
    model = torch.nn.Linear(40, 3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 40), float(hvd.rank() + step))).sum().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach().reshape(1, -1))
    assert all(torch.equal(weights[0], other) for other in weights)

def sums():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
                  torch.int16, torch.int8, torch.uint8):
        for count in (0, 1, 4097):
            got = hvd.allreduce(torch.full((count,), hvd.rank() + 1).to(dtype), op=hvd.Sum)
            assert got.tolist() == [sum(range(1, hvd.size() + 1))] * count, (dtype, count, got)
    assert hvd.allreduce(torch.tensor([hvd.rank() == 1, True]), op=hvd.Min).tolist() == [False, True]
"""
# Without the library's Python side, whose import takes longest: what init() says.
CORE = """
import dataclasses, faulthandler, os
faulthandler.dump_traceback_later(80, exit=True)
import torch
from roundelay._internal import backend
from roundelay import _core

def attempt(**changes):
    path, launch = backend.choose("auto", {**os.environ, **changes})
    try:
        _core.init(path, _core.Rendezvous(**dataclasses.asdict(launch.rendezvous)))
    except RuntimeError as error:
        return f"init: {error}"
    return "init went well"
"""
WITHOUT_MPI = """
assert "libmpi" not in open("/proc/self/maps").read()
"""


def torchrun(np: int, script: Path, *flags: str, **more: str) -> tuple[int, str]:
    launcher = [*TORCHRUN, "--standalone", "--nproc-per-node", str(np)]
    return run([*launcher, *flags, str(script), str(script.parent)], **more)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


class Ranks:
    """Processes that find each other by variables set by hand."""

    def __init__(self, script: Path, size: int, ranks: list[int], port: str, **more: str) -> None:
        self.processes = {
            rank: subprocess.Popen(
                [sys.executable, str(script), str(script.parent)],
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


def test_torchrun_trains_without_mpi(script: Path) -> None:
    body = """
hvd.init()
assert hvd.size() == 2 and hvd.local_rank() == int(os.environ["LOCAL_RANK"])
assert hvd.gloo_enabled() and not hvd.mpi_enabled()
assert _core.transports() == {"bootstrap": "store", "channel": "shm", "fabric": "shm"}
sums()
train()
hvd.shutdown()
for _ in range(3):  # at different speed
    if int(os.environ["RANK"]) == 0:
        torch.ones(300, 300) @ torch.ones(300, 300)
    hvd.init()
    hvd.barrier()
    hvd.shutdown()
# A default group of the user's own, on the same store.
torch.distributed.init_process_group("gloo")
hvd.init()
ones = torch.ones(3)
torch.distributed.all_reduce(ones)
assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), ones)
say(f"done {hvd.rank()}")
"""
    script.write_text(PRELUDE + TRAIN + body + WITHOUT_MPI)
    status, output = torchrun(2, script)
    assert status == 0, output
    assert output.count("done ") == 2


def test_torchrun_over_a_process_group(script: Path) -> None:
    body = """
hvd.init()
assert _core.transports()["fabric"] == "c10d"
sums()
train()
both = hvd.add_process_set([0, 2])
if hvd.rank() != 1:
    assert hvd.allreduce(torch.ones(5000), op=hvd.Sum, process_set=both).tolist() == [2.0] * 5000
hvd.remove_process_set(both)
gathered = hvd.allgather(torch.full((hvd.rank(), 2), hvd.rank()))
assert gathered[:, 0].tolist() == [1, 2, 2]
assert hvd.alltoall(torch.arange(3.0)).tolist() == [float(hvd.rank())] * 3
handles = [hvd.allreduce_async(torch.ones(1 << 18), name=f"n{i}", op=hvd.Sum) for i in range(6)]
assert all(bool((hvd.synchronize(handle) == 3).all()) for handle in handles)
hvd.shutdown()
hvd.init()
sums()
say(f"done {hvd.rank()}")
"""
    script.write_text(PRELUDE + TRAIN + body + WITHOUT_MPI)
    status, output = torchrun(3, script, ROUNDELAY_FABRIC="c10d")
    assert status == 0, output
    assert output.count("done ") == 3


def test_torchrun_starts_a_job_again(script: Path) -> None:
    body = """
hvd.init()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0 and hvd.rank() == 1:
    os._exit(1)
try:
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3
except hvd.HorovodInternalError:
    assert attempt == 0
    raise
say(f"attempt {attempt} done {hvd.rank()}")
"""
    script.write_text(PRELUDE + body)
    status, output = torchrun(2, script, "--max-restarts", "1")
    assert status == 0, output
    assert output.count("attempt 1 done ") == 2
    assert "attempt 0" not in output


def test_the_variables_of_srun(script: Path) -> None:
    script.write_text(PRELUDE + TRAIN + "hvd.init()\nsums()\nsay(f'done {hvd.rank()}')\n" + WITHOUT_MPI)
    for rank, (status, output) in Tasks(script, 2, [0, 1], str(os.getpid())).end().items():
        assert status == 0, output
        assert f"done {rank}" in output


def test_who_does_not_come_is_named(script: Path) -> None:
    body = """
import sys, time
from pathlib import Path
Path(sys.argv[1], os.environ["RANK"]).touch()
while not all(Path(sys.argv[1], rank).exists() for rank in "02"):  # an import may take longer than 5 s
    time.sleep(0.01)
print(attempt())
"""
    script.write_text(CORE + body)
    ended = Ranks(script, 4, [0, 2], free_port(), ROUNDELAY_START_TIMEOUT="5").end()
    for status, output in ended.values():
        assert status == 0, output
        assert "ranks 1, 3 of 4 did not come to init() within 5 s (ROUNDELAY_START_TIMEOUT)" in output


def test_places_where_ranks_cannot_meet(script: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # and never answers
        port = str(taken.getsockname()[1])
        body = f"""
print(attempt(RANK="1", MASTER_PORT="{free_port()}"))
print(attempt(RANK="1", MASTER_PORT="{port}"))
print(attempt(RANK="0", MASTER_PORT="{port}"))
print(attempt(RANK="0", MASTER_ADDR="192.0.2.1"))
print(attempt(RANK="1", MASTER_ADDR="no.such.host.invalid"))
"""
        script.write_text(CORE + body)
        status, output = Ranks(script, 2, [0], port, ROUNDELAY_START_TIMEOUT="1.5").end()[0]
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


def test_a_local_rank_that_we_count_differently(script: Path) -> None:
    script.write_text(CORE + "print(attempt())\n")
    for status, output in Ranks(script, 2, [0, 1], free_port(), LOCAL_RANK="0").end().values():
        assert status == 0, output
        assert "init failed on rank 1: the launcher says LOCAL_RANK=0, but this is rank 1 of 2" in output
        assert "ROUNDELAY_NODE_ID" in output


def test_a_rank_that_dies_within_a_process_group(script: Path) -> None:
    body = """
import signal
hvd.init()
hvd.allreduce(torch.ones(8))
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    hvd.allreduce(torch.ones(1 << 20))
except hvd.HorovodInternalError as error:
    print("noticed:", error)
"""
    script.write_text(PRELUDE + body)
    ended = Ranks(script, 2, [0, 1], free_port(), ROUNDELAY_FABRIC="c10d").end()
    assert ended[1][0] == -signal.SIGKILL
    status, output = ended[0]
    assert status == 0, output
    assert "rank 1" in output.partition("noticed:")[2]


def test_roundelayrun_without_mpi(script: Path) -> None:
    script.write_text(PRELUDE + TRAIN + "hvd.init()\nsums()\nsay(f'done {hvd.rank()}')\n" + WITHOUT_MPI)
    launcher = [*ROUNDELAYRUN, "-np", "2", "--gloo"]
    # Left by a launcher around this one.
    stale = {"RANK": "7", "TORCHELASTIC_USE_AGENT_STORE": "True", "PMIX_RANK": "3", "MASTER_PORT": "1"}
    status, output = run([*launcher, sys.executable, str(script)], **stale)
    assert status == 0, output
    assert "[rank 0] done 0" in output
    assert "[rank 1] done 1" in output


def test_two_jobs_that_share_a_port(script: Path) -> None:
    """The second is told so, rank by rank; the first goes on."""
    body = """
import sys, time
from pathlib import Path
over = Path(sys.argv[1], "over")
print(attempt(), flush=True)
if "FIRST" in os.environ:
    Path(sys.argv[1], "up." + os.environ["RANK"]).touch()
    while not over.exists():
        time.sleep(0.05)
    _core.shutdown()
    print(attempt())
"""
    script.write_text(CORE + body)
    port = free_port()
    first = Ranks(script, 2, [0, 1], port, FIRST="1")
    try:
        wait_until(lambda: len(list(script.parent.glob("up.*"))) == 2, LIMIT_S, "not all are up")
        second = Ranks(script, 2, [0, 1], port, ROUNDELAY_START_TIMEOUT="4").end()
    finally:
        (script.parent / "over").touch()
        ended = first.end()
    for status, output in ended.values():
        assert status == 0, output
        assert output.count("init went well") == 2, output
    assert (
        f"cannot listen on 127.0.0.1:{port}: address already in use; choose another MASTER_PORT"
        in second[0][1]
    )
    assert "rank 0 of 2 did not come to init() within 4 s (ROUNDELAY_START_TIMEOUT)" in second[1][1]
