"""The tables of benchmarks.wires, of outcomes that are known, and what a stranger says."""

from __future__ import annotations

from typing import Any

from benchmarks.report import wires as report
from benchmarks.wires import stranger

NAMES = ["sockets", "ucx"]


def told(error: str = "", right: bool = True, over: bool = True) -> dict[str, Any]:
    return {"seconds": 2.0, "over": over, "error": error, "right": right, "first": 17}


def attacked(**values: Any) -> dict[str, Any]:
    during = {**told(right=False, over=False), "first": 0}
    return {"died_of": "", "said": [], "kept": 0, "during": during, "after": told(), **values}


def test_times_stand_beside_what_the_wire_needs() -> None:
    cell = {
        "mbit": 10_000,
        "what": "ping_pong",
        "bytes": 25 << 20,
        "seconds": {"sockets": {"median": 0.06}, "ucx": {"median": 0.08}},
        "cpu": {"sockets": {"median": 0.02}, "ucx": {"median": 0.03}},
    }
    first, kind, size, needs, *rest = report.speed_rows([cell], NAMES)[0]
    assert (first, kind, size, needs) == ("10 Gbit/s", "there and back", "25 MiB", "41.9 ms")
    assert rest == ["60 ms", "80 ms", "20 ms", "30 ms"]


def test_a_trial_says_who_was_told_what() -> None:
    both = {"sender": told(), "receiver": told(), "ended_s": 1.5}
    assert report.outcome_text("stopped", both) == "goes on, right bytes; over 1.5 s after"
    one = {**both, "receiver": told("timed out", right=False)}
    assert report.outcome_text("15 s", one) == (
        "sender: goes on, right bytes<br>receiver: error after 2 s: timed out"
    )
    nothing = {"sends": told(right=False, over=False)}
    assert report.outcome_text("unreachable", nothing) == "who sends: told nothing for 2 s"
    wrong = {"sends": told(right=False)}
    assert report.outcome_text("unreachable", wrong) == "who sends: wrong bytes"


def test_an_attack_is_dropped_or_not() -> None:
    assert report.attack_text(attacked()) == "dropped; the peer is served"
    assert report.attack_text(attacked(kept=250)) == "250 connections kept; the peer is served"
    assert report.attack_text(attacked(during=told())) == "accepted as the peer's message"
    written = {**told(right=False, over=False), "first": ord("w")}
    assert report.attack_text(attacked(during=written)).startswith("written into the memory")
    dead = attacked(died_of="SIGABRT", said=["[1.0] [node0:1   :0] tcp_ep.c:7 failed"], during=None)
    assert report.attack_text(dead) == "the process dies of SIGABRT (`tcp_ep.c:7 failed`)"
    hung = attacked(during=None, after=None)
    assert report.attack_text(hung) == "the process says nothing more"


def test_a_replay_is_renumbered_where_the_first_frame_has_the_number() -> None:
    said = bytes(18) + bytes(8) + b"address"
    changed = stranger.renumbered(said)
    assert changed.replace((7).to_bytes(8, "little"), bytes(8)) == said
    assert changed.endswith(b"address")
