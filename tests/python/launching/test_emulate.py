"""`roundelay emulate`: a job on nodes of this machine, whose links are as slow as asked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from emulation import Emulation
from roundelay.emulate import why_not

_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=f"no emulated network: {_REASON}")

SIZE = 4_000_000  # bytes; each node sends at least as many: 2 (m - 1) / m of them
RATE = 40e6
REDUCES = f"""
import json, socket, torch
import roundelay.torch as hvd
hvd.init()
values = torch.ones({SIZE // 4})
hvd.barrier()
begin = time.monotonic()
total = hvd.allreduce(values, op=hvd.Sum)
seconds = time.monotonic() - begin
assert bool((total == 4).all())
said = dict(host=socket.gethostname(), local=hvd.local_size(), nodes=hvd.cross_size(), seconds=seconds)
said |= dict(files=os.getcwd(), strategy=os.environ["ROUNDELAY_STRATEGY"])
(here / f"said.{{rank}}").write_text(json.dumps(said))
hvd.shutdown()
"""
MEETS = """
while len(list(here.parent.glob("*/ready.*"))) < 4: time.sleep(0.02)
(here / f"hosts.{rank}").write_text(Path("/etc/hosts").read_text())
"""
# The peer accepts at once, and the program waits for that: the first packet has gone there, and one back.
CONNECTS = """
import socket
port = 7000
if rank == 1:
    with socket.create_server(("", port)) as server:
        (here / "listens").touch()
        server.accept()
else:
    while not (here / "listens").exists(): time.sleep(0.02)
    begin = time.monotonic()
    socket.create_connection(("node1", port)).close()
    (here / "seconds").write_text(str(time.monotonic() - begin))
"""


def test_a_job(tmp_path: Path) -> None:
    timeline = tmp_path / "job.json"
    flags = ["--nodes", "2", "--ranks-per-node", "2", "--rate", f"{RATE / 1e6:.0f}mbit"]
    passed_on = ["--timeline-filename", str(timeline), "--strategy", "csc"]
    with Emulation(tmp_path / "job", REDUCES, *flags, *passed_on) as emulation:
        status, _, err = emulation.finish()
    assert status == 0, err
    said = [json.loads((tmp_path / "job" / f"said.{rank}").read_text()) for rank in range(4)]
    assert [one["host"] for one in said] == ["node0", "node0", "node1", "node1"]
    assert [(one["local"], one["nodes"], one["strategy"]) for one in said] == [(2, 2, "csc")] * 4
    assert {one["files"] for one in said} == {str(Path.cwd())}
    # What a burst and a queue swallow is little; a machine's own links take a hundredth of the time.
    assert min(one["seconds"] for one in said) >= 0.8 * SIZE * 8 / RATE
    assert json.loads(timeline.read_text())
    line = "roundelay emulate: made node0 ... node1, 2 ranks each; 40 Mbit/s in each direction; "
    assert err.startswith(line)
    assert err.count("roundelay emulate:") == 1


def test_two_at_a_time(tmp_path: Path) -> None:
    with (
        Emulation(tmp_path / "one", MEETS, "--nodes", "2") as one,
        Emulation(tmp_path / "other", MEETS, "--nodes", "2") as other,
    ):
        for emulation in (one, other):
            status, _, err = emulation.finish()
            assert status == 0, err
    known = "127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.2 node1\n"
    assert [file.read_text() for file in tmp_path.glob("*/hosts.*")] == [known] * 4


def _kernel_delays() -> bool:
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_delay(tmp_path: Path) -> None:
    """It is there, or a line says why it cannot be."""
    with Emulation(tmp_path / "job", CONNECTS, "--nodes", "2", "--delay", "50ms") as emulation:
        status, _, err = emulation.finish()
    if _kernel_delays():
        assert status == 0, err
        assert float((tmp_path / "job" / "seconds").read_text()) >= 2 * 0.05
        assert "50 ms from node to node" in err
    else:
        assert status == 1
        why = "this kernel cannot delay packets: load the module sch_netem (modprobe sch_netem; on Fedora the"
        assert err.startswith(f"roundelay emulate: error: no emulated network on this machine: {why}")
        assert err.count("\n") == 1
