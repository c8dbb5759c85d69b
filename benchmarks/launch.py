"""Starts the ranks of a measurement with the installed MPI, and returns their results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.processes import end
from roundelay.run.errors import UsageError
from roundelay.run.modes.mpi import Mpirun, MpirunJob, command_line, exported, find_mpirun
from tests.rig import Rig, why_not

_ROOT = Path(__file__).resolve().parent.parent
GATE = "gate"  # a file in the job's folder: one counter per rank, each in a cache line of its own
GATE_STRIDE = 64
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


class JobError(Exception):
    """A measurement did not finish. Holds the reason and the command's exit code."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(f"benchmarks: {why}")
        self.code = code


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Turn a JobError into one line on stderr and its exit code, for a command's main."""
    try:
        yield
    except JobError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def require_rig(what: str) -> None:
    """Raise JobError, with the reason, if this machine can have no such nodes or racks (tests/rig)."""
    if reason := why_not():
        raise JobError(f"no {what} on this machine: {reason}")


def find_launcher() -> Mpirun:
    """Return the mpirun to use. Raises JobError with the line that says what is missing."""
    try:
        return find_mpirun(os.environ)
    except UsageError as error:
        raise JobError(str(error)) from None


def own_rank() -> int:
    """Return this process's rank, which mpirun's variables give."""
    for variable in _RANK_VARIABLES:
        if variable in os.environ:
            return int(os.environ[variable])
    raise RuntimeError("started by no mpirun: run `python -m benchmarks.table` or `benchmarks.allreduce`")


def run_ranks(
    mpirun: Mpirun,
    module: str,
    ranks: int,
    spec: dict[str, Any],
    timeout: float,
    rig: Rig | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Run `python -m module` on this machine's ranks with one thread each.

    Args:
        mpirun: the command that starts the ranks.
        module: a module whose `main(spec)` runs on every rank; see `worker`.
        ranks: the number of ranks.
        spec: the measurement, as JSON values.
        timeout: the seconds after which all ranks are ended.
        rig: the hosts of the ranks (Open MPI only); None means this one.
        variables: more variables of the ranks' environment.

    Returns:
        The result of each rank's `main`.

    Raises:
        JobError: a rank failed, with mpirun's exit code, or did not end in time.

    """
    with tempfile.TemporaryDirectory(prefix="roundelay-bench-") as folder:
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps({**spec, "ranks": ranks, "folder": folder}))
        (Path(folder) / GATE).write_bytes(bytes(GATE_STRIDE * ranks))
        interface = "eth0" if rig else "lo"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": interface,
            **(variables or {}),
        }
        program = [sys.executable, "-m", module, str(path)]
        if rig is None:
            job = MpirunJob(ranks, [], True, exported(environment, one_machine=True), [], program)
            command = command_line(mpirun, job)
        else:
            slots = [ranks // rig.nodes] * rig.nodes
            exports = exported(environment, one_machine=False)
            command = rig.mpirun(str(mpirun.path), slots, program, exports)
        # A process group of its own, so that the end of a job leaves no process.
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except BaseException as error:
            end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                why = f"{module} with {ranks} ranks did not end within {timeout:.0f} s"
                raise JobError(why) from None
            raise
        results = [Path(folder) / f"result{rank}.json" for rank in range(ranks)]
        if code != 0 or not all(result.exists() for result in results):
            raise JobError(f"{module} with {ranks} ranks failed: exit code {code}", code or 1)
        return [json.loads(result.read_text()) for result in results]


def machine(mpirun: Mpirun) -> dict[str, Any]:
    """Describe the machine and the software that were measured."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        # Names such as "AMD EPYC" do not tell how wide the vectors are, on which times and last bits depend.
        "cpu": f"{_cpu_name()} with {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "mpi": f"{mpirun.flavour.value} {mpirun.version}",
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
