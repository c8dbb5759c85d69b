"""The kernels of PowerSGD beside torch.matmul, one thread: `python -m benchmarks.low_rank`.

Build the target bench_low_rank first. torch.matmul multiplies a matrix alone. The kernels add its residual to
it as well, and expand() writes the result and the new residual.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import show

_PROGRAM = Path(__file__).resolve().parent.parent / "build" / "dev" / "csrc" / "bench_low_rank"
_ROWS, _COLUMNS, _ROUNDS = 4096, 2048, 15  # as in low_rank.cc


def _median(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_ROUNDS + 1):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def main() -> None:
    """Print a row for each rank and kernel."""
    torch.set_num_threads(1)
    found = json.loads(subprocess.run([_PROGRAM], check=True, capture_output=True, text=True).stdout)
    matrix = torch.full((_ROWS, _COLUMNS), 0.5)
    rows = []
    for rank in (1, 2, 4, 8):
        left, right = torch.full((_ROWS, rank), 0.001), torch.full((_COLUMNS, rank), 0.001)
        peers = {
            "project": _median(lambda right=right: matrix @ right),  # type: ignore[misc]
            "project_back": _median(lambda left=left: matrix.t() @ left),  # type: ignore[misc]
            "expand": _median(lambda left=left, right=right: torch.mm(left, right.t())),  # type: ignore[misc]
        }
        for kernel, peer in peers.items():
            name = f"{kernel}_rank_{rank}"
            seconds, part = found["seconds"][name], found["fractions"][name]
            rows.append(
                [kernel, str(rank), show.seconds_text(seconds), show.seconds_text(peer), f"{part:.2f}"]
            )
    columns = ["kernel", "rank", "time", "torch.matmul", "bandwidth by memcpy's"]
    show.console().print(show.table(columns, rows, texts=1))


if __name__ == "__main__":
    main()
