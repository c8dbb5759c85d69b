"""One script on several hosts: namespaces with addresses, names and shared memory of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import starts
from in_time import expect_within, three_tries
from launched import SCRIPT, check, results
from programs import several_hosts
from rank_program import Program, program
from ranks import mpirun
from roundelay.run.modes.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")]
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
    pytest.importorskip("roundelay.run.starter.several_hosts", reason="no hosts without MPI in this version")
    slots = (1, 2)
    hosts = ",".join(f"{rig.host(node)}:{count}" for node, count in enumerate(slots))
    launcher = [*rig.on(0), *starts.ROUNDELAYRUN, "--gloo", "-np", str(sum(slots)), "-H", hosts]
    path = os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])
    status, output = starts.run([*launcher, sys.executable, SCRIPT, str(tmp_path)], PATH=path)
    assert status == 0, output
    check_hosts(tmp_path, slots, "store")


# --- one rank on each host, by variables set by hand ---


def on_each(rig: Rig, folder: Path, work: Program) -> list[tuple[Sequence[str], dict[str, str]]]:
    """The commands, with their variables, of one rank on each host."""
    where = {"WORLD_SIZE": str(rig.nodes), "MASTER_ADDR": rig.host(0), "MASTER_PORT": "29500"}
    # nsenter stops when its child does, and would not go on with it.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    command = [*shell, sys.executable, *work.words(folder)]
    return [([*rig.on(node), *command], {**where, "RANK": str(node)}) for node in range(rig.nodes)]


def test_interfaces(rig: Rig, tmp_path: Path) -> None:
    expected = [
        r'init: init failed on rank 0: network interface "wlan0" is not there .* eth0',
        r"init: .*reached over docker0\? ROUNDELAY_INTERFACE",
        "met",
    ]
    for _, output in starts.run_all(on_each(rig, tmp_path, program(several_hosts.try_interfaces))):
        said = [line for line in output.splitlines() if line.startswith(("init:", "met"))]
        assert len(said) == len(expected), output
        for line, pattern in zip(said, expected, strict=True):
            assert re.match(pattern, line), output


def test_an_unreachable_host(tmp_path: Path) -> None:
    with Rig(nodes=3, mbit=None) as rig:
        rig.cut(2)
        ended = starts.run_all(on_each(rig, tmp_path, program(several_hosts.meet_within_5_s)))
    for _, output in ended[:2]:
        assert "rank 2 of 3 did not come to init() within 5 s (ROUNDELAY_START_TIMEOUT)" in output
    assert re.search(r"init: nobody listens on node0:29500 \(10\.77\.0\.1: ", ended[2][1]), ended[2][1]


@contextlib.contextmanager
def at_work(rig: Rig, folder: Path, work: Program) -> Iterator[Future[list[tuple[int, str]]]]:
    """Runs it on each host; begins when all of them are in the midst of it."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(starts.run_all, on_each(rig, folder, work))
        while len(list(folder.glob("runs.*"))) < rig.nodes:
            assert not ended.done(), ended.result()
            time.sleep(0.05)
        yield ended


NOTICED_S = 6.0  # a host that is lost, by TCP, whatever the ranks were at


@three_tries
@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("waits", [False, True], ids=["busy", "waiting"])
def test_a_host_that_is_lost(tmp_path: Path, lost: int, waits: bool) -> None:
    work = program(several_hosts.reduce_until_a_host_is_lost)
    if waits:
        work = program(several_hosts.wait_until_a_host_is_lost, lost)
    with Rig(nodes=3, mbit=None) as rig, at_work(rig, tmp_path, work) as ended:
        rig.cut(lost)
        lost_at = time.time()
        rig.lose(lost)
        outputs = [output for _, output in ended.result()]
    for rank in {0, 1, 2} - {lost}:
        said = re.search(r"at ([\d.]+): .*", outputs[rank])
        assert said is not None, outputs[rank]
        assert f"rank {lost} " in said[0]
        expect_within(NOTICED_S, float(said[1]) - lost_at, said[0])


def wait_for_steps(folder: Path, nodes: int, ended: Future[list[tuple[int, str]]]) -> None:
    """Returns when each rank has ended a step since the call."""
    begin = time.time()
    while sum(path.stat().st_mtime > begin for path in folder.glob("step.*")) < nodes:
        assert not ended.done(), ended.result()
        time.sleep(0.05)


def test_a_link_that_comes_back_and_a_process_that_goes_on(tmp_path: Path) -> None:
    work = program(several_hosts.reduce_until_enough)
    with (
        Rig(nodes=3, mbit=None, first_retransmission_s=0.35) as rig,
        at_work(rig, tmp_path, work) as ended,
    ):
        for node in (0, 2):
            rig.interrupt(node, 3.0)  # TCP without a bound sends again after 2.5 s and then after 5.3 s
            wait_for_steps(tmp_path, rig.nodes, ended)
        pid = int((tmp_path / "runs.1").read_text())
        rig.signal(1, pid, signal.SIGSTOP)
        time.sleep(NOTICED_S + 2)
        rig.signal(1, pid, signal.SIGCONT)
        (tmp_path / "enough").touch()
        for status, output in ended.result():
            assert status == 0, output
            assert "went on" in output
