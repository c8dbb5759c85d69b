"""Epochs through DataCache, beside those without it and from memory."""

from __future__ import annotations

from typing import Any

from benchmarks import data_cache, show
from benchmarks.table.result import Estimate, Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_RANKS = 2
FIRST, LATER = "DataCache: first epoch", "DataCache: later epochs"
PLAIN = f"{LATER}, without a transform"
MEMORY = "DataCache: memory of the samples, all processes"
_PAIRS = {  # by work: what it is in the measurement, its floor there, and the floor's name
    FIRST: ("first, with a cache", "first, without a cache", "without a cache"),
    LATER: ("later, with a cache", "later, from memory", "from memory"),
    PLAIN: ("later, with a cache, no transform", "later, from memory, no transform", "from memory"),
}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    less = {"samples": 32, "side": 32, "delay": 1e-3, "repetitions": 2}
    spec = data_cache.SPEC | (less if quick else {"repetitions": 15})
    return {**spec, **run("data_cache", _RANKS, spec)[0]}


def results(found: dict[str, Any]) -> list[Result]:
    """Make the results: three kinds of epochs, and how much memory one copy of the samples takes."""
    samples = Samples(found["seconds"], found["others"])
    size = show.size_text(3 * found["side"] ** 2)
    note = f"{found['samples']} images of {size}, {_RANKS} ranks of {found['workers']} workers"
    made = [
        compare(work, samples, {}, own=own, floor=(floor, text), note=note)
        for work, (own, floor, text) in _PAIRS.items()
    ]
    share, kept = (float(found["memory"][name]) for name in ("share", "kept"))
    over = Estimate(share / kept)
    return [*made, Result(MEMORY, "B", Estimate(share), (), Estimate(kept), "one copy", over)]
