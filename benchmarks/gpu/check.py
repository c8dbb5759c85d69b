"""Run all GPU tests and benchmarks of this machine, in under 10 minutes, into one JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import show
from benchmarks.gpu import facts
from benchmarks.gpu.runner import ROOT, Check, Place, Step, run
from benchmarks.gpu.steps import STEPS
from benchmarks.report import gpu as report

_LIMIT_S = 570.0
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


def checks(steps: Sequence[Step], place: Place, dry: bool) -> Iterator[Check]:
    """Run the steps in order, within the time limit."""
    deadline = time.monotonic() + _LIMIT_S
    broken = ""
    for step in steps:
        left = deadline - time.monotonic()
        why = step.dry if dry else ""
        why = why or broken or ("" if left > 0 else f"the {_LIMIT_S:.0f} s were over")
        check = Check(step.name, None, message=f"not run: {why}") if why else run(step, place, left)
        if step.vital and not why and check.ok is not True:
            broken = check.message if check.ok is None else f"'{step.name}' failed"
        yield check


def _tell(check: Check) -> None:
    first, _, rest = check.message.partition("\n")
    print(f"{report.VERDICTS[check.ok]:8}{check.name}, {check.seconds:.1f} s  {first}", flush=True)
    if rest:
        print(rest, flush=True)


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
    words = arguments.steps or [""]
    steps = [step for step in STEPS if any(word in step.name for word in words)]
    if not steps:
        parser.error(f"no step has one of these in its name: {', '.join(step.name for step in STEPS)}")
    found = []
    for check in checks(steps, _place(dry, arguments.output), dry):
        _tell(check)
        found.append(check)
    result = {**facts.facts(dry), "dry_run": dry, "checks": [dataclasses.asdict(check) for check in found]}
    show.console().print(show.table(report.COLUMNS, report.rows(result), texts=len(report.COLUMNS)))
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {arguments.output}")
    return 1 if any(check.ok is False for check in found) else 0


if __name__ == "__main__":
    sys.exit(main())
