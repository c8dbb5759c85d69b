"""A network between hosts that loses, delays and reorders packets: results are right, or ranks name why."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import starts
from programs import several_hosts
from rank_program import Program, program
from tests.rig import Rig, why_not
from tests.rig.bad_wire import INTERFACE

_REASON = why_not() or ("" if Path("/dev/net/tun").exists() else "no /dev/net/tun")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=f"no bad wire: {_REASON}")]


@contextlib.contextmanager
def bad_wire(rig: Rig, folder: Path, *flags: str) -> Iterator[None]:
    """A wire between all nodes, beside the rig's own."""
    ends = []
    try:
        for node in range(rig.nodes):
            words = [
                *rig.on(node),
                sys.executable,
                "-m",
                "tests.rig.bad_wire",
                str(node),
                str(folder),
                *flags,
            ]
            ends.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for end in ends:
            assert end.stdout is not None
            assert end.stdout.readline() == "up\n"
        yield
    finally:
        for end in ends:
            assert end.stdin is not None
            end.stdin.close()
            end.wait()


def results(rig: Rig, folder: Path, work: Program, streams: int) -> list[str]:
    """What each rank printed."""
    where = {"WORLD_SIZE": str(rig.nodes), "MASTER_ADDR": rig.host(0), "MASTER_PORT": "29500"}
    where |= {"ROUNDELAY_INTERFACE": INTERFACE, "ROUNDELAY_STREAMS": str(streams)}
    command = [sys.executable, *work.words(folder)]
    ranks = [([*rig.on(node), *command], {**where, "RANK": str(node)}) for node in range(rig.nodes)]
    outputs = []
    for status, output in starts.run_all(ranks):
        assert status == 0, output
        outputs.append(output)
    return outputs


@pytest.mark.parametrize("streams", [1, 4])
def test_packets_that_are_late_lost_and_out_of_order(streams: int, tmp_path: Path) -> None:
    flags = ["--delay-ms", "3", "--loss", "0.01", "--reorder", "0.2"]
    with Rig(nodes=3, mbit=None) as rig, bad_wire(rig, tmp_path, *flags):
        for output in results(rig, tmp_path, program(several_hosts.use_all_operations, 100_003), streams):
            assert "all right" in output
        packets = [*rig.on(0), "cat", f"/sys/class/net/{INTERFACE}/statistics/tx_packets"]
        assert int(subprocess.check_output(packets)) > 1000  # they went that way


@pytest.mark.nightly
def test_every_third_packet_is_lost(tmp_path: Path) -> None:
    with Rig(nodes=2, mbit=None) as rig, bad_wire(rig, tmp_path, "--loss", "0.3"):
        outputs = results(rig, tmp_path, program(several_hosts.use_all_operations, 1003), 1)
    for rank, output in enumerate(outputs):
        assert "all right" in output or f"rank {1 - rank}" in output, outputs
