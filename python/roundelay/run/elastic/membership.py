"""Decides who is in the next generation of an elastic job, and when. Pure: the driver says what happened.

A worker is one process of the program. It is starting until it asks for a place, ready while it waits for
one, a member while it is a rank of the present generation, refused when it can have no place and is to end
with an error, and gone when its process has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

_FAILURES = 3  # of a host's workers, after which nothing starts there for a while


class State(Enum):
    """What a worker does."""

    STARTING, READY, MEMBER, REFUSED, GONE = range(5)


class Change(Enum):
    """What a running generation is told at its next commit. The larger one counts."""

    NONE, REMOVED, ADDED = range(3)


@dataclass
class Worker:
    """One process of the program."""

    number: int
    host: str
    state: State = State.STARTING
    has_state: bool = False  # it has the training's state, from a generation of which it was a rank


@dataclass(frozen=True)
class Limits:
    """What the user allows."""

    wanted: int  # ranks that the first generation waits for
    least: int
    most: int
    cooldown: tuple[float, float]  # seconds without starts on a host that failed: at first, and at most


@dataclass
class Membership:
    """The workers of a job, and its generations. Times are monotonic seconds."""

    limits: Limits
    hosts: Mapping[str, int] = field(default_factory=dict)  # slots by name, in the order of preference
    workers: dict[int, Worker] = field(default_factory=dict)
    generation: int = 0
    ranks: list[int] = field(default_factory=list)  # workers of the present generation, by rank
    begun: bool = False  # somebody has had the training's state
    finished: bool = False  # a rank's program has ended well: the job grows no more
    _failures: dict[str, list[float]] = field(default_factory=dict)
    _blacklisted: dict[str, tuple[int, float]] = field(default_factory=dict)  # how often; until when
    _waits_since: float | None = None
    _enough_since: float | None = None

    # --- what happened

    def started(self, host: str) -> Worker:
        """Returns a new worker on a host."""
        worker = Worker(len(self.workers), host)
        self.workers[worker.number] = worker
        return worker

    def asks(self, number: int, *, has_state: bool) -> None:
        """A worker wants to be a rank of the next generation."""
        worker = self.workers[number]
        worker.state, worker.has_state = State.READY, has_state
        self.begun |= has_state

    def gone(self, number: int, *, well: bool, now: float) -> None:
        """A worker's process has ended."""
        worker = self.workers[number]
        was, worker.state = worker.state, State.GONE
        if well and was is State.MEMBER:
            self.finished = True
        elif was is not State.GONE:
            self._note_failure(worker.host, now)

    # --- what to do

    def hosts_to_start_on(self, now: float) -> list[str]:
        """Returns the hosts on which a worker is to start, one entry a worker."""
        if self.finished:
            return []
        chosen: list[str] = []
        free = self.limits.most - len(self._living())
        for host, slots in self.hosts.items():
            used = sum(worker.host == host for worker in self._living())
            if free > 0 and not self.is_blacklisted(host, now):
                chosen += [host] * min(free, max(0, slots - used))
                free = self.limits.most - len(self._living()) - len(chosen)
        return chosen

    def is_blacklisted(self, host: str, now: float) -> bool:
        """Returns whether too many workers have failed on a host."""
        return host in self._blacklisted and now < self._blacklisted[host][1]

    def change(self) -> Change:
        """Returns what the present generation is to be told."""
        if not self.ranks or self.finished:
            return Change.NONE
        members = [self.workers[number] for number in self.ranks]
        room = len(members) < self.limits.most
        ready = [worker.number for worker in self._usable() if worker.state is State.READY]
        if room and not set(ready) <= set(self.ranks):
            return Change.ADDED
        outside = any(worker.state is State.MEMBER and not self._has_slot(worker) for worker in members)
        return Change.REMOVED if outside else Change.NONE

    def dismissed(self) -> list[int]:
        """Returns the workers that wait for a place and are not needed: they end well.

        Their host is no longer the job's, or the training has ended before they came.
        """
        return [
            worker.number
            for worker in self._living()
            if worker.state is State.READY
            and (worker.number not in self.ranks if self.finished else not self._has_slot(worker))
        ]

    def refused(self) -> list[int]:
        """Returns the ranks that want to go on although another rank's program has ended well.

        It may have ended before or after they asked: call this at each turn.
        """
        ranks = self.ranks if self.finished else []
        return [number for number in ranks if self.workers[number].state is State.READY]

    def next_generation(self, *, patient: bool) -> list[int] | None:
        """Begins the next generation if it is possible, and returns its workers by rank.

        It is possible when no worker runs in the present one any more, and enough wait. Those with state come
        first, in their old order, so that rank 0 has it. patient: the first one waits for all that are
        wanted.
        """
        if any(self.workers[number].state is State.MEMBER for number in self.ranks):
            return None
        ready = [worker for worker in self._usable() if worker.state is State.READY]
        enough = self.limits.wanted if patient and self.generation == 0 else self.limits.least
        stateless = self.begun and not any(worker.has_state for worker in ready)
        if self.finished or stateless or len(ready) < enough:
            return None
        old = {number: rank for rank, number in enumerate(self.ranks)}
        ready.sort(key=lambda worker: (not worker.has_state, old.get(worker.number, worker.number)))
        self.ranks = [worker.number for worker in ready[: self.limits.most]]
        for number in self.ranks:
            self.workers[number].state = State.MEMBER
        self.generation += 1
        return self.ranks

    def state_is_lost(self) -> bool:
        """Returns whether a training had begun, and no living worker can have its state."""
        can_have = [
            worker.state is State.MEMBER
            or worker.has_state
            or (not self.begun and worker.number in self.ranks)
            for worker in self._living()
        ]
        return self.generation > 0 and not any(can_have)

    def ready_count(self) -> int:
        """Returns how many workers wait for a place."""
        return sum(worker.state is State.READY for worker in self._usable())

    def dismisses(self, number: int) -> None:
        """A worker was told that it is not needed: it is to end, and its slot is free."""
        self.workers[number].state = State.GONE

    def refuses(self, number: int) -> None:
        """A worker was told that it can have no place. It is to end with an error."""
        self.workers[number].state = State.REFUSED

    def is_over(self) -> bool:
        """Returns whether the training has ended: a rank's program has ended well, and none runs any more."""
        gone = [self.workers[number].state is State.GONE for number in self.ranks]
        return self.finished and all(gone)

    def all_gone(self) -> bool:
        """Returns whether no process is left."""
        return not self._living()

    def waits(self, now: float) -> float:
        """Returns the seconds for which no rank has run, nor enough have waited for the first generation."""
        can_begin = self.generation == 0 and self.ready_count() >= self.limits.least
        if can_begin or any(worker.state is State.MEMBER for worker in self._living()):
            self._waits_since = None
            return 0.0
        if self._waits_since is None:
            self._waits_since = now
        return now - self._waits_since

    def has_enough_for(self, now: float) -> float:
        """Returns the seconds for which as many workers as a generation needs have waited for a place."""
        if self.ready_count() < self.limits.least:
            self._enough_since = None
            return 0.0
        if self._enough_since is None:
            self._enough_since = now
        return now - self._enough_since

    def _note_failure(self, host: str, now: float) -> None:
        first, longest = self.limits.cooldown
        recent = [at for at in self._failures.get(host, []) if now - at < longest]
        self._failures[host] = [*recent, now]
        if len(self._failures[host]) >= _FAILURES:
            times = self._blacklisted.get(host, (0, 0.0))[0]
            self._blacklisted[host] = (times + 1, now + min(longest, first * 2**times))
            del self._failures[host]

    def _living(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.state is not State.GONE]

    def _usable(self) -> list[Worker]:
        return [worker for worker in self._living() if self._has_slot(worker)]

    def _has_slot(self, worker: Worker) -> bool:
        """Returns whether the worker is among the first of its host, as many as that has slots."""
        before = sum(other.host == worker.host and other.number < worker.number for other in self._living())
        return before < self.hosts.get(worker.host, 0)
