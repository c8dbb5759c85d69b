"""Two nodes of two ranks: DASO sends the parameters once in global_skip batches, and no more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import starts
from ranks import mpirun
from roundelay.run.mpi import exported
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}"),
    pytest.mark.skipif(mpirun() is None, reason="no mpirun"),
]
PROGRAM = str(Path(__file__).with_name("daso_steps.py"))


def test_bytes_on_the_wire(tmp_path: Path) -> None:
    exports = exported(starts.environment(), one_machine=False)
    with Rig(nodes=2, mbit=None) as rig:
        command = rig.mpirun(str(mpirun()), (2, 2), [sys.executable, PROGRAM, str(tmp_path)], exports)
        status, output = starts.run(command)
    assert status == 0, output
    for rank in range(4):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for every, (sent, least) in found.items():
            assert 1.0 <= sent / least <= 1.02, (rank, every, sent, least)
