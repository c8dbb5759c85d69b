"""DataCache in front of a slow source: the first epoch, later epochs, and memory.

The source is data in memory with an artificial delay of each read, as a stand-in for a remote file system.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, measure, quiet, show
from benchmarks.report import bars, picture

FIRST_GOAL, LATER_GOAL = 1.1, 0.9  # times the epoch without a cache; of the speed of memory
SPEC = {"workers": 2, "samples": 1024, "side": 224, "delay": 0.01, "repetitions": 7, "disk": False}
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
    parser.add_argument("--workers", type=int, help="DataLoader workers of a rank (default: %(default)s)")
    parser.add_argument("--samples", type=int, help="images (default: %(default)s)")
    parser.add_argument("--side", type=int, help="pixels of an image's side (default: %(default)s)")
    parser.add_argument("--delay", type=float, help="seconds of a read (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, help="epochs of each kind (default: %(default)s)")
    parser.add_argument("--disk", action="store_true", help="keep the samples on disk: later epochs only")
    parser.add_argument("--plot", type=Path, help="also draw the epochs into this file")
    parser.set_defaults(**SPEC)
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
    spec = {name: getattr(arguments, name) for name in SPEC}
    ranks = launch.run_ranks(mpirun, "benchmarks.workers.data_cache", arguments.ranks, spec, 900)
    found = measure.summarised(ranks[0])
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
        picture.draw(bars.data_cache, result, arguments.plot)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
