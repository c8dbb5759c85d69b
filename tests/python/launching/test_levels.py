"""Nodes with different numbers of ranks: the sums are right, and each node sends what the formula says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import starts
from ranks import mpirun
from roundelay.run.modes.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
    pytest.mark.skipif(mpirun() is None, reason="no mpirun"),
]
PROGRAM = str(Path(__file__).with_name("levels_steps.py"))


@pytest.mark.parametrize(
    ("slots", "variables"),
    [
        ((1, 2), {}),
        pytest.param((3, 4), {}, marks=pytest.mark.nightly),
        pytest.param((1, 2, 2), {"ROUNDELAY_FACTORS": "2,3"}, marks=pytest.mark.nightly),
        pytest.param((2, 2, 2, 2), {"ROUNDELAY_FACTORS": "2,2,2"}, marks=pytest.mark.nightly),
    ],
)
def test_uneven_nodes(tmp_path: Path, slots: tuple[int, ...], variables: dict[str, str]) -> None:
    exports = exported(starts.environment(**variables), one_machine=False)
    with Rig(nodes=len(slots), mbit=None) as rig:
        command = rig.mpirun(str(mpirun()), slots, [sys.executable, PROGRAM, str(tmp_path)], exports)
        status, output = starts.run(command, **variables)
    assert status == 0, output
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(sum(slots))]
    nodes, first = len(slots), 0
    for node, count in enumerate(slots):
        sent = max(rank[2] for rank in ranks[first : first + count])
        size = ranks[0][1]
        assert 1.0 <= sent / (2 * (nodes - 1) / nodes * size) <= 1.02, (node, sent, size)
        first += count
    assert {
        rank[0] for rank, slot in zip(ranks, [n for n in slots for _ in range(n)], strict=True) if slot > 1
    } == {"shm+mpi"}
