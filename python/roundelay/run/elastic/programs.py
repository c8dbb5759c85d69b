"""The programs of an elastic job's workers: what they ask the launcher for, and what they are told."""

from __future__ import annotations

import json
from typing import Any

from roundelay.run.agent import protocol
from roundelay.run.elastic.membership import Change
from roundelay.run.launcher.connections import Peer


class Programs:
    """Keeps a connection for each worker whose program has called hvd.init(), by the worker's number."""

    def __init__(self) -> None:
        self._peers: dict[int, Peer] = {}
        self._stores: dict[int, tuple[str, int]] = {}  # where each would serve the next generation
        self._first: tuple[int, dict[str, str]] | None = None  # the first worker, and its program
        self._ranks: list[int] = []  # the workers of the present generation
        self._told = Change.NONE
        self._over = 0  # the last generation that was told that it is over

    def add(self, number: int, peer: Peer) -> None:
        """Takes a program that calls."""
        peer.rank = number
        self._peers[number] = peer

    def note_wanted(self, number: int, wanted: dict[str, Any]) -> str:
        """Notes where a program that wants a place would serve the others.

        Returns how it differs from that of the first worker, with which it can then not train; "": it is the
        same.
        """
        self._stores[number] = (wanted["host"], wanted["port"])
        if self._first is None:
            self._first = (number, wanted["program"])
        first, theirs = self._first
        return "; ".join(
            f"{what} is {text or 'empty'} here, and {theirs[what] or 'empty'} at worker {first}"
            for what, text in wanted["program"].items()
            if text != theirs[what]
        )

    def hand_out(self, generation: int, ranks: list[int]) -> None:
        """Gives the workers of a new generation their places."""
        host, port = self._stores[ranks[0]]
        place = {
            "generation": generation,
            "size": len(ranks),
            "host": host,
            "port": port,
            "left": [number for number in self._ranks if number not in ranks],
            "came": [number for number in ranks if number not in self._ranks],
        }
        for rank, number in enumerate(ranks):
            self._peers[number].tell(protocol.PLACE, json.dumps({**place, "rank": rank}).encode())
        self._ranks = list(ranks)
        self._told = Change.NONE

    def dismiss(self, number: int) -> None:
        """Tells a worker that it is not needed: it ends well."""
        self._peers[number].tell(protocol.DISMISSED)

    def refuse(self, number: int, why: str) -> None:
        """Tells a worker that it can have no place: it ends with this error."""
        self._peers[number].tell(protocol.REFUSED, why.encode())

    def tell_of_change(self, ranks: list[int], change: Change) -> None:
        """Tells the present generation what is to happen at its next commit, unless it knows."""
        if change.value > self._told.value:
            self._told = change
            self._tell(ranks, protocol.CHANGED, b"%d" % change.value)

    def tell_of_end(self, generation: int, ranks: list[int], why: str, *, lost: bool) -> None:
        """Tells workers that their generation is over: for each loss, and once without. They meet no more."""
        if lost or self._over < generation:
            self._over = generation
            over = {"generation": generation, "why": why, "lost": lost}
            self._tell(ranks, protocol.OVER, json.dumps(over).encode())

    def _tell(self, ranks: list[int], kind: bytes, payload: bytes) -> None:
        for number in ranks:
            if number in self._peers:
                self._peers[number].tell(kind, payload)
