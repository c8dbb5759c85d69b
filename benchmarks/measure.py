"""Runs things turn by turn and sums up their times. Needs a Gloo process group."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.launch import own_rank


def join(spec: Mapping[str, Any]) -> int:
    """Make the Gloo group of all ranks; returns this rank."""
    rank = own_rank()
    torch.set_num_threads(1)
    meeting = Path(spec["folder"]) / "gloo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=spec["ranks"])
    return rank


def worker(main: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Be one rank of `launch.run_ranks`: calls `main` with the spec, keeps what rank 0 returns."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    found = main(spec)
    if own_rank() == 0:
        (Path(spec["folder"]) / "result.json").write_text(json.dumps(found))


def take_turns(
    turns: Mapping[str, Callable[[], float]], repetitions: int, warmups: int = 1
) -> dict[str, list[float]]:
    """Time each in every repetition, beginning with another one each time, so that drift hits all alike.

    Args:
        turns: by name, what does one measurement and returns its seconds on this rank.
        repetitions: how many measurements of each count.
        warmups: how many before do not.

    Returns:
        By name, the seconds of each repetition: of the slowest rank.

    """
    names = list(turns)
    own: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(warmups + repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            dist.barrier()
            seconds = turns[name]()
            if repetition >= warmups:
                own[name].append(seconds)
    times = torch.tensor([own[name] for name in names], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return {name: row.tolist() for name, row in zip(names, times, strict=True)}


def summary(seconds: list[float]) -> dict[str, float]:
    """Take the median and the quartiles, in seconds."""
    quarters = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {
        "median": statistics.median(seconds),
        "low": quarters[0],
        "high": quarters[2],
        "least": min(seconds),
    }


def timed(run: Callable[[], object]) -> float:
    """Tell how many seconds a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
