"""Strategy auto rates algorithms by the links of a tuning file, and tries those that may be the fastest."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import starts
from ranks import PROGRAMS
from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import Cluster, Level, Link
from tunings import TUNING

pytestmark = pytest.mark.slow

# Each rank is a node of its own.
NODES = 'ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0 exec "$0" "$@"'


def test_a_ring_is_not_tried_where_messages_are_slow(tmp_path: Path) -> None:
    """It has the most messages that follow each other. Their time outweighs any load of this machine."""
    cluster = Cluster(4, 4, "tcp", (Level("cluster", 4),))
    links = (Link("cluster", 1.0, 1e8, 1e-9, 3e-5, 0.02),)
    path = tmp_path / "tuning.json"
    tuning_file.save(dataclasses.replace(TUNING, cluster=cluster, links=links, measured=(), table=()), path)
    words = ["sh", "-c", NODES, sys.executable, str(PROGRAMS / "auto_choice.py")]
    status, output = starts.run([*starts.ROUNDELAYRUN, "--gloo", "-np", "4", "--tuning", str(path), *words])
    assert status == 0, output
    (choice,) = (line for line in output.splitlines() if "choice: " in line)
    tried = choice.partition("(")[2]
    assert "recursive_doubling " in tried
    assert "halving_doubling " in tried
    assert "ring " not in tried
