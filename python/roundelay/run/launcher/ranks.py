"""The ranks of a job, as their agents tell of them."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace

from roundelay._internal import error_report
from roundelay.run.launcher.connections import Peer
from roundelay.run.launcher.result import Ending


@dataclass(frozen=True)
class Error:
    """A rank's exception that reached the top."""

    at: float  # monotonic seconds
    of_peer: bool  # another rank has caused it


class Ranks:
    """Keeps where ranks are, how they have ended, and what they were told."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}  # those that are connected
        self.places: dict[int, str] = {}  # of all that have called in: "pid N on HOST"
        self.endings: list[Ending] = []  # in the order of arrival
        self.initialised = False  # some rank has called hvd.init()
        self._errors: dict[int, Error] = {}  # the last exception that each rank told of
        self._told: bytes | None = None  # the last order to all ranks; each one is to end them

    def running(self) -> set[int]:
        """Returns the ranks that are connected and have not ended."""
        return set(self.peers) - {ending.rank for ending in self.endings}

    def failed(self) -> bool:
        """Returns whether a rank has ended with another status than 0."""
        return any(ending.returncode != 0 for ending in self.endings)

    def add(self, rank: int, peer: Peer, place: str) -> None:
        """Takes a rank that calls in. It hears what the others were told before."""
        peer.rank = rank
        self.peers[rank] = peer
        self.places[rank] = place
        if self._told is not None:
            peer.order(self._told)

    def order(self, order: bytes) -> None:
        """Gives an order to every rank that still runs, and to those that call in later."""
        self._told = order
        for rank in self.running():
            self.peers[rank].order(order)

    def send(self, order: bytes) -> None:
        """Gives an order to the agents of all ranks that are connected now."""
        for peer in list(self.peers.values()):
            peer.order(order)

    def note_report(self, rank: int, report: bytes) -> None:
        """Records what a rank that has not ended yet tells of itself (_internal/error_report.py)."""
        self.initialised |= error_report.INIT in report
        if error_report.has_error(report):
            of_peer = report.rstrip(error_report.INIT).endswith(error_report.OF_PEER)
            self._errors[rank] = Error(time.monotonic(), of_peer)

    def end(self, ending: Ending, looks_like_victim: bool) -> Ending:
        """Records the end of a rank, and returns it with what is known of the cause.

        looks_like_victim: its output does, which counts if it has told of no exception.
        """
        error = self._errors.get(ending.rank)
        if error is not None:
            ending = replace(ending, failed_at=error.at, victim=error.of_peer)
        else:
            failed_at = ending.failed_at or time.monotonic()
            ending = replace(ending, failed_at=failed_at, victim=looks_like_victim)
        self.endings.append(ending)
        return ending

    def lose(self, rank: int, *, silent: bool, agents_are_ours: bool) -> tuple[Peer, Ending | None]:
        """Removes a rank whose connection has ended. Returns its end too, if it has told of none.

        Then its program was killed, or the host is gone. silent: nothing has come from it for long.
        agents_are_ours: nothing but us ends agents.
        """
        running = rank in self.running()
        peer = self.peers.pop(rank)
        if not running:
            return peer, None
        unheard_s, unanswered = peer.unheard()
        broken = peer.broken or ("no answer" if silent and unanswered else "")
        failed_at = time.monotonic() - (unheard_s if broken else 0.0)
        told = self._told is not None and not broken
        unclear = not (told or broken or agents_are_ours)
        place, returncode = self.places[rank], -signal.SIGKILL
        return peer, Ending(rank, returncode, told, place, failed_at, broken=broken, unclear=unclear)
