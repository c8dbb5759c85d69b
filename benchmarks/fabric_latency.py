"""An allreduce of two ranks over fabric tcp, called directly, beside a ping-pong over a plain socket.

The ranks are two processes on two nodes, network namespaces of this machine (tests/rig), which need root.
Nothing is negotiated: the time is that of the fabric alone. Both take turns in the same processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page
from tests.rig import Rig

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "build" / "dev"
_PROGRAM = "bench_fabric_latency"
_PORT = 7079
_PING_PONG = "ping-pong"
_DEFAULT = "auto"  # the fabric chooses the algorithm
_SIZES = ("256", "4K", "64K")
_GOAL_SIZE, _GOAL_S = 4 << 10, 15e-6  # beside half a round trip
_LIMIT_S = 300.0
_COLUMNS = ["size", "algorithm", "allreduce", "half a round trip", "more"]
STORED = page.RESULTS / "fabric_latency.json"
PART = page.part(page.RESULTS / "data_planes.md", "fabric_latency")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fabric_latency", description=__doc__)
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--algorithms", nargs="+", default=[_DEFAULT], help=f"default: {_DEFAULT}")
    parser.add_argument("--mbit", type=int, default=10_000, help="the wire's speed, Mbit/s (default: 10000)")
    parser.add_argument("--repetitions", type=int, default=51, help="turns of each (default: 51)")
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _built() -> Path:
    command = ["cmake", "--build", str(_BUILD), "--target", _PROGRAM, "--", "--quiet"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip() or "no reason given").splitlines()[-1]
        raise launch.JobError(f"cmake: {said}")
    return _BUILD / "csrc" / _PROGRAM


def measured(
    mbit: int, algorithms: Sequence[str], sizes: Sequence[int], repetitions: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each turn, by size and by name."""
    program = _built()
    with Rig(2, mbit) as rig:
        arguments = [rig.address(0), str(_PORT), str(repetitions), ",".join(algorithms), *map(str, sizes)]
        ranks = [
            subprocess.Popen(
                [*rig.on(rank), str(program), str(rank), *arguments], stdout=subprocess.PIPE, text=True
            )
            for rank in (0, 1)
        ]
        outputs = [rank.communicate(timeout=_LIMIT_S)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise launch.JobError(f"{_PROGRAM} failed")
    found: dict[str, dict[str, list[float]]] = json.loads(outputs[0])
    return found


def rows(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> list[list[str]]:
    """Make the table's rows: an allreduce beside half of a ping-pong's round trip."""
    made = []
    for size in sorted(seconds, key=int):
        half = median(seconds[size][_PING_PONG])
        for name in seconds[size]:
            if name == _PING_PONG:
                continue
            took = median(seconds[size][name])
            times = [show.seconds_text(took), show.seconds_text(half), show.seconds_text(took - half)]
            made.append([show.size_text(int(size)), name, *times])
    return made


def goal(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Say how far the default's allreduce is from its goal."""
    turns = seconds[str(_GOAL_SIZE)]
    more = median(turns[_DEFAULT]) - median(turns[_PING_PONG])
    said = "met" if more <= _GOAL_S else "missed"
    size, allowed = show.size_text(_GOAL_SIZE), show.seconds_text(_GOAL_S)
    return f"Goal for {size}: half a round trip and {allowed}. It is {said}: {show.seconds_text(more)} more."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    sizes = given.sizes or [show.parse_size(size) for size in _SIZES]
    seconds = measured(given.mbit, given.algorithms, sizes, given.repetitions)
    show.console().print(show.table(_COLUMNS, rows(seconds), texts=2))
    reached = [goal(seconds)] if _GOAL_SIZE in sizes and _DEFAULT in given.algorithms else []
    for line in reached:
        print(line)
    found: dict[str, Any] = {"machine": launch.machine(launch.find_launcher()), "mbit": given.mbit}
    found["seconds"] = seconds
    show.save(STORED if given.docs else given.output / "fabric_latency.json", found)
    if given.docs:
        head = f"{page.host(found['machine'])}, {given.mbit / 1000:g} Gbit/s."
        PART.write("\n".join([head, "", *page.rows(_COLUMNS, rows(seconds)), "", *reached, ""]))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
