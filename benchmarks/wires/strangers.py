"""What a process of each prototype does when a stranger speaks at its ports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.wires.programs import SOCKETS, End
from tests.rig import Rig

_BYTES = 4096
_ATTACK_S = 4  # longer than the sockets wait for a greeting
_LISTENS = "0A"
_STRANGER = "benchmarks.wires.stranger"
ATTACKS = ("garbage", "crowd", "replay", "renumbered replay")
_OF_UCX = ("renumbered replay",)  # follows its own form of frames

Outcome = dict[str, Any]


def ports(pid: int) -> list[int]:
    """List the TCP ports at which a process listens. It is alone in its network."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return sorted({int(words[1].split(":")[1], 16) for words in lines if words[3] == _LISTENS})


def _python(rig: Rig, node: int, *arguments: str) -> subprocess.Popen[str]:
    command = [*rig.on(node), sys.executable, "-m", _STRANGER, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(process: subprocess.Popen[str], given: Mapping[str, Any]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(given) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _recorded_ends(rig: Rig, program: Path) -> tuple[End, End, str]:
    """Return two ends of which the first has got a message, and what the second said to it until then."""
    listener, caller = End(rig, 0, program), End(rig, 1, program)
    (port,) = ports(listener.pid)
    with _python(rig, 0, "record", str(port)) as tap:
        assert tap.stdout is not None
        assert tap.stdout.readline() == "ready\n"
        address = listener.ask("address")
        if program.name == SOCKETS:  # UCX accepts by itself
            listener.post(f"accept {address}")
        said = [caller.ask(f"connect {address}")]
        if program.name == SOCKETS:
            said.append(listener.answer())
        if any(said):
            raise RuntimeError(f"no connection: {said}")
        _carry(caller, listener)
        heard, _ = tap.communicate("\n")
    return listener, caller, max(heard.split(), key=len, default="")


def _carry(sender: End, receiver: End) -> None:
    receiver.ask(f"start receive 0 {_BYTES}")
    sender.ask(f"start send 0 {_BYTES}")
    for end in (sender, receiver):
        end.post("wait 5")
    said = [end.answer() for end in (sender, receiver)]
    if not all(one and one["right"] for one in said):
        raise RuntimeError(f"no message: {said}")


def attacked(rig: Rig, program: Path, what: str) -> Outcome:
    """Attack the port of an end that waits for a message. Then its peer sends the message."""
    victim, peer, recorded = _recorded_ends(rig, program)
    try:
        victim.ask(f"start receive 0 {_BYTES}")
        (port,) = ports(victim.pid)
        before = victim.use().descriptors
        given = {"what": what, "said": recorded}
        with _python(rig, 1, rig.address(0), str(port)) as stranger:
            victim.post(f"wait {_ATTACK_S}")
            answers = _ask(stranger, given)
            during = victim.answer()
            kept = victim.use().descriptors - before if during else 0
            after = None
            if during is not None and not during["over"]:
                peer.ask(f"start send 0 {_BYTES}")
                for end in (peer, victim):
                    end.post("wait 5")
                after = victim.answer()
            stranger.communicate()
        lines = [line for line in victim.errors().splitlines() if line.strip()]
        return {
            "stranger": answers,
            "recorded": len(recorded) // 2,
            "kept": kept,
            "during": during,
            "after": after,
            "died_of": victim.died_of() if during is None or (after is None and not during["over"]) else "",
            "said": lines[:3],
        }
    finally:
        victim.close()
        peer.close()


def attacks_on(program: str) -> list[str]:
    """List the attacks that fit a prototype."""
    return [what for what in ATTACKS if program != SOCKETS or what not in _OF_UCX]
