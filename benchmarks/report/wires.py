"""UCX and plain sockets as data planes: the tables of docs/results/wires.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import quiet, show
from benchmarks.report import page

STORED = page.RESULTS / "wires.json"
PART = page.part(page.RESULTS / "wires.md", "wires")
MOST_LOAD = 1.5  # of the machine before a measurement; more is a disturbance
_KINDS = {"one_way": "one way", "ping_pong": "there and back"}
_STRANGERS = ord("w")  # what a stranger writes
_TEXTS = {
    "killed, waiting": "the peer is killed; this side waits for it",
    "killed, sending": "the peer is killed; this side sends to it",
    "stopped": "the receiver is stopped for 8 s in a transfer",
    "3 s": "the link is away for 3 s in a transfer",
    "15 s": "the link is away for 15 s in a transfer",
    "unreachable": "the peer is cut off for good",
    "remade": "given up in a transfer and made anew, 20 times",
    "idle": "waits 10 s for its peer",
    "connections": "with 1 and with 16 peers",
}
_ATTACKS = {
    "garbage": "noise, HTTP, lengths of 2^63 and 2^32",
    "crowd": "250 connections that say nothing",
    "replay": "a copy of what a peer said",
    "renumbered replay": "the same with another number of the connection",
}


def _needs(cell: Mapping[str, Any]) -> float:
    """Return the seconds that the wire needs for the bytes alone."""
    ways = 2 if cell["what"] == "ping_pong" else 1
    return float(ways * cell["bytes"] * 8 / (cell["mbit"] * 1e6))


def speed_rows(cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[str]]:
    """Make the rows of times: what the wire needs, then each prototype's median time and CPU time."""
    rows = []
    for cell in cells:
        first = [f"{cell['mbit'] / 1000:g} Gbit/s", _KINDS[cell["what"]], show.size_text(cell["bytes"])]
        costs = [cell[key][name]["median"] for key in ("seconds", "cpu") for name in names]
        rows.append([*first, *map(show.seconds_text, (_needs(cell), *costs))])
    return rows


def _speed(cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    columns = ["link", "transfer", "size", "the wire needs", *names, *(f"CPU: {name}" for name in names)]
    said = quiet.others_text(cells).removeprefix("-  ")
    text = f"Medians of {cells[0]['rounds']} turns; CPU is user and system time of both processes; {said}."
    loads = [cell["load"] for cell in cells]
    if max(loads) > MOST_LOAD:
        text += f" Disturbed: the machine's load was {min(loads):.1f} to {max(loads):.1f} before."
    return [page.folded(text), "", *page.rows(columns, speed_rows(cells, names)), ""]


def _told(said: Mapping[str, Any]) -> str:
    """Say how a side's wait has ended."""
    if said["error"]:
        return f"error after {show.seconds_text(said['seconds'])}: {said['error']}"
    if said["right"]:
        return "goes on, right bytes"
    return "wrong bytes" if said["over"] else f"told nothing for {show.seconds_text(said['seconds'])}"


def outcome_text(trial: str, outcome: Mapping[str, Any]) -> str:
    """Say what a trial of a prototype has given."""
    if trial.startswith("killed"):
        return f"told after {show.seconds_text(outcome['told_s'])}: {outcome['error']}"
    if trial == "unreachable":
        return "<br>".join(f"who {who}: {_told(said)}" for who, said in outcome.items())
    if trial == "idle":
        return f"{outcome['wakeups']} wakeups, {show.seconds_text(outcome['cpu_s'])} of CPU"
    if trial == "connections":
        return "<br>".join(_uses(outcome[peers], outcome["0"]) for peers in ("1", "16"))
    if trial == "remade":
        return _remade(outcome)
    sides = {who: _told(outcome[who]) for who in ("sender", "receiver")}
    if len(set(sides.values())) == 1:
        return f"{sides['sender']}; over {show.seconds_text(outcome['ended_s'])} after"
    return "<br>".join(f"{who}: {said}" for who, said in sides.items())


def _uses(use: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    grown = show.size_text(use["resident"] - before["resident"])
    threads = "1 thread" if use["threads"] == 1 else f"{use['threads']} threads"
    return f"{threads}, {use['descriptors']} descriptors, RSS grown by {grown}"


def _remade(outcome: Mapping[str, Any]) -> str:
    memory = f"memory touched {outcome['touched']} times" if outcome["touched"] else "memory not touched"
    pairs = list(zip(outcome["first"], outcome["last"], strict=True))
    more = max(last["descriptors"] - first["descriptors"] for first, last in pairs)
    grown = show.size_text(max(last["resident"] - first["resident"] for first, last in pairs))
    slowest = show.seconds_text(outcome["slowest_s"])
    return f"{memory}; at most {slowest}; {more} more descriptors, RSS grown by {grown}"


def attack_text(outcome: Mapping[str, Any]) -> str:
    """Say what an attack on a prototype has given."""
    said = f" (`{' '.join(outcome['said'][0].split('] ')[-1].split())}`)" if outcome["said"] else ""
    if outcome["died_of"]:
        return f"the process dies of {outcome['died_of']}{said}"
    during, after = outcome["during"], outcome["after"]
    if during is None or not (during["over"] or after):
        return f"the process says nothing more{said}"
    if during["over"]:
        return "accepted as the peer's message"
    if during["first"] == _STRANGERS:
        return "written into the memory of a receive in progress; nobody is told"
    served = "the peer is served" if after["right"] else f"the peer is not served: {_told(after)}"
    dropped = f"{outcome['kept']} connections kept" if outcome["kept"] else "dropped"
    return f"{dropped}{said}; {served}"


def _table(
    found: Mapping[str, Mapping[str, Any]], texts: Mapping[str, str], names: Sequence[str], trials: bool
) -> list[str]:
    rows = [
        [
            texts[what],
            *(
                "does not apply"
                if name not in outcomes
                else outcome_text(what, outcomes[name])
                if trials
                else attack_text(outcomes[name])
                for name in names
            ),
        ]
        for what, outcomes in found.items()
    ]
    return page.rows(["what happens" if trials else "a stranger says", *names], rows)


def text(found: Mapping[str, Any]) -> str:
    """Make the page's part of what was measured."""
    names = list(found["versions"])
    which = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [page.folded(f"{page.host(found['machine'])}, {found['day']}; {which}."), ""]
    if "trials" in found:
        lines += [*_table(found["trials"], _TEXTS, names, trials=True), ""]
    if "strangers" in found:
        lines += [*_table(found["strangers"], _ATTACKS, names, trials=False), ""]
    if "speed" in found:
        lines += _speed(found["speed"], names)
    return "\n".join(lines)
