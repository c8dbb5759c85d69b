"""Two hosts on this machine: what the rig gives, and how many bytes an allreduce puts on the wire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import two_nodes
from in_time import wait_until
from ranks import PROGRAMS, ROOT, mpirun
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")


def _runs(argument: str) -> bool:
    """Whether a process with this argument runs anywhere on the machine."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", argument.encode()]:
            return True
    return False


def test_hosts_reach_each_other_by_name_and_count_bytes() -> None:
    with Rig(nodes=3, mbit=None) as rig:
        names = [subprocess.check_output([*rig.on(node), "hostname"], text=True) for node in range(3)]
        assert names == ["node0\n", "node1\n", "node2\n"]
        program = "import socket, sys; s = socket.create_server(('', 7000)); print('up', flush=True); "
        program += "c = s.accept()[0]; print(sum(iter(lambda: len(c.recv(65536)), 0)))"
        with subprocess.Popen(
            [*rig.on(2), sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            before = rig.sent_bytes(0)
            send = "import socket; socket.create_connection(('node2', 7000)).sendall(bytes(1 << 20))"
            subprocess.run([*rig.on(0), sys.executable, "-c", send], check=True)
            assert server.stdout.readline() == f"{1 << 20}\n"
        assert 1 << 20 <= rig.sent_bytes(0) - before < 1.1 * (1 << 20)
    assert not Path("/sys/class/net/switch").exists()  # nor was it ever: the rig's network is its own


def test_connections_do_as_linux_does_whatever_the_machine_does() -> None:
    chosen = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control"  # as if the machine had chosen it
    server = (
        "import socket; listener = socket.create_server(('', 7000)); print('up', flush=True); "
        "end = listener.accept()[0]; print(end.getsockopt(6, socket.TCP_CONGESTION, 5)); end.close()"
    )
    client = (
        "import socket; end = socket.create_connection(('node1', 7000)); "
        "print(end.getsockopt(6, socket.TCP_CONGESTION, 5)); end.recv(1)"
    )
    with Rig(nodes=2, first_retransmission_s=0.1) as rig:
        for node in range(2):
            subprocess.run([*rig.on(node), "sh", "-c", chosen], check=True)
        with subprocess.Popen(
            [*rig.on(1), sys.executable, "-c", server], stdout=subprocess.PIPE, text=True
        ) as accepting:
            assert accepting.stdout is not None
            assert accepting.stdout.readline() == "up\n"
            there = subprocess.check_output([*rig.on(0), sys.executable, "-c", client], text=True)
            assert [there, accepting.stdout.readline()] == 2 * ["b'cubic'\n"]


def test_a_rig_ends_with_its_owner(tmp_path: Path) -> None:
    argument = f"61.{os.getpid()}"
    owner = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "rig_owner.py"), argument],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        assert _runs(argument)
        owner.send_signal(signal.SIGKILL)
        owner.stdout.close()
    wait_until(lambda: not _runs(argument), 60, "what ran in the rig outlives its owner")


@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_an_allreduce_sends_no_more_than_it_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("roundelay._core")
    two_nodes.main(["--quick", "--output", str(tmp_path)])
    assert "fabric shm+mpi" in capsys.readouterr().out
    (cell,) = json.loads((tmp_path / "two_nodes.json").read_text())["cells"]
    assert cell["bytes"] == 25 << 20
    assert cell["sent"]["stream"] >= 25 << 20  # 2 (m - 1) / m of it
    assert cell["sent_ratio"] <= 1.02
