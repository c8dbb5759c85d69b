"""A node of an elastic job goes away as a power cut takes it: nothing of it says good-bye."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastic_jobs import MOST_S, TRAINING, began, check_ended, job, said
from in_time import wait_until
from tests.rig import Rig, why_not

_REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=f"no rig: {_REASON}")]


def test_the_nodes_that_are_left_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Rig(nodes=3, mbit=None) as rig:
        monkeypatch.setenv("PATH", f"{rig.commands}:{os.environ['PATH']}")
        hosts = ",".join(f"{rig.host(node)}:1" for node in range(3))
        flags = ("-np", "3", "--min-np", "2", "-H", hosts)
        with job(*flags, program=[TRAINING, str(tmp_path), "1"], where=rig.on(0)) as process:
            wait_until(lambda: bool(began(tmp_path, ranks=3)), MOST_S, "it did not begin")
            rig.lose(2)
            out, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 0, err
    check_ended(said(out), 2)
    assert "on node2) has failed: the connection to its host broke" in err
