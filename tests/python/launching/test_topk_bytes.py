"""Two nodes of two ranks: TopK sends (m - 1) x density x d pairs from each node, within 2 %."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import starts
from ranks import ROOT, mpirun
from roundelay.run.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
    pytest.mark.skipif(mpirun() is None, reason="no mpirun"),
]
PROGRAM = str(Path(__file__).with_name("topk_steps.py"))


def test_bytes_on_the_wire(tmp_path: Path) -> None:
    more = {"PYTHONPATH": str(ROOT / "python")}
    exports = exported(starts.environment(**more), one_machine=False)
    with Rig(nodes=2, mbit=None) as rig:
        command = rig.mpirun(str(mpirun()), (2, 2), [sys.executable, PROGRAM, str(tmp_path)], exports)
        status, output = starts.run(command, **more)
    assert status == 0, output
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    for strategy, (_, least) in ranks[0].items():
        for node in (0, 1):
            sent = max(rank[strategy][0] for rank in ranks[2 * node : 2 * node + 2])
            assert 1.0 <= sent / least <= 1.02, (strategy, node, sent, least)
