"""torch.distributed over backend roundelay beside Gloo: DDP's and FSDP2's steps, and small operations.

All take turns in one job. Scripts differ in the backend's name only. Exposed communication is the time that a
step takes longer than the same step without communication.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.quiet import others_text
from benchmarks.report import page
from benchmarks.train_step import summarised

STORED, PART = (
    page.RESULTS / "process_groups.json",
    page.part(page.RESULTS / "process_groups.md", "process_groups"),
)
_WAYS = (
    *("none", "roundelay", "ddp", "silent ddp", "ddp on roundelay"),
    *("plain ddp", "silent plain ddp", "plain ddp on roundelay"),
)
_MODELS, _SHARDED = ("resnet50", "transformer", "gpt2"), ("cnn", "transformer")
# Each way of each rank takes a gigabyte there: two ranks, and one kind of DDP.
_LARGE, _LARGE_RANKS, _LARGE_WAYS = "gpt2", 2, _WAYS[:5]
_KINDS = ("ddp", "plain ddp")
_DDP_COLUMNS = (
    *("ranks", "model", "DDP's options", "alone", "longer: no communication", "gloo", "roundelay"),
    *("communication: gloo / roundelay", "longer: roundelay / hvd"),
)
_FSDP_COLUMNS = ("ranks", "model", "alone", "step: gloo", "roundelay", "communication: gloo / roundelay")
_SMALL_COLUMNS = ("ranks", "gloo", "roundelay", "fake: no communication", "hvd.allreduce_")
_BUCKET_COLUMNS = ("ranks", "gloo", "roundelay: ordinary memory", "where DDP's buckets lie")
_SUMS = {"small": ("gloo", "roundelay", "fake", "hvd"), "buckets": ("gloo", "roundelay", "lent")}
_LEAST_DDP, _MOST_OF_HVD, _LEAST_FSDP, _MORE_US = 3.0, 1.3, 2.0, 5.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.process_groups", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="jobs to start (default: 2 4)")
    parser.add_argument(
        "--models", nargs="*", default=list(_MODELS), help="of DDP (default: resnet50 transformer gpt2)"
    )
    parser.add_argument(
        "--sharded", nargs="*", default=list(_SHARDED), help="of FSDP2 (default: cnn transformer)"
    )
    parser.add_argument("--repetitions", type=int, default=11, help="steps of each (default: 11)")
    parser.add_argument("--docs", action="store_true", help="store JSON and tables in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _measured(ranks: int, arguments: argparse.Namespace) -> dict[str, Any]:
    mpirun = launch.find_launcher()
    spec = {"repetitions": arguments.repetitions, "sharded": arguments.sharded}
    found = launch.run_ranks(mpirun, "benchmarks.workers.process_groups", ranks, spec, 1800)[0]
    large = _LARGE in arguments.models and ranks <= _LARGE_RANKS
    models = [model for model in arguments.models if model != _LARGE]
    steps = {"ways": _WAYS, "models": models, "repetitions": arguments.repetitions, "bare": False}
    cells = []
    for spec in (steps, {**steps, "ways": list(_LARGE_WAYS), "models": [_LARGE] * large}):
        if spec["models"]:
            cells += launch.run_ranks(mpirun, "benchmarks.workers.train_step", ranks, spec, 1800)[0]["cells"]
    return {"ranks": ranks, **found, "ddp": [summarised(cell) for cell in cells]}


def _kinds(cell: Mapping[str, Any]) -> list[str]:
    return [kind for kind in _KINDS if kind in cell["exposed"]]


def _communication(cell: Mapping[str, Any], way: str) -> float:
    """Return the median of the time that a step takes longer than alone."""
    alone = cell["seconds"]["none"]
    return float(median(step - base for step, base in zip(cell["seconds"][way], alone, strict=True)))


def _longer(cell: Mapping[str, Any], kind: str) -> tuple[float, float, float]:
    """Return by how much a step is longer than alone: silent, over gloo and over roundelay."""
    exposed = {way: found["median"] for way, found in cell["exposed"].items()}
    return exposed[f"silent {kind}"], exposed[kind], exposed[f"{kind} on roundelay"]


def ddp_rows(job: Mapping[str, Any]) -> list[list[str]]:
    """Make the rows of DDP."""
    made = []
    for cell in job["ddp"]:
        for kind in _kinds(cell):
            own, gloo, ours = _longer(cell, kind)
            options = "its defaults" if kind == "plain ddp" else "as bucket views, static graph"
            times = [show.seconds_text(one) for one in (cell["seconds"]["none"]["median"], own, gloo, ours)]
            of_hvd = ours / cell["exposed"]["roundelay"]["median"]
            ratio = f"{(gloo - own) / (ours - own):.2f}x" if ours > own else "too short to tell"
            ratios = [ratio, f"{of_hvd:.2f}x"]
            made.append([str(job["ranks"]), cell["model"], options, *times, *ratios])
    return made


def fsdp_rows(job: Mapping[str, Any]) -> list[list[str]]:
    """Make the rows of FSDP2."""
    made = []
    for cell in job["sharded"]:
        seconds = {way: median(all_) for way, all_ in cell["seconds"].items()}
        ratio = _communication(cell, "gloo") / _communication(cell, "roundelay")
        times = [show.seconds_text(seconds[way]) for way in ("none", "gloo", "roundelay")]
        made.append([str(job["ranks"]), cell["model"], *times, f"{ratio:.2f}x"])
    return made


def sum_rows(job: Mapping[str, Any], sums: str) -> list[list[str]]:
    """Make the row of blocking sums, "small" or "buckets"."""
    seconds = job[sums]["seconds"]
    return [[str(job["ranks"]), *(show.seconds_text(median(seconds[way])) for way in _SUMS[sums])]]


def goals(job: Mapping[str, Any]) -> list[str]:
    """Say which goals a job misses."""
    missed, name = [], f"{job['ranks']} ranks"
    for cell in job["ddp"]:
        for kind in _kinds(cell):
            own, gloo, ours = _longer(cell, kind)
            what = f"{name}, {cell['model']}, {kind}"
            if gloo - own < _LEAST_DDP * (ours - own):
                missed.append(
                    f"{what}: gloo's communication is {(gloo - own) / (ours - own):.2f} times (goal: 3)"
                )
            of_hvd = ours / cell["exposed"]["roundelay"]["median"]
            if of_hvd > _MOST_OF_HVD:
                missed.append(f"{what}: {of_hvd:.2f} times as long as hvd's (goal: 1.3)")
    for cell in job["sharded"]:
        ratio = _communication(cell, "gloo") / _communication(cell, "roundelay")
        if ratio < _LEAST_FSDP:
            missed.append(
                f"{name}, {cell['model']}, FSDP2: gloo's communication is {ratio:.2f} times (goal: 2)"
            )
    seconds = job["small"]["seconds"]
    ours, fake, of_hvd = (median(seconds[way]) * 1e6 for way in ("roundelay", "fake", "hvd"))
    if ours - fake - of_hvd > _MORE_US:
        more = f"{ours - fake - of_hvd:.1f} us more than hvd.allreduce_ and fake"
        missed.append(f"{name}: 256 B take {more} (goal: 5)")
    return missed


def document(jobs: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """Make the page's text."""
    lines = [f"{page.host(machine, 'torch')}.", ""]
    for title, columns, rows in (
        ("**DDP**", _DDP_COLUMNS, ddp_rows),
        ("**FSDP2**", _FSDP_COLUMNS, fsdp_rows),
        ("**256 B, blocking**", _SMALL_COLUMNS, partial(sum_rows, sums="small")),
        ("**25 MiB, blocking**", _BUCKET_COLUMNS, partial(sum_rows, sums="buckets")),
    ):
        lines += [title, "", *page.rows(columns, [row for job in jobs for row in rows(job)]), ""]
    missed = [line for job in jobs for line in goals(job)]
    lines += ["Goals that are missed:" if missed else "All goals are met.", *(f"- {line}" for line in missed)]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    jobs = []
    for ranks in arguments.ranks:
        job = _measured(ranks, arguments)
        jobs.append(job)
        console = show.console()
        console.print(show.table(_DDP_COLUMNS, ddp_rows(job)))
        console.print(show.table(_FSDP_COLUMNS, fsdp_rows(job)))
        console.print(show.table(_SMALL_COLUMNS, sum_rows(job, "small")))
        console.print(show.table(_BUCKET_COLUMNS, sum_rows(job, "buckets")))
        others = others_text([job["small"], job["buckets"], *job["sharded"], *job["ddp"]])
        console.print(others, highlight=False)
        for line in goals(job):
            print(f"- {line}")
    machine = launch.machine(launch.find_launcher())
    result = {"machine": machine, "jobs": jobs}
    show.save(STORED if arguments.docs else arguments.output / "process_groups.json", result)
    if arguments.docs:
        PART.write(document(jobs, machine))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
