"""Two nodes of two ranks: a technique sends what its message has, and DDP what DistributedOptimizer does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import starts
from ranks import ROOT, mpirun
from roundelay.run.modes.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
    pytest.mark.skipif(mpirun() is None, reason="no mpirun"),
]


def run_on_two_nodes(folder: Path, program: str, settings: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Runs the program on four ranks, and returns what each has found."""
    # Benchmarks count CSC's message.
    more = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])}
    exports = exported(starts.environment(**more), one_machine=False)
    path = str(Path(__file__).with_name(program))
    with Rig(nodes=2, mbit=None) as rig:
        words = [sys.executable, path, str(folder), *settings]
        status, output = starts.run(rig.mpirun(str(mpirun()), (2, 2), words, exports), **more)
    assert status == 0, output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize(
    ("program", "settings"),
    [
        ("csc_steps.py", ["0.1"]),
        ("topk_steps.py", ["0.01"]),
        ("daso_steps.py", ["4"]),
        pytest.param("csc_steps.py", ["0.01", "0.1", "0.5"], marks=pytest.mark.nightly),
        pytest.param("topk_steps.py", ["0.01", "0.1"], marks=pytest.mark.nightly),
        pytest.param("daso_steps.py", ["1", "4", "8"], marks=pytest.mark.nightly),
    ],
)
def test_bytes_on_the_wire(tmp_path: Path, program: str, settings: list[str]) -> None:
    ranks = run_on_two_nodes(tmp_path, program, settings)
    for case, (_, least) in ranks[0].items():
        assert all(rank[case][1] == least for rank in ranks), "ranks have chosen different messages"
        for node in (0, 1):
            sent = max(rank[case][0] for rank in ranks[2 * node : 2 * node + 2])
            assert 1.0 <= sent / least <= 1.02, (case, node, sent, least)


def test_a_step_of_ddp(tmp_path: Path) -> None:
    ranks = run_on_two_nodes(tmp_path, "ddp_steps.py")
    for node in (0, 1):
        on_node = ranks[2 * node : 2 * node + 2]
        ddp, optimizer = (max(rank[who] for rank in on_node) for who in ("ddp", "hvd"))
        # Each byte of a gradient enters and leaves a node once.
        assert 1.0 <= optimizer / ranks[0]["gradients"] <= 1.02, on_node
        assert 0.99 <= ddp / optimizer <= 1.01, on_node
