"""Two nodes of two ranks: CSC sends the chosen chunks, the norms and the dense parameters, and no more."""

from __future__ import annotations

import json
import os
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
PROGRAM = str(Path(__file__).with_name("csc_steps.py"))


def test_bytes_on_the_wire(tmp_path: Path) -> None:
    # Benchmarks count the message.
    more = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])}
    exports = exported(starts.environment(**more), one_machine=False)
    with Rig(nodes=2, mbit=None) as rig:
        command = rig.mpirun(str(mpirun()), (2, 2), [sys.executable, PROGRAM, str(tmp_path)], exports)
        status, output = starts.run(command, **more)
    assert status == 0, output
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    for keep, (_, least) in ranks[0].items():
        assert all(rank[keep][1] == least for rank in ranks), "ranks have chosen different chunks"
        for node in (0, 1):
            sent = max(rank[keep][0] for rank in ranks[2 * node : 2 * node + 2])
            assert 1.0 <= sent / least <= 1.02, (keep, node, sent, least)
    whole = ranks[0]["0.5"][1] / 0.5
    assert ranks[0]["0.1"][1] / whole == pytest.approx(0.1, rel=0.05)
    assert ranks[0]["0.01"][1] / whole == pytest.approx(0.01, rel=0.15)
