"""Algorithms without ranks beside Besch and Pohl's model of their time, which is fitted on 2 ranks.

T(P) = T(1) / min(P, cores) + 2 ceil(log2 P) (alpha + S / W), for partial results of S bytes on P ranks.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.quiet import others_text

_SIZES = ("256", "64K", "1M", "4M", "16M")
_QUICK_SIZES = ("256", "64K", "1M")
FITTED = 2  # ranks of the job that gives alpha and W


@dataclass(frozen=True)
class Model:
    """The time of one message: `alpha` seconds and `per_byte` (1 / W) seconds for each byte."""

    alpha: float
    per_byte: float

    def step(self, alone: float, size: int, ranks: int, cores: int) -> float:
        """Return the seconds of a step on `ranks` ranks that takes `alone` seconds on one."""
        messages = 2 * (ranks - 1).bit_length()
        return alone / min(ranks, cores) + messages * (self.alpha + size * self.per_byte)


def fitted(alone: Mapping[int, float], together: Mapping[int, float], ranks: int, cores: int) -> Model:
    """Fit the model to steps of one number of ranks by least squares, relative to each measurement.

    Args:
        alone: the seconds of a step on one rank, by size; two sizes or more.
        together: the same on `ranks` ranks.
        ranks: the number of ranks.
        cores: the number of cores.

    """
    messages = 2 * (ranks - 1).bit_length()
    rows = []  # of the equations alpha + size * per_byte = seconds, divided by the measured step
    for size, step in together.items():
        seconds = (step - alone[size] / min(ranks, cores)) / messages
        rows.append((1 / step, size / step, seconds / step))
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(row[i] * row[2] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return Model((ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.algorithms", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4], help="jobs to predict (default: 4)")
    parser.add_argument(
        "--sizes",
        type=show.parse_size,
        nargs="+",
        help=f"bytes of a partial result (default: {' '.join(_SIZES)})",
    )
    parser.add_argument("--shards", type=int, default=16, help="shards of the data (default: 16)")
    parser.add_argument("--products", type=int, default=8, help="matrix products of a shard (default: 8)")
    parser.add_argument("--steps", type=int, default=8, help="steps of a measurement (default: 8)")
    parser.add_argument("--repetitions", type=int, help="measurements of each cell (default: 9)")
    parser.add_argument("--quick", action="store_true", help="few sizes and repetitions: no numbers to keep")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    default = _QUICK_SIZES if arguments.quick else _SIZES
    spec = {
        "sizes": arguments.sizes or [show.parse_size(size) for size in default],
        "repetitions": arguments.repetitions or (2 if arguments.quick else 9),
        **{name: getattr(arguments, name) for name in ("shards", "products", "steps")},
    }
    if len(set(spec["sizes"])) < 2:
        raise launch.JobError("two sizes or more are needed to fit the model")
    mpirun = launch.find_launcher()
    machine = launch.machine(mpirun)
    jobs: dict[int, dict[str, Any]] = {}
    for ranks in sorted({1, FITTED, *arguments.ranks}):
        jobs[ranks] = launch.run_ranks(mpirun, "benchmarks.workers.algorithms", ranks, spec, 600)[0]
    median = {
        ranks: {int(size): statistics.median(seconds) for size, seconds in job["seconds"].items()}
        for ranks, job in jobs.items()
    }
    model = fitted(median[1], median[FITTED], FITTED, machine["cores"])
    console = show.console()
    bandwidth = f"{show.size_text(round(1 / model.per_byte))}/s" if model.per_byte > 0 else "without limit"
    constants = f"alpha {show.seconds_text(model.alpha)}, W {bandwidth}"
    console.print(f"{spec['shards']} shards; fitted on {FITTED} ranks: {constants}", highlight=False)
    rows = []
    for ranks in jobs:
        for size in spec["sizes"]:
            measured = median[ranks][size]
            predicted = model.step(median[1][size], size, ranks, machine["cores"]) if ranks > 1 else measured
            times = (show.seconds_text(measured), show.seconds_text(predicted))
            rows.append([str(ranks), show.size_text(size), *times, show.ratio_text(predicted / measured)])
    console.print(show.table(["ranks", "partial result", "a step", "model", "model / step"], rows))
    console.print(others_text(list(jobs.values())), highlight=False)
    result = {"machine": machine, **spec, "alpha": model.alpha, "per_byte": model.per_byte, "jobs": jobs}
    show.save(arguments.output / "algorithms.json", result)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
