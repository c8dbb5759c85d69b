"""Runs an elastic job: starts workers, hears what became of them, and hands out the generations."""

from __future__ import annotations

import json
import queue
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from roundelay.run.agent import protocol
from roundelay.run.elastic.membership import Limits, Membership, State
from roundelay.run.elastic.programs import Programs
from roundelay.run.elastic.worker import Launch, WorkerProcess
from roundelay.run.launcher.connections import Listener, Peer
from roundelay.run.launcher.output import Output
from roundelay.run.launcher.ranks import Ranks
from roundelay.run.launcher.result import Ending, JobResult, is_victim
from roundelay.run.launcher.result_pipe import ResultPipe
from roundelay.run.system import signals
from roundelay.run.system.processes import exit_status

_TICK_S = 0.05
_END_S, _KILL_S = 3.0, 6.0  # from the job's end to SIGTERM's effect, and to SIGKILL


@dataclass(frozen=True)
class Settings:
    """What the user wants."""

    limits: Limits
    hosts: Callable[[], Mapping[str, int]]
    launch: Launch
    reset_limit: int | None  # generations after the first one; None: any number
    timeout: float  # seconds to wait for enough ranks
    start_timeout: float  # seconds for which the first generation, if it has enough, waits for all wanted
    say: Callable[[str], None]
    results: (
        ResultPipe | None
    )  # gets the workers of each generation, and replies, if the program is a function


