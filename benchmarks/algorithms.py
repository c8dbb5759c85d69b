"""Algorithms without ranks beside Besch and Pohl's model of their time, which is fitted on 2 ranks.

T(P) = T(1) / min(P, cores) + 2 ceil(log2 P) (alpha + S / W), for partial results of S bytes on P ranks.
The ranks are in one node, or with --nodes each on a node of its own: a network namespace, which needs root.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import launch, measure, show
from benchmarks.quiet import others_text
from roundelay.run.modes.mpi import Mpirun
from tests.rig import Rig

FITTED = 2  # ranks of the job that gives alpha and W
_QUICK_SIZES = ("256", "64K", "1M")


@dataclass(frozen=True)
class _Place:
    """The ranks' machine or nodes, with the sizes and repetitions for it."""

    name: str
    ranks: tuple[int, ...]
    sizes: tuple[str, ...]
    products: int
    steps: int
    repetitions: int


_NODE = _Place("one node", (4,), ("256", "64K", "1M", "4M", "16M"), 8, 8, 9)
# The nodes share this machine's cores: so little is computed, and the wire takes most of a step.
_NODES = _Place("a node each", (4, 8), ("256", "512K", "1M", "2M"), 1, 3, 5)


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
    parser.add_argument("--nodes", action="store_true", help="each rank on a node of its own")
    parser.add_argument("--mbit", type=int, default=100, help="with --nodes: the wire's speed (default: 100)")
    parser.add_argument("--ranks", type=int, nargs="+", help="jobs to predict (default: 4; with --nodes 4 8)")
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help="bytes of a partial result, two or more"
    )
    parser.add_argument("--shards", type=int, default=16, help="shards of the data (default: 16)")
    parser.add_argument(
        "--products", type=int, help="matrix products of a shard (default: 8; with --nodes 1)"
    )
    parser.add_argument("--repetitions", type=int, help="of each measurement (default: 9; with --nodes 5)")
    parser.add_argument("--quick", action="store_true", help="few sizes and repetitions: no numbers to keep")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    place = _NODES if arguments.nodes else _NODE
    if arguments.nodes:
        launch.require_rig("nodes")
    sizes = _QUICK_SIZES if arguments.quick else place.sizes
    spec = {
        "sizes": arguments.sizes or [show.parse_size(size) for size in sizes],
        "repetitions": arguments.repetitions or (2 if arguments.quick else place.repetitions),
        "shards": arguments.shards,
        "products": arguments.products or place.products,
        "steps": place.steps,
    }
    if len(set(spec["sizes"])) < 2:
        raise launch.JobError("two sizes or more are needed to fit the model")
    mpirun = launch.find_launcher()
    machine = launch.machine(mpirun)
    mbit = arguments.mbit if arguments.nodes else None
    jobs = {
        str(ranks): _measured(mpirun, ranks, spec, mbit)
        for ranks in sorted({1, FITTED, *(arguments.ranks or place.ranks)})
    }
    found = {"place": place.name, "mbit": mbit, "machine": machine, **spec, "jobs": jobs}
    console = show.console()
    console.print(caption(found), highlight=False)
    console.print(show.table(*rows(found)))
    console.print(others_text(list(jobs.values())), highlight=False)
    show.save(arguments.output / "algorithms.json", found)


def _measured(mpirun: Mpirun, ranks: int, spec: dict[str, Any], mbit: int | None) -> dict[str, Any]:
    """Run one job. With `mbit` each rank has a node of its own."""
    with nullcontext() if mbit is None else Rig(ranks, mbit) as rig:
        job = launch.run_ranks(mpirun, "benchmarks.workers.algorithms", ranks, spec, 600, rig)[0]
    return measure.summarised(job)


def model_of(found: Mapping[str, Any]) -> tuple[Model, dict[int, dict[int, float]]]:
    """Return the model that fits the job of FITTED ranks, and the measured medians by ranks and size."""
    medians = {
        int(ranks): {int(size): times["median"] for size, times in job["seconds"].items()}
        for ranks, job in found["jobs"].items()
    }
    return fitted(medians[1], medians[FITTED], FITTED, found["machine"]["cores"]), medians


def caption(found: Mapping[str, Any]) -> str:
    """Tell what was measured, and the fitted constants."""
    model, _ = model_of(found)
    wire = f", {found['mbit']} Mbit/s between nodes" if found["mbit"] else ""
    bandwidth = f"{show.size_text(round(1 / model.per_byte))}/s" if model.per_byte > 0 else "without limit"
    fabric = found["jobs"][str(FITTED)]["fabric"]
    machine = f"{found['machine']['cores']} cores of an {found['machine']['cpu']}"
    fit = f"alpha = {show.seconds_text(model.alpha)}, W = {bandwidth} from {FITTED} ranks"
    return f"Ranks on {found['place']}{wire}, fabric {fabric}, {found['shards']} shards, {machine}; {fit}"


def rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a place's table: measured steps beside the model's."""
    model, medians = model_of(found)
    cores, others = found["machine"]["cores"], [ranks for ranks in medians if ranks > 1]
    columns = ["partial result", "1 rank"]
    for ranks in others:
        columns += [f"{ranks} ranks", "fit" if ranks == FITTED else "model"]
    lines = []
    for size, alone in medians[1].items():
        line = [show.size_text(size), show.seconds_text(alone)]
        for ranks in others:
            measured, said = medians[ranks][size], model.step(alone, size, ranks, cores)
            line += [show.seconds_text(measured), f"{show.seconds_text(said)} ({said / measured:.2f}x)"]
        lines.append(line)
    return columns, lines


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
