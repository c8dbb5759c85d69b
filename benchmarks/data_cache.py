"""DataCache in front of a slow source: the first epoch, later epochs, and memory.

The source is data in memory with an artificial delay of each read, as a stand-in for a remote file system.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, quiet, show

FIRST_GOAL, LATER_GOAL = 1.1, 0.9  # times the epoch without a cache; of the speed of memory
_COLUMNS = ["epoch", "seconds", "quartiles", "samples/s"]
_PAIRS = (
    ("first epoch / without a cache", "first, with a cache", "first, without a cache", FIRST_GOAL),
    ("memory / later epoch", "later, from memory", "later, with a cache", LATER_GOAL),
    (
        "the same without a transform",
        "later, from memory, no transform",
        "later, with a cache, no transform",
        LATER_GOAL,
    ),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_cache", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="ranks (default: 2)")
    parser.add_argument("--workers", type=int, default=2, help="DataLoader workers of a rank (default: 2)")
    parser.add_argument("--samples", type=int, default=1024, help="images (default: 1024)")
    parser.add_argument("--side", type=int, default=224, help="pixels of an image's side (default: 224)")
    parser.add_argument("--delay", type=float, default=0.01, help="seconds of a read (default: 0.01)")
    parser.add_argument("--repetitions", type=int, default=7, help="epochs of each kind (default: 7)")
    parser.add_argument("--disk", action="store_true", help="keep the samples on disk: later epochs only")
    parser.add_argument("--plot", type=Path, help="also draw the epochs into this file")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def ratios(seconds: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return the ratios of medians, with their goals. The first may not be larger, the others not smaller."""
    return [
        {"name": name, "ratio": seconds[above]["median"] / seconds[below]["median"], "goal": goal}
        for name, above, below, goal in _PAIRS
        if above in seconds
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    names = ("workers", "samples", "side", "delay", "repetitions", "disk")
    spec = {name: getattr(arguments, name) for name in names}
    found = launch.run_ranks(mpirun, "benchmarks.workers.data_cache", arguments.ranks, spec, 900)[0]
    console = show.console()
    console.print(
        f"{arguments.ranks} ranks of {arguments.workers} workers, {arguments.samples} images of "
        f"{show.size_text(3 * arguments.side**2)}, a read takes {show.seconds_text(arguments.delay)}  "
        f"{quiet.others_text([found])}",
        highlight=False,
    )
    rows = [
        [
            name,
            show.seconds_text(times["median"]),
            show.interval(times["low"], times["high"], "s"),
            f"{arguments.samples / times['median']:.0f}",
        ]
        for name, times in found["seconds"].items()
    ]
    console.print(show.table(_COLUMNS, rows, texts=1))
    found["ratios"] = ratios(found["seconds"])
    for one in found["ratios"]:
        sign = "<=" if one["goal"] == FIRST_GOAL else ">="
        console.print(f"{one['name']}: {one['ratio']:.3f} (goal {sign} {one['goal']})", highlight=False)
    memory = found["memory"]
    console.print(
        f"kept: {memory['samples']} samples, {show.size_text(memory['kept'])}; all processes together have "
        f"{show.size_text(memory['share'])} of it in memory, and map {show.size_text(memory['mapped'])}",
        highlight=False,
    )
    result = {"machine": launch.machine(mpirun), "ranks": arguments.ranks, **spec, **found}
    show.save(arguments.output / f"data_cache{'_disk' if arguments.disk else ''}.json", result)
    if arguments.plot is not None:
        show.draw("benchmarks.plot", "plot_data_cache", result, arguments.plot)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
