"""Two nodes of two ranks: a technique sends what its message has, and no more."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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
    # Benchmarks count CSC's message.
    more = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])}
    exports = exported(starts.environment(**more), one_machine=False)
    path = str(Path(__file__).with_name(program))
    with Rig(nodes=2, mbit=None) as rig:
        words = [sys.executable, path, str(tmp_path), *settings]
        status, output = starts.run(rig.mpirun(str(mpirun()), (2, 2), words, exports), **more)
    assert status == 0, output
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    for case, (_, least) in ranks[0].items():
        assert all(rank[case][1] == least for rank in ranks), "ranks have chosen different messages"
        for node in (0, 1):
            sent = max(rank[case][0] for rank in ranks[2 * node : 2 * node + 2])
            assert 1.0 <= sent / least <= 1.02, (case, node, sent, least)
