"""Blocking sums of 1 and 25 MiB: ad hoc, in a pool, in half types."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.bare import compiler
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_MIB = 1 << 20
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}
OWN_FP32 = "own fp32"


def measure(run: Run, quick: bool) -> list[dict[str, Any]]:
    """Run a job of 2 ranks and one of 4. All contenders take turns in one run."""
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


def _work(cell: dict[str, Any], ranks: int, where: str = "") -> str:
    return f"{show.size_text(cell['bytes'])} {show.SHORT[cell['dtype']]}{where}, {ranks} ranks"


def _full(cell: dict[str, Any], ranks: int) -> list[Result]:
    """Make the results of full precision: ad hoc sums, and 25 MiB in the pool too."""
    samples = Samples(cell["seconds"], cell["others"])
    work, pooled = _work(cell, ranks), _work(cell, ranks, ", in the pool")
    made = [compare(work, samples, _PEERS, headline=work)]
    if cell["bytes"] == 25 * _MIB:
        made.append(compare(pooled, samples, _PEERS, own="pool", headline=pooled))
    return made


def _half(cell: dict[str, Any], full: dict[str, Any], ranks: int) -> Result:
    """Compare a half type with Gloo, and per byte with Roundelay's fp32, which took turns with it."""
    seconds = {**cell["seconds"], "own": full["seconds"]["roundelay"]}
    work = _work(cell, ranks)
    headline = work if cell["dtype"] == "bfloat16" else ""
    return compare(work, Samples(seconds, cell["others"]), {**_PEERS, "own": OWN_FP32}, headline=headline)


def results(found: list[dict[str, Any]]) -> list[Result]:
    """Make the results, 25 MiB first. Half types have 25 MiB only."""
    made = []
    for job in found:
        cells = {(cell["bytes"], cell["dtype"]): cell for cell in job["cells"]}
        for (size, dtype), cell in sorted(cells.items(), key=lambda item: -item[0][0]):
            if dtype == "float32":
                made += _full(cell, job["ranks"])
            elif size == 25 * _MIB:
                made.append(_half(cell, cells[size, "float32"], job["ranks"]))
    return made
