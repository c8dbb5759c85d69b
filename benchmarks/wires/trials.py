"""What each prototype does when a peer, a link or a transfer ends: scripted, each with an outcome."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.wires.programs import End, Use, ends, link
from tests.rig import Rig

MBIT = 1000
_MIB = 1 << 20
_LONG = 192 * _MIB  # more than a second at 1 Gbit/s
_LIMIT_S = 60  # after which a side that was told nothing counts as such
_STOPPED_S = 8.0
_IDLE_S = 10.0
PEERS = 16
REMADE = 20

Programs = Mapping[str, Path]
Outcome = dict[str, Any]


def _use_once(first: End, second: End, connection: int = 0) -> None:
    """Carry 1 MiB from the second end to the first, so that all is made that a connection needs."""
    for end, what in ((first, f"start receive {connection} {_MIB}"), (second, f"start send 0 {_MIB}")):
        end.ask(what)
        end.post("wait 20")
    said = [end.answer() for end in (first, second)]
    if not all(one and one["right"] for one in said):
        raise RuntimeError(f"the first transfer failed: {said}")


@contextlib.contextmanager
def used_ends(rig: Rig, program: Path) -> Iterator[tuple[End, End]]:
    """Yield two ends whose connection has carried something."""
    with ends(rig, program) as both:
        _use_once(*both)
        yield both


def killed(rig: Rig, program: Path, sends: bool) -> Outcome:
    """Kill the peer of an end that waits for it, or sends to it."""
    with used_ends(rig, program) as (survivor, peer):
        survivor.ask(f"start {'send' if sends else 'receive'} 0 {_LONG}")
        survivor.post(f"wait {_LIMIT_S}")
        if sends:
            peer.ask(f"start receive 0 {_LONG}")
            peer.post(f"wait {_LIMIT_S}")
            time.sleep(0.3)  # in the middle of the transfer, which takes 1.6 s
        begin = time.monotonic()
        peer.signal(signal.SIGKILL)
        said = survivor.answer()
        return {"told_s": time.monotonic() - begin, **said}


def _disturbed(rig: Rig, program: Path, disturb: Callable[[End], None], limit: float) -> Outcome:
    """Disturb the receiver, or its link, in the middle of a transfer."""
    with used_ends(rig, program) as (sender, receiver):
        receiver.ask(f"start receive 0 {_LONG}")
        sender.ask(f"start send 0 {_LONG}")
        for end in (receiver, sender):
            end.post(f"wait {limit}")
        time.sleep(0.3)
        begin = time.monotonic()
        disturb(receiver)
        after = time.monotonic()
        said = {"sender": sender.answer(), "receiver": receiver.answer()}
        return {"disturbed_s": after - begin, "ended_s": time.monotonic() - after, **said}


def stopped(rig: Rig, program: Path) -> Outcome:
    """Stop the receiver for a while."""

    def stop(end: End) -> None:
        end.signal(signal.SIGSTOP)
        time.sleep(_STOPPED_S)
        end.signal(signal.SIGCONT)

    return _disturbed(rig, program, stop, _LIMIT_S)


def interrupted(rig: Rig, program: Path, seconds: float) -> Outcome:
    """Take the link away for a while."""
    return _disturbed(rig, program, lambda _: rig.interrupt(1, seconds), _LIMIT_S)


def unreachable(_: Rig, program: Path) -> Outcome:
    """Cut the peer of two ends off for good: one waits for it, and the other one sends to it."""
    with Rig(2, MBIT) as rig, used_ends(rig, program) as idle, used_ends(rig, program) as busy:
        idle[0].ask(f"start receive 0 {_LONG}")
        busy[1].ask(f"start receive 0 {_LONG}")
        busy[0].ask(f"start send 0 {_LONG}")
        for end in (idle[0], *busy):
            end.post(f"wait {_LIMIT_S}")
        time.sleep(0.3)
        rig.cut(1)
        return {"waits": idle[0].answer(), "sends": busy[0].answer(), "receives": busy[1].answer()}


def remade(rig: Rig, program: Path) -> Outcome:
    """Give up transfers in progress, the receiver first, and make all anew in the same processes."""
    touched, slowest, over = 0, 0.0, 0
    uses: list[tuple[Use, Use]] = []
    with ends(rig, program) as (sender, receiver):
        for _ in range(REMADE):
            receiver.ask(f"start receive 0 {_LONG}")
            sender.ask(f"start send 0 {_LONG}")
            for end in (receiver, sender):
                end.post("wait 0.1")
            over += sum(end.answer()["over"] for end in (receiver, sender))
            sender.post("wait 0.5")  # it goes on while the receiver gives up
            slowest = max(slowest, float(receiver.ask("give_up")))
            touched += not receiver.ask("untouched 0.3")
            sender.answer()
            slowest = max(slowest, float(sender.ask("give_up")))
            uses.append((sender.use(), receiver.use()))
            for end in (sender, receiver):
                end.ask("remake")
            link(sender, receiver)
        _use_once(receiver, sender)
    return {
        "touched": touched,
        "slowest_s": slowest,
        "over": over,
        "first": [asdict(use) for use in uses[0]],
        "last": [asdict(use) for use in uses[-1]],
    }


def idle(rig: Rig, program: Path) -> Outcome:
    """Count what an end does that waits for its peer."""
    with used_ends(rig, program) as (waiter, _):
        waiter.ask(f"start receive 0 {_MIB}")
        waiter.post(f"wait {_IDLE_S + 5}")
        time.sleep(1)
        before = waiter.use()
        time.sleep(_IDLE_S)
        after = waiter.use()
        return {"wakeups": after.wakeups - before.wakeups, "cpu_s": after.cpu - before.cpu}


def connections(rig: Rig, program: Path) -> Outcome:
    """Connect an end to one peer, and to more."""
    hub = End(rig, 0, program)
    peers = [End(rig, 1, program) for _ in range(PEERS)]
    try:
        uses: dict[int, Use] = {0: hub.use()}
        for number, peer in enumerate(peers):
            link(hub, peer)
            _use_once(hub, peer, number)
            uses[number + 1] = hub.use()
    finally:
        for end in (hub, *peers):
            end.close()
    return {str(count): asdict(uses[count]) for count in (0, 1, PEERS)}


TRIALS: dict[str, Callable[[Rig, Path], Outcome]] = {
    "killed, waiting": lambda rig, program: killed(rig, program, sends=False),
    "killed, sending": lambda rig, program: killed(rig, program, sends=True),
    "stopped": stopped,
    "3 s": lambda rig, program: interrupted(rig, program, 3.0),
    "15 s": lambda rig, program: interrupted(rig, program, 15.0),
    "unreachable": unreachable,
    "remade": remade,
    "idle": idle,
    "connections": connections,
}
