"""A host that is lost under mpirun, which ends the others in ways of its own: it is the one to name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import starts
from in_time import wait_until
from launch_job import LIMIT_S
from programs import ending
from rank_program import program
from ranks import mpirun
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
    pytest.mark.skipif(mpirun() is None, reason="no mpirun"),
]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("lose", "the connection to its host broke: (no answer|Connection timed out)"),
        ("end", r"killed by SIGKILL \(signal 9\)"),
    ],
)
def test_the_lost_host_is_named(tmp_path: Path, how: str, said: str) -> None:
    words = program(ending.ends_as_who_has_lost_a_peer).words(tmp_path)
    with Rig(nodes=2, mbit=None) as rig:
        # Every rig has the same pids: what a killed mpirun has left in /tmp would be in this one's way.
        settings = {"plm_ssh_agent": rig.commands / "ssh", "prte_tmpdir_base": tmp_path}
        mca = " ".join(f"--mca {name} {value}" for name, value in settings.items())
        flags = ["--mpi", f"--mpi-args={mca}", "-np", "2", "-H", "node0:1,node1:1"]
        job = subprocess.Popen(
            [*rig.on(0), *starts.ROUNDELAYRUN, *flags, sys.executable, *words],
            env=starts.environment(PATH=os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with job:
            files = [tmp_path / f"ready.{rank}" for rank in range(2)]
            wait_until(lambda: all(map(Path.exists, files)) or job.poll() is not None, LIMIT_S, "not all run")
            getattr(rig, how)(1)
            (tmp_path / "lost").touch()
            output, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 128 + signal.SIGKILL, output
    assert re.search(rf"rank 1 \(pid \d+ on node1\) failed first: {said}", output), output
