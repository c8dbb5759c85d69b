"""The tree of the job's levels as text."""

from __future__ import annotations

import pytest

import roundelay.torch as hvd
from roundelay.torch._internal.topology import Level, Part, Topology


def level(name: str, **parts: tuple[int, ...]) -> Level:
    return Level(name, tuple(Part(part, ranks) for part, ranks in parts.items()))


def test_one_node() -> None:
    assert str(Topology((level("node", a=(0, 1, 2)),))) == "3 ranks, 1 node\n  node a: ranks 0-2"


def test_levels_are_indented_and_runs_of_ranks_are_short() -> None:
    nodes = level("node", a=(0, 1, 2, 7), b=(3, 5), c=(4, 6, 8, 9))
    racks = Level("rack", (Part("x", (0, 1, 2, 7)), Part("x", (3, 4, 5, 6, 8, 9))))
    pods = level("pod", p=tuple(range(10)))
    assert str(Topology((nodes, racks, pods))).splitlines() == [
        "10 ranks, 3 nodes, 2 racks, 1 pod",
        "  pod p",
        "    rack x",
        "      node a: ranks 0-2, 7",
        "    rack x",
        "      node b: ranks 3, 5",
        "      node c: ranks 4, 6, 8, 9",
    ]


def test_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.topology()
    monkeypatch.setenv("ROUNDELAY_NODE_ID", "here")
    monkeypatch.setenv("ROUNDELAY_TOPOLOGY", "pod1/rack3")
    hvd.init()
    try:
        assert [(one.name, one.parts) for one in hvd.topology().levels] == [
            ("node", (Part("here", (0,)),)),
            ("rack", (Part("rack3", (0,)),)),
            ("pod", (Part("pod1", (0,)),)),
        ]
    finally:
        hvd.shutdown()
    monkeypatch.setenv("ROUNDELAY_TOPOLOGY", "rack=2,node=1")
    with pytest.raises(ValueError, match="counts 2 nodes, but the ranks are on 1"):
        hvd.init()
