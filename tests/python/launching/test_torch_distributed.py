"""Under roundelayrun a script may start torch.distributed, too: before init() or after, two jobs at once."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

import starts
from hosts_here import local_ssh
from ranks import PROGRAMS, mpirun
from roundelay.run.agent import torch_variables
from tests.rig import Rig, why_not

HOSTS = ("--gloo", "-H", "127.0.0.2:2,127.0.0.3:1")
PROGRAM = str(PROGRAMS / "beside_torch_distributed.py")


def command(when: str, *words: str) -> tuple[list[str], dict[str, str]]:
    return [*starts.ROUNDELAYRUN, *words, sys.executable, PROGRAM, when], {}


MPI = pytest.param(
    ("-np", "2", "--mpi"), id="mpi", marks=pytest.mark.skipif(mpirun() is None, reason="no mpirun")
)


@pytest.mark.parametrize(
    "hosts",
    [pytest.param(("-np", "2"), id="one host"), pytest.param(("-np", "3", *HOSTS), id="two hosts"), MPI],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_torch_distributed_works_beside(tmp_path: Path, hosts: tuple[str, ...], when: str) -> None:
    path = os.pathsep.join([str(local_ssh(tmp_path)), starts.environment()["PATH"]])
    status, output = starts.run(command(when, *hosts)[0], PATH=path)
    assert status == 0, output
    assert output.count("both work") == int(hosts[1]), output


@pytest.mark.skipif(bool(why_not()), reason=f"no rig: {why_not()}")
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
@pytest.mark.slow
def test_mpirun_on_two_hosts(tmp_path: Path) -> None:
    with Rig(nodes=2, mbit=None) as rig:
        mca = f"--mca plm_ssh_agent {rig.commands / 'ssh'} --mca prte_tmpdir_base {tmp_path}"
        flags = ("--mpi", f"--mpi-args={mca}", "-np", "4", "-H", "node0:2,node1:2")
        path = os.pathsep.join([str(rig.commands), starts.environment()["PATH"]])
        status, output = starts.run([*rig.on(0), *command("before", *flags)[0]], PATH=path)
    assert status == 0, output
    assert output.count("both work") == 4, output


def test_a_port_that_is_held_is_for_who_reuses_addresses() -> None:
    where = torch_variables.place("127.0.0.1")
    place = where["MASTER_ADDR"], int(where["MASTER_PORT"])
    with torch_variables.hold(*place):
        with pytest.raises(OSError, match="in use"):
            torch_variables.hold(*place)
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(place)
        with socket.create_server(place) as server:
            assert server.getsockname() == place
    with pytest.raises(OSError, match="assign requested address"):
        torch_variables.hold("192.0.2.1", 31000)


def test_two_jobs_on_a_host() -> None:
    ended = starts.run_all([command(when, "-np", "2") for when in ("before", "after")])
    for status, output in ended:
        assert status == 0, output
        assert output.count("both work") == 2, output


def test_another_port_is_the_users_choice() -> None:
    """Who sets MASTER_PORT anew, as torchrun within a job does, means another store."""
    words, _ = command("after", "-np", "2")
    place = words.index(sys.executable, len(starts.ROUNDELAYRUN))
    status, output = starts.run([*words[:place], "env", f"MASTER_PORT={starts.free_port()}", *words[place:]])
    assert status == 0, output
