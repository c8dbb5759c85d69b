"""Blocking sums of 1 and 25 MiB: ad hoc, in a pool, in half types."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.bare import compiler
from benchmarks.table.line import Goal, Line, faster, missing
from benchmarks.table.run import Run

_MIB = 1 << 20
_GOALS = {  # (bytes, ranks, who, peer): how many times as long the peer takes at least
    (25 * _MIB, 2, "roundelay", "gloo"): 10.0,
    (25 * _MIB, 4, "roundelay", "gloo"): 8.0,
    (25 * _MIB, 2, "roundelay", "mpi"): 2.5,
    (25 * _MIB, 4, "roundelay", "mpi"): 3.5,
    (_MIB, 2, "roundelay", "gloo"): 12.0,
    (_MIB, 2, "roundelay", "mpi"): 2.5,
    (25 * _MIB, 2, "pool", "mpi"): 3.0,
    (25 * _MIB, 4, "pool", "mpi"): 5.0,
}
_HALF_TO_GLOO = 15.0
_HALF_TO_OWN = 0.8  # speed by byte
_POOL_TO_BARE = 1.2
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}
_WHO = {"roundelay": "", "pool": ", in the pool"}


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """One job of 2 ranks and one of 4; all that is compared takes turns in one run."""
    jobs = []
    for ranks in (2,) if quick else (2, 4):
        spec = {
            "sizes": [_MIB, 25 * _MIB] if ranks == 2 else [25 * _MIB],
            "dtypes": ["float32", "float16", "bfloat16"] if ranks == 2 else ["float32"],
            "repetitions": 2 if quick else 31,
            "bare": compiler() is not None,
        }
        jobs.append({"ranks": ranks, "cells": run("allreduce", ranks, spec)[0]["cells"]})
    return jobs


def _cell_lines(cell: dict[str, Any], ranks: int) -> list[Line]:
    """Full precision."""
    size, seconds = cell["bytes"], cell["seconds"]
    made = []
    for who, where in _WHO.items():
        work = f"{show.size_text(size)} fp32{where}, {ranks} ranks"
        own = seconds[who]["median"]
        for peer, name in _PEERS.items():
            limit = _GOALS.get((size, ranks, who, peer))
            if limit is not None and peer in seconds:
                made.append(faster(work, own, name, seconds[peer]["median"], limit))
        if who == "pool" and size == 25 * _MIB:
            made.append(_beside_bare_work(work, seconds))
    return made


def _beside_bare_work(work: str, seconds: dict[str, dict[str, float]]) -> Line:
    if "bare" not in seconds:
        return missing(f"{work}, beside bare memory work", "no C++ compiler: name one in CXX")
    own, bare = (seconds[who]["median"] for who in ("pool", "bare"))
    texts = [show.seconds_text(time) for time in (own, bare)]
    goal = Goal(_POOL_TO_BARE, at_least=False)
    return Line(work, texts[0], "bare memory work", texts[1], own / bare, "x", goal)


def _half_lines(cell: dict[str, Any], full: dict[str, Any], ranks: int) -> list[Line]:
    work = f"{show.size_text(cell['bytes'])} {show.SHORT[cell['dtype']]}, {ranks} ranks"
    own = cell["seconds"]["roundelay"]["median"]
    return [
        faster(work, own, "Gloo", cell["seconds"]["gloo"]["median"], _HALF_TO_GLOO),
        faster(work, own, "own fp32", full["seconds"]["roundelay"]["median"], _HALF_TO_OWN),
    ]


def lines(found: list[dict[str, Any]]) -> list[Line]:
    """25 MiB first, as in the issue; half types only of 25 MiB."""
    made = []
    for job in found:
        cells = {(cell["bytes"], cell["dtype"]): cell for cell in job["cells"]}
        for (size, dtype), cell in sorted(cells.items(), key=lambda item: -item[0][0]):
            if dtype == "float32":
                made += _cell_lines(cell, job["ranks"])
            elif size == 25 * _MIB:
                made += _half_lines(cell, cells[size, "float32"], job["ranks"])
    return made
