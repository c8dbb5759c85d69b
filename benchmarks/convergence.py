"""Does training with a strategy end where dense training does? Curves of the test loss over several seeds.

Every strategy trains the same model from the same weights on the same batches. The spread over the seeds says
which differences mean something. "rate" is a multiple of the task's learning rate. "sent" is the part of the
gradients' bytes that the steps with a technique have given to their fabrics; dense ones, such as those of a
warm-up, do not count. A strategy that ends with " without feedback" loses what it does not send.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import launch, show
from benchmarks.table.markdown import rows as markdown_rows
from benchmarks.table.markdown import with_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
STORED = DOCS / "convergence.json"
NO_FEEDBACK = " without feedback"
BEGIN = "<!-- python -m benchmarks.convergence --docs writes from here -->"
TASKS = ("digits", "characters")
# The models are small, and so are the chunks.
_COLD = "csc:keep=0.1,dense_below=512,chunk_elements=256"
_CSC = f"{_COLD},warmup=100"
_TOPK = "topk:density=0.01,dense_below=512,warmup=100"
STRATEGIES = (
    "dense",
    *(_CSC, f"{_CSC},momentum=local", f"{_CSC},momentum=none", _COLD),
    *(_TOPK, f"{_TOPK},momentum=none", f"{_TOPK},momentum=none{NO_FEEDBACK}"),
    "power_sgd:rank=2,dense_below=512,warmup=100",
)
_STEPS = {"digits": 600, "characters": 1200}
_RATES = {"digits": (0.5, 1.0), "characters": (1.0,)}
_POINTS = 20  # of a curve
_COLUMNS = ["task", "rate", "strategy", "ranks", "seeds", "test loss", "range", "accuracy", "range", "sent"]


class Page(NamedTuple):
    """A page of the docs, and its picture. It has the strategies of one name, beside dense training."""

    text: Path
    picture: Path
    name: str

    def part(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return what the page shows of all results."""
        jobs = []
        for job in found["jobs"]:
            names = [run["strategy"].partition(":")[0] for run in job["runs"]]
            if self.name in names:
                runs = zip(job["runs"], names, strict=True)
                jobs.append({**job, "runs": [run for run, name in runs if name in ("dense", self.name)]})
        return {**found, "jobs": jobs}


PAGES = (
    Page(DOCS / "techniques" / "gradientflow.md", DOCS / "images" / "convergence.png", "csc"),
    Page(DOCS / "techniques" / "topk.md", DOCS / "images" / "convergence_topk.png", "topk"),
    Page(DOCS / "techniques" / "powersgd.md", DOCS / "images" / "convergence_powersgd.png", "power_sgd"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--strategies",
        nargs="+",
        default=list(STRATEGIES),
        metavar="TEXT",
        help=f"as --strategy takes them (default: {' '.join(STRATEGIES)})",
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each (default: 5)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="(default: 2 4)")
    parser.add_argument("--rates", type=float, nargs="+", help="instead of the tasks' own learning rates")
    parser.add_argument("--steps", type=int, help="instead of the tasks' own numbers of steps")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds of one job (default: 3600)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the picture")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="put these trainings into docs/convergence.json, its pictures and its tables instead",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    jobs = []
    for task, rate, ranks in _chosen(arguments):
        steps = arguments.steps or _STEPS[task]
        job = {"task": task, "rate": rate, "steps": steps}
        spec = {
            **job,
            "strategies": arguments.strategies,
            "seeds": arguments.seeds,
            "every": max(1, steps // _POINTS),
        }
        found = launch.run_ranks(mpirun, "benchmarks.workers.convergence", ranks, spec, arguments.timeout)[0]
        jobs.append({**job, "ranks": ranks, **found})
    console = show.console()
    console.print("Final test loss and accuracy, mean and range of the seeds")
    console.print(show.table(_COLUMNS, [row for job in jobs for row in rows(job)], texts=3))
    if arguments.docs:
        jobs = instead(json.loads(STORED.read_text())["jobs"], jobs)
    found = {"machine": launch.machine(mpirun), "jobs": jobs}
    if arguments.docs:
        keep(found)
    else:
        show.save(arguments.output / STORED.name, found)
        _draw(found, arguments.output / "convergence.png")


def _chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, float, int]]:
    """Yield the jobs: task, learning rate and number of ranks."""
    for task in arguments.tasks:
        for rate in arguments.rates or _RATES[task]:
            for ranks in arguments.ranks:
                yield task, rate, ranks


def _key(job: Mapping[str, Any]) -> tuple[int, float, int]:
    return TASKS.index(job["task"]), job["rate"], job["ranks"]


def instead(stored: Sequence[dict[str, Any]], jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored jobs in order, with these trainings instead of those of the same strategies.

    A stored job of another number of steps goes as a whole.
    """
    known = {_key(job): job for job in stored}
    for job in jobs:
        before = known.get(_key(job), job)
        new = {run["strategy"] for run in job["runs"]}
        stays = before["runs"] if before["steps"] == job["steps"] else []
        known[_key(job)] = {**job, "runs": [run for run in stays if run["strategy"] not in new] + job["runs"]}
    return [known[key] for key in sorted(known)]


def keep(found: dict[str, Any]) -> None:
    """Put the results into the docs: JSON, pictures and tables."""
    show.save(STORED, found)
    for page in PAGES:
        part = page.part(found)
        if part["jobs"]:
            _draw(part, page.picture)
        page.text.write_text(with_table(page.text.read_text(), training(page, part), BEGIN))


def _draw(found: dict[str, Any], picture: Path) -> None:
    show.draw("benchmarks.plot", "plot_convergence", found, picture)


def training(page: Page, part: dict[str, Any]) -> str:
    """Make what stands on the page: the picture and the table, of the page's part of the results."""
    if not part["jobs"]:
        return "No training is stored here yet.\n"
    ranks = " and ".join(str(count) for count in sorted({job["ranks"] for job in part["jobs"]}))
    picture = f"![Test loss over the steps on {ranks} ranks, mean and range of the seeds]"
    made = markdown_rows(_COLUMNS, [row for job in part["jobs"] for row in rows(job)])
    where = page.picture.relative_to(DOCS).as_posix()
    return "\n".join([f"{picture}(../{where})", "", "Mean and range of the seeds.", "", *made, ""])


def rows(job: dict[str, Any]) -> list[list[str]]:
    """Return the table's rows of one task and number of ranks."""
    made = []
    for strategy in dict.fromkeys(run["strategy"] for run in job["runs"]):
        runs = [run for run in job["runs"] if run["strategy"] == strategy]
        columns = []
        for values in zip(*(run["curve"][-1][1:] for run in runs), strict=True):  # losses, accuracies
            columns += [f"{statistics.mean(values):.4f}", f"{min(values):.4f} to {max(values):.4f}"]
        sent = statistics.mean(run["sent"] for run in runs)
        names = [job["task"], f"{job['rate']:g}x", strategy]
        made.append([*names, str(job["ranks"]), str(len(runs)), *columns, f"{sent:.1%}"])
    return made


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
