"""Links between nodes, and between racks, that pause for 3 s: jobs go on, and their results are right."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import starts
from programs import pausing_links
from rank_program import program
from ranks import mpirun
from roundelay.run.modes.mpi import exported
from tests.rig import RackRig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
]
SLOTS = (2, 1, 1, 2)
PAUSE_S = 3.0
RANKS = sum(SLOTS)


def _mpi(rig: RackRig, words: list[str], variables: dict[str, str]) -> tuple[int, str]:
    exports = exported(starts.environment(**variables), one_machine=False)
    return starts.run(rig.mpirun(str(mpirun()), SLOTS, words, exports), **variables)


def _store(rig: RackRig, words: list[str], variables: dict[str, str]) -> tuple[int, str]:
    hosts = ",".join(f"{rig.host(node)}:{count}" for node, count in enumerate(SLOTS))
    launcher = [*rig.on(0), *starts.ROUNDELAYRUN, "--gloo", "-np", str(RANKS), "-H", hosts]
    path = os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])
    return starts.run([*launcher, *words], **{**variables, "PATH": path})


def wait_for_steps(folder: Path, kind: str, ended: Future[tuple[int, str]]) -> None:
    """Returns when each rank has ended two operations since the call: one of them has begun since."""
    for _ in range(2):
        begin = time.time()
        while sum(path.stat().st_mtime > begin for path in folder.glob(f"step.{kind}.*")) < RANKS:
            assert not ended.done(), ended.result()
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("start", "between"),
    [
        pytest.param(_mpi, "mpi", marks=pytest.mark.skipif(mpirun() is None, reason="no mpirun"), id="mpi"),
        pytest.param(_store, "tcp", id="tcp"),
    ],
)
def test_links_that_pause(
    tmp_path: Path, start: Callable[[RackRig, list[str], dict[str, str]], tuple[int, str]], between: str
) -> None:
    words = [sys.executable, *program(pausing_links.move_until_enough, 0.9 * PAUSE_S).words(tmp_path)]
    with RackRig(racks=2, nodes=2, mbit=400, uplink_mbit=200) as rig, ThreadPoolExecutor(1) as pool:
        variables = {"ROUNDELAY_TOPOLOGY": rig.topology, "ROUNDELAY_FACTORS": "2,2,2"}
        ended = pool.submit(start, rig, words, variables)
        for kind in pausing_links.KINDS:
            wait_for_steps(tmp_path, kind, ended)
            rig.interrupt(1, PAUSE_S)
            wait_for_steps(tmp_path, kind, ended)
            rig.interrupt_rack(1, PAUSE_S)
            wait_for_steps(tmp_path, kind, ended)
            (tmp_path / f"enough.{kind}").touch()
        status, output = ended.result()
    assert status == 0, output
    for kind in pausing_links.KINDS:
        paused = [int((tmp_path / f"long.{kind}.{rank}").read_text()) for rank in range(RANKS)]
        assert min(paused) >= 2, (kind, paused)
    fabrics = {(tmp_path / f"went_on.{rank}").read_text() for rank in range(RANKS)}
    assert f"shm+{between}" in fabrics
