"""What the launcher tells the programs of an elastic job."""

from __future__ import annotations

import json
from typing import Any, cast

from roundelay.run.agent import protocol
from roundelay.run.elastic.membership import Change
from roundelay.run.elastic.programs import Programs
from roundelay.run.launcher.connections import Peer

SAME = {"torch": "2.6.0", "the list of arguments": ""}


class _Program:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.told: list[tuple[bytes, Any]] = []

    def tell(self, kind: bytes, payload: bytes = b"") -> None:
        self.told.append((kind, json.loads(payload)))


def _programs(count: int) -> tuple[Programs, list[_Program]]:
    programs, peers = Programs(), [_Program() for _ in range(count)]
    for number, peer in enumerate(peers):
        programs.add(number, cast(Peer, peer))
        assert _wants(programs, number, SAME) == ""
    return programs, peers


def _wants(programs: Programs, number: int, program: dict[str, str]) -> str:
    return programs.note_wanted(number, {"host": "h", "port": 7000 + number, "program": program})


def test_all_ranks_meet_at_rank_0() -> None:
    programs, peers = _programs(3)
    programs.hand_out(5, [2, 0])
    place = {"generation": 5, "size": 2, "host": "h", "port": 7002, "left": [], "came": [2, 0]}
    assert peers[2].told == [(protocol.PLACE, {**place, "rank": 0})]
    assert peers[0].told == [(protocol.PLACE, {**place, "rank": 1})]
    assert peers[1].told == []


def test_a_generation_knows_who_has_left_and_come() -> None:
    programs, peers = _programs(3)
    programs.hand_out(1, [0, 1])
    programs.hand_out(2, [1, 2])
    assert (peers[2].told[-1][1]["left"], peers[2].told[-1][1]["came"]) == ([0], [2])
    programs.hand_out(3, [1, 2])
    assert (peers[2].told[-1][1]["left"], peers[2].told[-1][1]["came"]) == ([], [])


def test_a_change_is_told_once_to_each_generation() -> None:
    programs, peers = _programs(1)
    for change in (Change.NONE, Change.REMOVED, Change.REMOVED, Change.ADDED, Change.REMOVED):
        programs.tell_of_change([0], change)
    assert peers[0].told == [(protocol.CHANGED, 1), (protocol.CHANGED, 2)]
    programs.hand_out(2, [0])
    programs.tell_of_change([0], Change.REMOVED)
    assert peers[0].told[-1] == (protocol.CHANGED, 1)


def test_every_loss_is_told_and_one_end_without_a_loss() -> None:
    programs, peers = _programs(2)
    programs.tell_of_end(1, [1], "asks", lost=False)
    programs.tell_of_end(1, [0], "asks", lost=False)
    programs.tell_of_end(1, [0, 1, 9], "gone", lost=True)  # worker 9 has never called
    over = {"generation": 1, "why": "asks", "lost": False}
    loss = {"generation": 1, "why": "gone", "lost": True}
    assert peers[1].told == [(protocol.OVER, over), (protocol.OVER, loss)]
    assert peers[0].told == [(protocol.OVER, loss)]


def test_a_program_that_differs_from_the_first_is_described() -> None:
    programs, _ = _programs(2)
    assert _wants(programs, 2, {"torch": "2.5.1", "the list of arguments": "--epochs 3"}) == (
        "torch is 2.5.1 here, and 2.6.0 at worker 0; "
        "the list of arguments is --epochs 3 here, and empty at worker 0"
    )
