"""The algorithms of an allreduce over MPI on one machine: the built-in choice beside each of them."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_RANKS = 4
_NAMES = ("pairwise", "recursive_doubling", "halving_doubling", "ring")
_SIZES = ("256", "16K", "1M")
_NO_FLOOR = ("", "")


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 4 ranks, which joins anew for each algorithm."""
    forced = {name: {"ROUNDELAY_ALGORITHM": name} for name in ("auto", *_NAMES)}
    spec = {
        "sizes": [show.parse_size(size) for size in (_SIZES[:1] if quick else _SIZES)],
        "repetitions": 2 if quick else 15,
        "ways": {name: {"ROUNDELAY_FABRIC": "mpi", **one} for name, one in forced.items()},
        "uplinks": [],
        "addresses": [],
    }
    return run("ways", _RANKS, spec)[0]


def results(found: dict[str, Any]) -> list[Result]:
    """Make one result for each size."""
    return [
        compare(
            f"{show.size_text(cell['bytes'])} fp32 over MPI, {_RANKS} ranks, the default algorithm",
            Samples(cell["seconds"], cell["others"]),
            {name: name for name in _NAMES},
            own="auto",
            floor=_NO_FLOOR,
        )
        for cell in found["cells"]
    ]
