"""Racks with narrow uplinks: the ratios of benchmarks.levels, the table's rows, and the racks themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import allreduce_sizes, levels
from benchmarks.table import algorithms, nodes
from benchmarks.table import levels as row
from ranks import mpirun
from tests.rig import RackRig, why_not

_REASON = why_not()
NEEDS_RIG = pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")
MIB = 1 << 20

CELL = {
    "bytes": 25 * MIB,
    "seconds": {
        "flat ring": [1.8],
        "two levels": [2.0],
        "two levels, ring": [1.5],
        "three levels": [1.0],
        "streams": [0.8],
    },
    "sent": {
        "flat ring": 46.0,
        "two levels": 52.0,
        "two levels, ring": 39.0,
        "three levels": 26.52,
        "streams": 26.0,
    },
    "cpu": {
        "flat ring": [0.1],
        "two levels": [0.1],
        "two levels, ring": [0.1],
        "three levels": [0.025 * 1.048576],
        "streams": [0.05],
    },
    "others": [0.0],
}


def test_bytes_are_compared_with_the_formula_by_what_streams_need_for_theirs() -> None:
    assert levels.bytes_ratio(CELL, levels.TWO) == pytest.approx(1.0)
    assert levels.bytes_ratio(CELL, levels.RING) == pytest.approx(1.0)
    assert levels.bytes_ratio(CELL, levels.THREE) == pytest.approx(1.02)
    assert levels.rows([CELL])[3] == ["25 MiB", "three levels", "27 B", "1.020x", "1 s", "1.25x", "1.00 ns/B"]


def test_the_row_levels_compares_three_levels_with_the_rest() -> None:
    time, sent = row.results({"cells": [CELL]})
    assert time.work == row.TIME
    assert {peer.name: peer.ratio and peer.ratio.value for peer in time.peers} == {
        "two levels": 2.0,
        "two levels, ring": 1.5,
        "flat ring": 1.8,
    }
    assert time.over_floor is not None
    assert time.over_floor.value == pytest.approx(1.25)
    assert sent.work == row.BYTES
    assert sent.over_floor is not None
    assert sent.over_floor.value == pytest.approx(1.02)
    assert row.results({"missing": "no root"})[0].why == "no root"


def test_the_row_algorithms_has_the_default_beside_all() -> None:
    seconds = {"auto": [1.0], "ring": [3.0], "pairwise": [1.0]}
    (one,) = algorithms.results({"cells": [{"bytes": 256, "seconds": seconds, "others": [0.0]}]})
    assert one.own is not None
    assert one.own.value == 1.0
    assert {peer.name: peer.cost.value for peer in one.peers} == {"ring": 3.0, "pairwise": 1.0}
    assert one.floor is None


def test_fast_nodes_have_time_and_cpu_time_beside_peers() -> None:
    seconds = {"roundelay": [2.0], "gloo": [4.0], "mpi": [3.0], "stream": [1.0]}
    cpu = {"roundelay": [1.0], "gloo": [1.5], "mpi": [0.5], "stream": [0.25]}
    cell = {"bytes": 25 * MIB, "seconds": seconds, "cpu": cpu, "others": [0.0]}
    time, work = nodes.fast_results({"cells": [cell]})
    assert [peer.cost.value for peer in time.peers] == [4.0, 3.0]
    assert time.over_floor is not None
    assert time.over_floor.value == 2.0
    assert [peer.ratio and peer.ratio.value for peer in work.peers] == [1.5, 0.5]


def test_a_crossover_is_interpolated_and_compared_with_the_model() -> None:
    times = {"recursive_doubling": {256: 1.0, 512: 3.0}, "ring": {256: 2.0, 512: 2.0}}
    assert allreduce_sizes.crossover(times, "recursive_doubling", "ring") == 384.0
    assert allreduce_sizes.crossover(times, "ring", "recursive_doubling") is None
    model = allreduce_sizes.model(times, 8, 1.0, 256.0)
    assert model["ring"][256] == 14 + 1.75
    assert model["recursive_doubling"][512] == 3 + 6
    assert allreduce_sizes.rows(times, times) == [["recursive_doubling", "ring", "384 B", "384 B", "1.00x"]]


@NEEDS_RIG
def test_only_what_leaves_a_rack_passes_its_uplink() -> None:
    program = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); "
    program += "c = s.accept()[0]; print(sum(iter(lambda: len(c.recv(65536)), 0)))"
    with RackRig(racks=2, nodes=2, mbit=1000, uplink_mbit=250) as rig:
        assert rig.topology == "rack=2,node=2"
        assert [rig.rack_of(node) for node in range(4)] == [0, 0, 1, 1]
        sent = []
        for target in (1, 2):  # from node 0 within its rack, and to the other
            listen = [*rig.on(target), sys.executable, "-c", program]
            with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                assert server.stdout.readline() == "up\n"
                before = _counts(rig)
                to = (
                    f"import socket; socket.create_connection(('node{target}', 7000)).sendall(bytes(1 << 20))"
                )
                subprocess.run([*rig.on(0), sys.executable, "-c", to], check=True)
                assert server.stdout.readline() == f"{1 << 20}\n"
            sent.append([after - old for after, old in zip(_counts(rig), before, strict=True)])
        assert sent[0][0] < 10_000  # neighbour discovery
        assert 1 << 20 <= sent[1][0] < 1.1 * (1 << 20)
        assert sent[1][1] < 0.1 * (1 << 20)  # acknowledgements


def _counts(rig: RackRig) -> list[int]:
    """Read the uplinks' counters where the nodes read them."""
    texts = (subprocess.check_output([*rig.on(3), "cat", str(path)]) for path in rig.uplink_counters)
    return [int(text) for text in texts]


@pytest.mark.nightly
@NEEDS_RIG
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_an_uplink_carries_what_the_formula_says(tmp_path: Path) -> None:
    pytest.importorskip("roundelay._core")
    levels.main(["--quick", "--output", str(tmp_path)])
    (cell,) = json.loads((tmp_path / "levels.json").read_text())["cells"]
    for way in levels.FORMULA:
        assert levels.bytes_ratio(cell, way) == pytest.approx(1.0, abs=0.02), way
