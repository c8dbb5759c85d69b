"""What the checks ask of MPI on GPUs' memory: which MPI there is, whether it takes that memory, and how fast.

`python -m benchmarks.gpu.mpi which`, `... takes` and `... allreduce --ranks 2` print JSON. The ranks' kind of
device is RANKS_DEVICE's, as in the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.launch import ending_in_one_line, find_launcher, run_ranks
from roundelay.run.arguments import checks
from roundelay.run.errors import UsageError
from roundelay.run.modes.mpi import find_mpirun

CACHED = "mpi with --pointer-cache"
_WAYS = ("mpi", "staged", "nccl")
_RANK = "benchmarks.workers.gpu_mpi"
_LIMIT_S = 120.0


def which(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the MPI for which the modules can be built, or why there is none."""
    try:
        mpirun = find_mpirun(environment)
    except UsageError as error:
        return {"mpi": "", "why_not": str(error)}
    name = f"{mpirun.flavour.value} {mpirun.version}, {mpirun.found}"
    # The build looks for the compiler in these folders, too (cmake/Mpi.cmake).
    home = Path(environment.get("ROUNDELAY_MPI_HOME") or ".") / "bin"
    folders = [environment.get("PATH", ""), str(home), str(Path(sys.executable).parent)]
    has_compiler = shutil.which("mpicxx", path=os.pathsep.join(folders)) is not None
    missing = f"{name} has no mpicxx: install the MPI's files for development"
    return {"mpi": name, "why_not": "" if has_compiler else missing}


def takes() -> dict[str, Any]:
    """Return why MPI does not take a GPU's memory, as the fabric finds out; "": it does."""
    return run_ranks(find_launcher(), _RANK, 2, {"work": "takes"}, _LIMIT_S)[0]


def allreduce(ranks: int) -> dict[str, Any]:
    """Return the seconds of allreduces over MPI, with and without pointer cache, beside the other fabrics."""
    mpirun = find_launcher()
    found = run_ranks(mpirun, _RANK, ranks, {"work": "time", "ways": _WAYS}, _LIMIT_S)[0]
    preload = {"LD_PRELOAD": checks.pointer_cache_library()}
    cached = run_ranks(
        mpirun, _RANK, ranks, {"work": "time", "ways": _WAYS[:1]}, _LIMIT_S, variables=preload
    )[0]
    seconds = {**found["seconds"], CACHED: cached["seconds"]["mpi"]}
    return {**found, "ranks": ranks, "seconds": seconds, "questions": cached["questions"]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.mpi", description=__doc__)
    parser.add_argument("what", choices=["which", "takes", "allreduce"])
    parser.add_argument("--ranks", type=int, default=2, help="of allreduce (default: 2)")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # run_ranks ends its ranks then
    with ending_in_one_line():
        if arguments.what == "which":
            found = which(os.environ)
        elif arguments.what == "takes":
            found = takes()
        else:
            found = allreduce(arguments.ranks)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
