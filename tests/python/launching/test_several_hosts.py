"""One script on several hosts: namespaces with addresses, names and shared memory of their own."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import starts
from launched import SCRIPT, check, results
from ranks import mpirun
from roundelay.run.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")
NO_MPI = pytest.mark.skipif(mpirun() is None, reason="no mpirun")
SLOTS = (2, 1, 3)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Three hosts that all have a docker0 of the same address, too."""
    with Rig(nodes=3, mbit=None, dead_end=True) as made:
        yield made


def check_hosts(folder: Path, slots: Sequence[int], bootstrap: str) -> None:
    said = results(folder)
    check(said, slots)
    hosts = [f"node{node}" for node, count in enumerate(slots) for _ in range(count)]
    assert [one["host"] for one in said] == hosts
    assert {one["bootstrap"] for one in said} == {bootstrap}


@NO_MPI
def test_mpirun(rig: Rig, tmp_path: Path) -> None:
    program = [sys.executable, SCRIPT, str(tmp_path)]
    exports = exported(starts.environment(), one_machine=False)
    status, output = starts.run(rig.mpirun(str(mpirun()), SLOTS, program, exports))
    assert status == 0, output
    check_hosts(tmp_path, SLOTS, "mpi")


def test_torchrun_on_each_host(rig: Rig, tmp_path: Path) -> None:
    slots = (2, 1)
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{rig.host(0)}:29400", "--rdzv-id", "job"]
    nodes = [
        [*rig.on(node), *starts.TORCHRUN, "--nnodes", str(len(slots)), "--nproc-per-node", str(count), *meet]
        for node, count in enumerate(slots)
    ]
    for status, output in starts.run_all([([*node, SCRIPT, str(tmp_path)], {}) for node in nodes]):
        assert status == 0, output
    check_hosts(tmp_path, slots, "store")


def test_roundelayrun_by_ssh(rig: Rig, tmp_path: Path) -> None:
    pytest.importorskip("roundelay.run.several", reason="no hosts without MPI in this version")
    slots = (1, 2)
    hosts = ",".join(f"{rig.host(node)}:{count}" for node, count in enumerate(slots))
    launcher = [*rig.on(0), *starts.ROUNDELAYRUN, "--gloo", "-np", str(sum(slots)), "-H", hosts]
    path = os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])
    status, output = starts.run([*launcher, sys.executable, SCRIPT, str(tmp_path)], PATH=path)
    assert status == 0, output
    check_hosts(tmp_path, slots, "store")


# --- one rank on each host, by variables set by hand ---

# Without the library's Python side, whose import takes longest. Ranks begin at the same time.
CORE = """
import dataclasses, faulthandler, os, sys, time
from pathlib import Path
faulthandler.dump_traceback_later(80, exit=True)
import torch
from roundelay import _backend, _core

here = Path(sys.argv[1])
(here / f"here.{os.environ['RANK']}").touch()
while len(list(here.glob("here.*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)

def attempt(interface="", patience="30"):
    os.environ.update(ROUNDELAY_INTERFACE=interface, ROUNDELAY_START_TIMEOUT=patience)
    path, launch = _backend.choose("auto")
    try:
        _core.init(path, _core.Rendezvous(**dataclasses.asdict(launch.rendezvous)))
    except (RuntimeError, ValueError) as error:
        print("init:", error, flush=True)
    else:
        print("met", flush=True)
"""
WORK = """
import roundelay.torch as hvd
attempt()
try:
    for step in range(10**9):
        assert hvd.allreduce(torch.ones(1000), op=hvd.Sum)[0] == hvd.size()
        if step == 20:
            (here / f"runs.{hvd.rank()}").touch()
except hvd.HorovodInternalError as error:
    print(f"after {time.time() - (here / 'lost').stat().st_mtime:.1f} s:", error, flush=True)
"""


def on_each(rig: Rig, program: Path, **more: str) -> list[tuple[Sequence[str], dict[str, str]]]:
    """The commands, with their variables, of one rank on each host."""
    where = {"WORLD_SIZE": str(rig.nodes), "MASTER_ADDR": rig.host(0), "MASTER_PORT": "29500", **more}
    command = [sys.executable, str(program), str(program.parent)]
    return [([*rig.on(node), *command], {**where, "RANK": str(node)}) for node in range(rig.nodes)]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_interfaces(rig: Rig, program: Path) -> None:
    program.write_text(
        CORE + "attempt('wlan0')\nattempt('docker0', '5')\nattempt('eth0')\n_core.shutdown()\n"
    )
    expected = [
        r'init: init failed on rank 0: network interface "wlan0" is not there .* eth0',
        r"init: .*reached over docker0\? ROUNDELAY_INTERFACE",
        "met",
    ]
    for _, output in starts.run_all(on_each(rig, program)):
        said = [line for line in output.splitlines() if line.startswith(("init:", "met"))]
        assert len(said) == len(expected), output
        for line, pattern in zip(said, expected, strict=True):
            assert re.match(pattern, line), output


def test_an_unreachable_host(program: Path) -> None:
    program.write_text(CORE + "attempt(patience='5')\n")
    with Rig(nodes=3, mbit=None) as rig:
        rig.cut(2)
        ended = starts.run_all(on_each(rig, program))
    for _, output in ended[:2]:
        assert "rank 2 of 3 did not come to init() within 5 s (ROUNDELAY_START_TIMEOUT)" in output
    assert re.search(r"init: nobody listens on node0:29500 \(10\.77\.0\.1: ", ended[2][1]), ended[2][1]


# Until TCP takes a host for lost: it is the one to tell where no collective waits, with a shorter timeout.
TCP_NOTICES_S = 30


@pytest.mark.parametrize("lost", [0, 2])
def test_a_host_that_is_lost(program: Path, lost: int) -> None:
    program.write_text(CORE + WORK)
    folder = program.parent
    with Rig(nodes=3, mbit=None) as rig, ThreadPoolExecutor(1) as pool:
        ended = pool.submit(starts.run_all, on_each(rig, program, ROUNDELAY_PROGRESS_TIMEOUT="3"))
        while len(list(folder.glob("runs.*"))) < rig.nodes:
            assert not ended.done(), ended.result()
            time.sleep(0.05)
        (folder / "lost").touch()
        rig.lose(lost)
        outputs = [output for _, output in ended.result()]
    for rank in {0, 1, 2} - {lost}:
        said = re.search(r"after ([\d.]+) s: .*", outputs[rank])
        assert said is not None, outputs[rank]
        assert f"rank {lost} " in said[0]
        by_tcp = f"connection to rank {lost} was lost" in said[0]
        assert float(said[1]) < 10 + (TCP_NOTICES_S if by_tcp else 0)
