"""A connection between two nodes that is reset in the middle of an operation: all ranks raise, by name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import starts
from programs import reset_connection
from rank_program import program
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=f"no two nodes: {_REASON}")]


@pytest.mark.parametrize("operation", list(reset_connection.OPERATIONS))
def test_a_reset_in_the_middle_of_an_operation(operation: str, tmp_path: Path) -> None:
    work = program(reset_connection.reset_in, operation)
    with Rig(nodes=2, mbit=500) as rig:
        where = {"WORLD_SIZE": "2", "MASTER_ADDR": rig.host(0), "MASTER_PORT": "29500"}
        where |= {"ROUNDELAY_FABRIC": "tcp"}
        command = [sys.executable, *work.words(tmp_path)]
        ranks = [([*rig.on(node), *command], {**where, "RANK": str(node)}) for node in range(2)]
        found = starts.run_all(ranks)
    said = rf"raised: rank [01] failed inside {operation} of .*the connection to rank [01] failed"
    for status, output in found:
        assert status == 0, output
        assert re.search(said, output), output
        assert "works anew" in output
        assert "nothing is left" in output, output
