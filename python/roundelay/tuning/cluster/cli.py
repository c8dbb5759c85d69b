"""``roundelay tune``: measures a cluster's algorithms, or a machine's layers, and writes the tuning file."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from roundelay import __version__
from roundelay._internal import output_file
from roundelay.run.errors import UsageError
from roundelay.run.system import hosts
from roundelay.tuning import file as tuning_file
from roundelay.tuning.cluster import choices, fit, job
from roundelay.tuning.cluster.lines import Plan
from roundelay.tuning.file import Tuning, TuningFileError
from roundelay.tuning.kernels.times import LayerTimes

_SIZES = tuple(256 << (2 * i) for i in range(9))  # 256 B to 16 MiB
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_EPILOG = """All other arguments go to roundelayrun: -H, --hostfile, --mpi, --network-interfaces ...

examples:
  roundelay tune -np 8 -H node1:4,node2:4 --output tuning.json
  roundelayrun -np 8 -H node1:4,node2:4 --tuning tuning.json python train.py
  roundelay tune --layers --output tuning.json
  roundelay plan --model resnet50 --batch-size 64 --tuning tuning.json"""
_MINUTES = 4.0
_WIDTH = 140  # columns of a table that does not go to a terminal


def _size(text: str) -> int:
    unit = text[-1:].upper() if text[-1:].upper() in ("K", "M", "G") else ""
    try:
        size = int(text[: len(text) - len(unit)]) * _UNITS[unit]
    except ValueError:
        size = 0
    if size < 4:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of at least 4 bytes, such as 64K or 16M")
    return size


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roundelay tune",
        description="Measures each algorithm on this cluster, or layers on this machine, for a tuning file.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="roundelay tune [-np N] [-H HOSTS] [roundelayrun's flags] [--output FILE]",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("tuning.json"),
        metavar="FILE",
        help="the file to write (default: tuning.json)",
    )
    parser.add_argument(
        "-np",
        "--num-proc",
        type=int,
        metavar="N",
        help="ranks (default: the slots of -H, or this machine's cores)",
    )
    parser.add_argument("-H", "--hosts", metavar="LIST", help="hosts and slots: h1:2,h2:4")
    parser.add_argument(
        "--sizes",
        type=_size,
        nargs="+",
        default=list(_SIZES),
        metavar="SIZE",
        help="bytes of the operations (default: 256 to 16M, each four times the last)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="the number of measurements of each size, whose median counts (default: 3)",
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="learn the times of layers on this machine instead, for roundelay plan --model",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=_MINUTES,
        metavar="M",
        help=f"the minutes for which --layers measures (default: {_MINUTES:g})",
    )
    return parser


def _launcher_words(given: argparse.Namespace, others: Sequence[str]) -> list[str]:
    ranks = given.num_proc
    if ranks is None and given.hosts is not None:
        ranks = sum(host.slots for host in hosts.parse_hosts(given.hosts))
    if ranks is None:
        ranks = len(os.sched_getaffinity(0))
    if ranks < 2:
        raise UsageError("a single rank has nothing to tune: give -np N with 2 ranks or more")
    words = ["-np", str(ranks)]
    if given.hosts is not None:
        words += ["-H", given.hosts]
    return [*words, *others]


def _check_output(path: Path) -> None:
    """Raises UsageError if the file could not be written after the measurement."""
    reason = output_file.objection(path)
    if reason is None and not os.access(path.parent, os.W_OK):
        reason = f"the folder {os.fspath(path.parent)!r} cannot be written to"
    if reason is not None:
        raise UsageError(f"cannot write --output {os.fspath(path)!r}: {reason}")


def _measure(words: Sequence[str], plan: Plan, console: Console) -> job.Found:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting the ranks", total=None)

        def progress(done: int, cells: int, what: str) -> None:
            bar.update(task, completed=done, total=cells, description=what)

        return job.run(words, plan, progress, bar.console.print)


def tuning_of(found: job.Found, layers: LayerTimes | None = None) -> Tuning:
    """Fits the links and chooses the algorithms. layers: those of the old file, which stay in it."""
    links = (
        fit.link(level, found.measured, found.senders.get(level.name, 1.0)) for level in found.cluster.levels
    )
    return Tuning(
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        roundelay=__version__,
        cluster=found.cluster,
        links=tuple(link for link in links if link is not None),
        measured=found.measured,
        table=choices.table(found.measured),
        layers=layers,
    )


def _show(tuning: Tuning, senders: Mapping[str, float], console: Console) -> None:
    members = {level.name: level.members for level in tuning.cluster.levels}
    links = Table("level", "alpha", "bandwidth of a rank", "CPU time", "fit's error", "of other operations")
    for link in tuning.links:
        others = fit.errors(link, members[link.level], tuning.measured, senders.get(link.level, 1.0))
        links.add_row(
            link.level,
            f"{link.alpha * 1e6:.1f} us",
            f"{link.bandwidth / 1e6:.1f} MB/s",
            f"{link.gamma * 1e9:.2f} ns/B",
            f"{link.error:.0%}",
            ", ".join(f"{name} {error:.0%}" for name, error in others.items() if name != "allreduce"),
        )
    console.print(links)
    table = Table("level", "operation", "ranks", "up to", "algorithm")
    for one in tuning.table:
        most = "any" if one.most_bytes is None else f"{one.most_bytes:,} B"
        table.add_row(one.level, one.operation, f"{one.ranks}+", most, one.algorithm)
    if tuning.table:
        console.print(table)
    else:
        console.print("All ranks are on one node: shared memory has one way of each operation.")


def _tune_layers(given: argparse.Namespace, others: Sequence[str]) -> None:
    """Learns the times of layers, and adds them to the file. Raises UsageError, TuningFileError."""
    if others or given.num_proc is not None or given.hosts is not None:
        raise UsageError(
            "--layers measures this machine without ranks: leave out all but --minutes, --output"
        )
    if not 0 < given.minutes < math.inf:
        raise UsageError(f"--minutes {given.minutes:g}: give more than 0")
    from roundelay.tuning.kernels import layer_command  # imports torch

    layer_command.check()
    before = layer_command.before(given.output)
    layers = layer_command.run(60 * given.minutes, Console(stderr=True))
    tuning_file.save(layer_command.add(layers, before), given.output)
    layer_command.show(layers, Console(width=None if sys.stdout.isatty() else _WIDTH))
    print(f"wrote {given.output}; use it with roundelay plan --model NAME --tuning {given.output}")


def _kept_layers(path: Path) -> LayerTimes | None:
    """Returns the layers of a file that will be written anew; None: the file is not there, or has none."""
    try:
        return tuning_file.load(path).layers
    except TuningFileError:
        return None


def _tune(given: argparse.Namespace, others: Sequence[str]) -> None:
    """Measures the cluster. Raises UsageError, JobError."""
    if given.rounds < 1:
        raise UsageError(f"--rounds {given.rounds}: give 1 or more")
    words = _launcher_words(given, others)
    plan = Plan(tuple(sorted(set(given.sizes))), given.rounds, seconds_a_cell=0.1, longest_seconds=1.0)
    found = _measure(words, plan, Console(stderr=True))
    tuning = tuning_of(found, _kept_layers(given.output))
    tuning_file.save(tuning, given.output)
    _show(tuning, found.senders, Console())
    print(f"wrote {given.output}; use it with roundelayrun --tuning {given.output}, or ROUNDELAY_TUNING")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 2 for wrong use."""
    given, others = _parser().parse_known_args(argv)
    try:
        _check_output(given.output)
        (_tune_layers if given.layers else _tune)(given, others)
    except (UsageError, TuningFileError) as error:
        print(f"roundelay tune: error: {error}", file=sys.stderr)
        return 2
    except job.JobError as error:
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
