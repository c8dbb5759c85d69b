"""161 tensors shaped like ResNet-50's gradients, submitted one by one, until all are summed."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.bare import compiler
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

ASYNCHRONOUS, BUCKETS = "Gloo, asynchronous", "Gloo, in 25 MiB buckets"
_PEERS = {"gloo": ASYNCHRONOUS, "gloo in buckets": BUCKETS, "mpi": "MPI, in turn"}


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """Run a job of 2 ranks and one of 4."""
    spec = {
        "tensors": 12 if quick else 161,
        "repetitions": 2 if quick else 21,
        "bare": compiler() is not None,
    }
    return [{"ranks": ranks, **run("tensors", ranks, spec)[0]} for ranks in ((2,) if quick else (2, 4))]


def results(found: list[dict[str, Any]]) -> list[Result]:
    """Make one result for each number of ranks."""
    made = []
    for job in found:
        work = f"{job['tensors']} tensors, {show.size_text(job['bytes'])}, {job['ranks']} ranks"
        made.append(compare(work, Samples(job["seconds"], job["others"]), _PEERS, headline=work))
    return made
