"""161 tensors shaped like ResNet-50's gradients, submitted one by one, until all are summed."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.line import Line, faster
from benchmarks.table.run import Run

_GOALS = {
    (2, "gloo"): 6.0,
    (2, "gloo in buckets"): 3.5,
    (4, "gloo"): 20.0,
    (4, "gloo in buckets"): 4.0,
}
_PEERS = {"gloo": "Gloo, asynchronous", "gloo in buckets": "Gloo, in 25 MiB buckets", "mpi": "MPI, in turn"}


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """One job of 2 ranks and one of 4."""
    spec = {"tensors": 12 if quick else 161, "repetitions": 2 if quick else 21}
    return [{"ranks": ranks, **run("tensors", ranks, spec)[0]} for ranks in ((2,) if quick else (2, 4))]


def lines(found: list[dict[str, Any]]) -> list[Line]:
    """MPI has no goal: it is shown beside."""
    made = []
    for job in found:
        work = f"{job['tensors']} tensors, {show.size_text(job['bytes'])}, {job['ranks']} ranks"
        own = job["seconds"]["roundelay"]["median"]
        for peer, name in _PEERS.items():
            if peer in job["seconds"]:
                limit = _GOALS.get((job["ranks"], peer))
                made.append(faster(work, own, name, job["seconds"][peer]["median"], limit))
    return made
