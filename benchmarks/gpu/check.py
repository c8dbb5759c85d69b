"""Run all GPU tests and benchmarks of this machine, in 5 minutes and 4 more with an MPI, into one JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.gpu import facts
from benchmarks.gpu.runner import ROOT, Check, Phase, Place, Step, run
from benchmarks.gpu.steps import PHASES, STEPS
from benchmarks.report import gpu as report

_NCCL_ALLOWS_IT = (2, 30, 3)  # this version and later ones allow several ranks on one GPU
# With earlier versions, ranks pretend to be on different hosts and connect over the loopback.
_AS_HOSTS = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_MAX_NCHANNELS": "2",
}
_DRY = {"MATRIX_CELL": "*-float32-vector-async*-world"}  # a few cells


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/gpu_check.sh", description=__doc__)
    parser.add_argument("--wheels", metavar="DIR", help="a folder of wheels for packages that are missing")
    parser.add_argument("--output", type=Path, default=Path("out/gpu.json"), help="default: out/gpu.json")
    parser.add_argument("--steps", nargs="+", metavar="WORD", help="only steps whose names have one of these")
    parser.add_argument("--dry-run", action="store_true", help="no GPU here: what runs on the fake device")
    parser.add_argument("--mpi", type=Path, metavar="PREFIX", help="the folder of an MPI; default: PATH's")
    parser.add_argument("--table", type=Path, metavar="JSON", help="run nothing: write docs/results/gpu.md")
    return parser


def sharing(nccl: tuple[int, ...] | None) -> Mapping[str, str]:
    """Return the variables that let several ranks of NCCL use one GPU."""
    allowed = nccl is not None and nccl >= _NCCL_ALLOWS_IT
    return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", **({} if allowed else _AS_HOSTS)}


def _place(dry: bool, output: Path) -> Place:
    folder = output.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    device = "fakegpu" if dry else "cuda"
    folders = ("python", "tests/python", "tests/python/support", ".")
    path = [*(str(ROOT / folder) for folder in folders), os.environ.get("PYTHONPATH", "")]
    environment = {
        **sharing(facts.nccl_version()),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "RANKS_DEVICE": device,
        "NVIDIA_TF32_OVERRIDE": "0",  # results are compared
        **(_DRY if dry else {}),
    }
    return Place(device, ROOT / "build" / ("dev" if dry else "gpu"), folder.resolve(), environment)


@dataclass
class _Course:
    """A run of the phases: when it began, and why later steps have no meaning."""

    place: Place
    dry: bool
    begin: float = field(default_factory=time.monotonic)
    broken: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self, step: Step, end_s: float) -> Check:
        """Run the step, unless something speaks against it."""
        left = self.begin + end_s - time.monotonic()
        why = step.dry if self.dry else ""
        why = why or self.broken or ("" if left > 0 else f"the {end_s:.0f} s were over")
        if why:
            return Check(step.name, None, message=f"not run: {why}")
        check = run(step, self.place, left, self.stop)
        if step.vital and check.ok is not True:
            self.broken = check.message if check.ok is None else f"'{step.name}' failed"
        return check

    def side_by_side(self, phase: Phase) -> Iterator[Check]:
        """Run the phase's steps in their order, some at once. Yield them as they end."""
        with ThreadPoolExecutor(phase.at_once) as pool:
            running = [pool.submit(self.check, step, phase.end_s) for step in phase.steps]
            try:
                for done in as_completed(running):
                    yield done.result()
            except BaseException:
                self.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def checks(phases: Sequence[Phase], place: Place, dry: bool) -> Generator[Check, None, None]:
    """Run the phases in order. Yield the checks as they end."""
    course = _Course(place, dry)
    for phase in phases:
        if phase.at_once == 1:
            yield from (course.check(step, phase.end_s) for step in phase.steps)
        else:
            yield from course.side_by_side(phase)


def _tell(check: Check) -> None:
    first, _, rest = check.message.partition("\n")
    print(f"{report.VERDICTS[check.ok]:8}{check.name}, {check.seconds:.1f} s  {first}", flush=True)
    if rest:
        print(rest, flush=True)


def _write(output: Path, result: Mapping[str, Any]) -> None:
    """Write the results so far, all or nothing."""
    part = output.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(output)


def _chosen(words: Sequence[str]) -> list[Phase]:
    """Return the phases with the steps whose names have one of the words."""
    return [
        dataclasses.replace(
            phase, steps=[step for step in phase.steps if any(word in step.name for word in words)]
        )
        for phase in PHASES
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if a check failed, 2 if nothing can be checked here."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.table:
        report.write_page(json.loads(arguments.table.read_text()))
        return 0
    dry = arguments.dry_run
    if problems := [] if dry else facts.problems():
        print("\n".join(f"gpu_check: {problem}" for problem in problems), file=sys.stderr)
        return 2
    phases = _chosen(arguments.steps or [""])
    if not any(phase.steps for phase in phases):
        parser.error(f"no step has one of these in its name: {', '.join(step.name for step in STEPS)}")
    if arguments.mpi:
        os.environ["PATH"] = os.pathsep.join([str(arguments.mpi.resolve() / "bin"), os.environ["PATH"]])
    places = {step.name: place for place, step in enumerate(STEPS)}
    found: list[Check] = []
    result: dict[str, Any] = {**facts.facts(dry), "dry_run": dry, "checks": []}
    for check in checks(phases, _place(dry, arguments.output), dry):
        _tell(check)
        found.append(check)
        found.sort(key=lambda check: places[check.name])
        result["checks"] = [dataclasses.asdict(check) for check in found]
        _write(arguments.output, result)
    show.console().print(show.table(report.COLUMNS, report.rows(result), texts=len(report.COLUMNS)))
    print(f"wrote {arguments.output}")
    return 1 if any(check.ok is False for check in found) else 0


if __name__ == "__main__":
    sys.exit(main())
