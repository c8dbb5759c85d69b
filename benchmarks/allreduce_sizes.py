"""From which size on an algorithm is the fastest, over messages that take time: measured and by the model.

The members are in one process. A clock that only messages move tells the time, so that the numbers are exact
and the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import launch, show
from benchmarks.report import lines, page, picture
from roundelay.tuning.cluster.fit import work
from roundelay.tuning.file import Measurement

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "build" / "dev"
_PROGRAM = "bench_allreduce_sizes"
PICTURE = page.IMAGES / "allreduce_sizes.png"
# Times of each algorithm by size.
Times = Mapping[str, Mapping[int, float]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allreduce_sizes", description=__doc__)
    parser.add_argument("--members", type=int, default=8, help="a power of two (default: 8)")
    parser.add_argument("--alpha-us", type=int, default=50, help="a message's latency (default: 50)")
    parser.add_argument("--mbit", type=int, default=1000, help="a member's rate, Mbit/s (default: 1000)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of JSON and picture")
    parser.add_argument("--docs", action="store_true", help="draw the picture of the docs")
    return parser


def model(times: Times, members: int, alpha: float, bandwidth: float) -> dict[str, dict[int, float]]:
    """Compute T = steps alpha + bytes / W for the same algorithms and sizes."""
    made: dict[str, dict[int, float]] = {}
    for algorithm, by_size in times.items():
        made[algorithm] = {}
        for size in by_size:
            steps_and_bytes = work(Measurement("", "allreduce", algorithm, members, size, 0, 0))
            if steps_and_bytes is None:
                raise launch.JobError(f"{algorithm} has no formula for {members} members")
            steps, sent = steps_and_bytes
            made[algorithm][size] = steps * alpha + sent / bandwidth
    return made


def crossover(times: Times, small: str, large: str) -> float | None:
    """Return the size from which `large` is faster, by interpolation; None if there is none."""
    sizes = sorted(times[small])
    ahead = [times[large][size] - times[small][size] for size in sizes]
    for index in range(1, len(sizes)):
        if ahead[index - 1] > 0 >= ahead[index]:
            share = ahead[index - 1] / (ahead[index - 1] - ahead[index])
            return sizes[index - 1] + share * (sizes[index] - sizes[index - 1])
    return None


def _run(members: int, alpha_us: int, mbit: int) -> Times:
    build = ["cmake", "--build", str(_BUILD), "--target", _PROGRAM, "--", "--quiet"]
    for command in (build, [str(_BUILD / "csrc" / _PROGRAM), str(members), str(alpha_us), str(mbit)]):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            said = (ended.stderr.strip() or ended.stdout.strip() or "no reason given").splitlines()[-1]
            raise launch.JobError(f"{command[0]}: {said}")
    times: dict[str, dict[int, float]] = {}
    for key, seconds in json.loads(ended.stdout).items():
        algorithm, size = key.split()
        times.setdefault(algorithm, {})[int(size)] = seconds
    return times


def rows(measured: Times, modelled: Times) -> list[list[str]]:
    """Make a row for each two algorithms of which the second one wins with larger messages."""
    made = []
    for small in measured:
        for large in measured:
            found, expected = (crossover(times, small, large) for times in (measured, modelled))
            if found is not None and expected is not None:
                sizes = [show.size_text(round(size)) for size in (found, expected)]
                made.append([small, large, *sizes, show.ratio_text(found / expected)])
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    members, alpha_us, mbit = arguments.members, arguments.alpha_us, arguments.mbit
    measured = _run(members, alpha_us, mbit)
    modelled = model(measured, members, alpha_us * 1e-6, mbit * 1e6 / 8)
    console = show.console()
    console.print(f"{members} members, {alpha_us} us a message, {mbit} Mbit/s", highlight=False)
    columns = ["smaller", "larger", "from", "by the model", "ratio"]
    console.print(show.table(columns, rows(measured, modelled), texts=2))
    found = {"members": members, "alpha_us": alpha_us, "mbit": mbit, "seconds": measured, "model": modelled}
    path = arguments.output / "allreduce_sizes.json"
    show.save(path, found)
    picture.draw(lines.allreduce_sizes, found, PICTURE if arguments.docs else path.with_suffix(".png"))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