class Driver:
    """One elastic job, from the first worker to the last one's end."""

    def __init__(self, settings: Settings, listener: Listener, output: Output) -> None:
        self._settings, self._listener, self._output = settings, listener, output
        self._members = Membership(settings.limits)
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, WorkerProcess] = {}
        self._unstarted: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._ranks = Ranks()  # by the number of the worker: its agent's connection, and its end
        self._programs = Programs()
        self._result: JobResult | None = None
        self._end_at = float("inf")

    def run(self) -> JobResult:
        """Runs the job to its end. Must be called on the main thread: it handles signals meanwhile."""
        handlers = signals.handle(signals.ENDING, self._on_signal)
        handlers |= signals.handle(signals.FORWARDED, self._forward)
        try:
            for caller in self._listener.sockets:
                self._selector.register(caller, selectors.EVENT_READ, self._on_caller)
            while self._result is None or not self._members.all_gone():
                self._step()
            return self._result
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
            for process in self._processes.values():
                process.close()
            self._listener.close()

    @property
    def endings(self) -> list[Ending]:
        """How workers have ended, in the order of arrival."""
        return self._ranks.endings

    @property
    def last_ranks(self) -> list[int]:
        """The workers of the last generation, by rank."""
        return self._members.ranks

    # --- what comes in

    def _step(self) -> None:
        for key, _ in self._selector.select(timeout=_TICK_S):
            key.data(key.fileobj)
        for stranger in self._listener.superfluous():
            self._selector.unregister(stranger.socket)
            self._listener.drop(stranger)
        while not self._unstarted.empty():
            self._on_process_end(*self._unstarted.get())
        self._output.tick(time.monotonic())
        if self._result is None:
            self._decide(time.monotonic())
        elif time.monotonic() > self._end_at:
            self._ranks.order(protocol.KILL)
            self._end_at = float("inf")

    def _on_caller(self, caller: socket.socket) -> None:
        peer = self._listener.accept(caller)
        if peer is not None:
            self._selector.register(peer.socket, selectors.EVENT_READ, lambda _: self._on_frames(peer))

    def _on_frames(self, peer: Peer) -> None:
        frames = peer.receive()
        if frames is None:
            self._selector.unregister(peer.socket)
            if not peer.is_proven:
                self._listener.drop(peer)
            elif peer.rank is not None and self._ranks.peers.get(peer.rank) is peer:
                self._lose(peer.rank)  # it asks the socket how long the host has been silent
            peer.socket.close()
            return
        for kind, payload in frames:
            self._on_frame(peer, kind, payload)

    def _on_frame(self, peer: Peer, kind: bytes, payload: bytes) -> None:
        if kind == protocol.HELLO:
            hello: dict[str, Any] = json.loads(payload)
            number = int(hello["rank"])
            self._ranks.add(number, peer, f"pid {hello['pid']} on {hello['host']}")
        elif kind == protocol.MEMBER:
            self._programs.add(int(payload), peer)
        elif peer.rank is None:
            return
        elif kind == protocol.WANTED:
            self._on_wanted(peer.rank, json.loads(payload))
        elif kind == protocol.EXIT:
            place = self._ranks.places[peer.rank]
            self._on_ending(Ending(peer.rank, place=place, **json.loads(payload)))
            peer.order(protocol.LEAVE)
        elif kind == protocol.REPORT:
            self._ranks.note_report(peer.rank, payload)
        elif kind == protocol.RESULT_PIECE:
            if self._settings.results is not None:
                self._settings.results.on_result(peer.rank, payload)
        else:
            stream = self._output.streams[peer.rank, "stdout" if kind == protocol.STDOUT else "stderr"]
            stream.write(payload, time.monotonic())

    def _on_wanted(self, number: int, wanted: dict[str, Any]) -> None:
        difference = self._programs.note_wanted(number, wanted)
        if difference:
            self._members.refuses(number)
            self._programs.refuse(number, f"all workers must run the same program: {difference}")
            return
        self._note_end(number, f"worker {number} asks for a place in the next one", lost=False)
        self._members.asks(number, has_state=wanted["has_state"])

    def _lose(self, number: int) -> None:
        _, ending = self._ranks.lose(number, silent=False, agents_are_ours=True)
        if ending is not None:
            self._on_ending(ending)

    def _on_process_end(self, number: int, why: str) -> None:
        """Takes the end of what has started a worker. why: it has not started it."""
        if why:
            self._settings.say(why)
        if self._members.workers[number].state is not State.GONE and number not in self._ranks.peers:
            self._gone(number, well=False, how="it did not start")

    def _on_ending(self, ending: Ending) -> None:
        number = ending.rank
        self._output.close(number)
        victim = is_victim(self._output.last_lines(number), self._output.last_exception(number))
        ending = self._ranks.end(ending, victim)
        self._gone(number, well=ending.returncode == 0, how=ending.how)
        if ending.returncode != 0 and self._result is None:
            self._settings.say(f"worker {number} ({ending.place}) has failed: {ending.how}")

    def _gone(self, number: int, *, well: bool, how: str) -> None:
        self._note_end(number, f"worker {number} is gone: {how}", lost=True)
        self._members.gone(number, well=well, now=time.monotonic())

    def _note_end(self, number: int, why: str, *, lost: bool) -> None:
        """A member of the present generation leaves it: nobody may wait for it any more."""
        members = self._members
        if members.workers[number].state is State.MEMBER:
            others = [other for other in members.ranks if other != number]
            self._programs.tell_of_end(members.generation, others, why, lost=lost)

    # --- what is decided

    def _decide(self, now: float) -> None:
        members, settings = self._members, self._settings
        members.hosts = settings.hosts()
        if members.is_over():
            self._end(self._last_result())
        elif members.state_is_lost():
            self._end(self._failure("no worker is left that has the state of the training"))
        elif members.all_gone() and not members.hosts_to_start_on(now):
            self._end(self._failure("no host is left on which a worker could start"))
        elif members.waits(now) > settings.timeout:
            least, ready = settings.limits.least, members.ready_count()
            text = f"{ready} of at least {least} ranks (--min-np) were there within {settings.timeout:g} s"
            self._end(self._failure(f"{text} (--elastic-timeout)"))
        else:
            self._start_workers(now)
            self._turn_away()
            self._hand_out(now)
            self._programs.tell_of_change(self._members.ranks, self._members.change())

    def _start_workers(self, now: float) -> None:
        for host in self._members.hosts_to_start_on(now):
            worker = self._members.started(host)
            self._output.open(worker.number)
            self._processes[worker.number] = WorkerProcess(
                worker.number,
                host,
                self._members.hosts[host],
                self._settings.launch,
                lambda *end: self._unstarted.put(end),
            )

    def _turn_away(self) -> None:
        members = self._members
        for number in members.dismissed():
            self._programs.dismiss(number)
            members.dismisses(number)
        for number in members.refused():
            why = "another rank's program has ended, and this one still wants to train"
            self._programs.refuse(number, why)
            members.refuses(number)

    def _hand_out(self, now: float) -> None:
        members, settings = self._members, self._settings
        ranks = members.next_generation(patient=members.has_enough_for(now) < settings.start_timeout)
        if ranks is None:
            return
        resets = members.generation - 1
        if settings.reset_limit is not None and resets > settings.reset_limit:
            self._end(
                self._failure(f"the ranks have changed {resets} times (--reset-limit {settings.reset_limit})")
            )
            return
        self._programs.hand_out(members.generation, ranks)
        if settings.results is not None:
            settings.results.on_generation(ranks)
        if resets > 0:
            workers = ", ".join(map(str, ranks))
            settings.say(f"going on with workers {workers} as ranks (generation {members.generation})")

    # --- the end

    def _end(self, result: JobResult) -> None:
        """Ends all workers: SIGTERM, a grace, SIGKILL."""
        self._result = self._result or result
        self._ranks.order(protocol.SIGNAL + bytes([signal.SIGTERM]))
        self._end_at = time.monotonic() + _END_S
        for number, process in self._processes.items():
            if number not in self._ranks.places:
                process.close()

    def _last_result(self) -> JobResult:
        last = [ending for ending in self._ranks.endings if ending.rank in self._members.ranks]
        failed = next((ending for ending in last if ending.returncode != 0), None)
        if failed is None:
            return JobResult(0)
        text = f"worker {failed.rank} ({failed.place}) failed while others ended well: {failed.how}"
        return JobResult(exit_status(failed.returncode), text, failed.rank)

    def _failure(self, text: str) -> JobResult:
        """Returns a result that names the last failure, which is likely the cause."""
        failed = [ending for ending in self._ranks.endings if ending.returncode != 0]
        last = next((ending for ending in failed if not ending.victim), next(iter(failed), None))
        if last is None:
            return JobResult(1, text)
        return JobResult(
            exit_status(last.returncode) or 1, f"{text}; worker {last.rank}: {last.how}", last.rank
        )

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if self._result is not None:
            self._ranks.order(protocol.KILL)
            return
        name = signal.Signals(signum).name
        self._end(JobResult(128 + signum, f"ended by {name}; no rank is left"))

    def _forward(self, signum: int, _frame: FrameType | None) -> None:
        self._ranks.send(protocol.FORWARD + bytes([signum]))
