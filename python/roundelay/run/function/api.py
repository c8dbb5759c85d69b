"""`roundelay.run`: takes horovod.run's arguments and turns them into roundelayrun's flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | os.PathLike[str] | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    host_discovery_script: str | None = None,
    network_interfaces: str | None = None,
) -> list[T]:
    """Calls ``func(*args, **kwargs)`` as the ranks of one job; returns their results by rank.

    Each rank is a new process, in which ``func`` usually begins with ``hvd.init()``. cloudpickle carries
    function, arguments, results and exceptions. What ranks print appears on this process's ``sys.stdout`` and
    ``sys.stderr``. Any number of calls, on any thread; signal handlers stay. Interrupting it ends all ranks.

    num_proc, np: number of ranks (two names for one thing).
    hosts, hostfile: as roundelayrun's ``-H`` and ``--hostfile`` (default: this machine). Others are reached
    by ssh and need the same Python environment in the same place.
    ssh_port, ssh_identity_file, network_interface(s): as roundelayrun's flags, with other hosts.
    start_timeout: seconds in which all ranks must have started (default 30).
    output_filename: a folder; rank N's output goes to ``rank.N/stdout`` and ``rank.N/stderr`` in it as well.
    verbose: also print the line that starts the ranks, and each one's place.
    use_gloo, use_mpi: start without MPI, or with mpirun (default: as roundelayrun: without, where ranks can
    share memory); several hosts only without. mpi_args: more for mpirun, implies use_mpi.
    executable: the Python to run the ranks with (default: this one). disable_cache: no effect.
    All others are for elastic jobs: NotInThisVersionError.

    Raises the exception of the rank that failed first, its traceback there as the cause; RuntimeError with
    the text where it cannot be carried over, or a rank was killed, left by sys.exit() or never started.
    TypeError: function or arguments cannot be pickled. ValueError: the arguments make no sense; nothing ran.
    RuntimeWarning: all functions returned, but a process crashed afterwards, or was ended after 30 s.
    """
    refuse_elastic(
        min_num_proc=min_num_proc,
        max_num_proc=max_num_proc,
        min_np=min_np,
        max_np=max_np,
        slots=slots,
        reset_limit=reset_limit,
        cooldown_range=cooldown_range,
        host_discovery_script=host_discovery_script,
    )
    num_proc = ranks(num_proc, np)
    flags = where(num_proc, hosts, hostfile) + starter(use_gloo, use_mpi, mpi_args)
    for flag, value in (("--start-timeout", start_timeout), ("--output-filename", output_filename)):
        flags += [f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}"] if value else []
    flags += over_ssh(ssh_port, ssh_identity_file, network_interface or network_interfaces)
    flags += ["--verbose"] if verbose else []
    return _run(func, args, kwargs or {}, num_proc, flags, executable or sys.executable)


def refuse_elastic(**arguments: object) -> None:
    """Raises NotInThisVersionError naming what was given of the arguments that only elastic jobs have."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        from roundelay.errors import NotInThisVersionError

        raise NotInThisVersionError(
            f"roundelay.run({given[0]}=...) is for elastic jobs, which this version does not have"
        )


def ranks(num_proc: int, np: int | None) -> int:
    """Returns the number of ranks, which has two names."""
    if np is not None and num_proc not in (1, np):
        raise ValueError(f"num_proc={num_proc} and np={np} are two names for one number")
    count = num_proc if np is None else np
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"num_proc={count!r} is not a number of ranks, at least 1")
    return count


def where(num_proc: int, hosts: str | None, hostfile: str | os.PathLike[str] | None) -> list[str]:
    """Returns the flags for the number of ranks and their hosts."""
    if hosts is not None and hostfile is not None:
        raise ValueError("give hosts or hostfile, not both")
    count = ["-np", str(num_proc)]
    if hostfile is not None:
        return [*count, "--hostfile", os.fspath(hostfile)]
    return [*count, "-H", hosts if hosts is not None else f"localhost:{num_proc}"]


def over_ssh(port: int | None, identity_file: str | None, interfaces: str | None) -> list[str]:
    """Returns the flags of jobs on several hosts."""
    given = {"--ssh-port": port, "--ssh-identity-file": identity_file, "--network-interfaces": interfaces}
    return [f"{flag}={value}" for flag, value in given.items() if value is not None]


def starter(use_gloo: bool | None, use_mpi: bool | None, mpi_args: str | None) -> list[str]:
    """Returns the flags that choose the launch mode."""
    if use_gloo and (use_mpi or mpi_args):
        raise ValueError(f"use_gloo and {'use_mpi' if use_mpi else 'mpi_args'} exclude each other")
    flags = (["--gloo"] if use_gloo else []) + (["--mpi"] if use_mpi else [])
    return [*flags, *([f"--mpi-args={mpi_args}"] if mpi_args else [])]


def _run(
    func: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    num_proc: int,
    flags: list[str],
    executable: str,
) -> list[T]:
    # Imported here, as roundelayrun loads this package, too, and needs none of these.
    from roundelay.run.agent import protocol
    from roundelay.run.function import outcome, worker
    from roundelay.run.function.launcher_process import LauncherProcess
    from roundelay.run.function.payload import pack

    launcher = LauncherProcess(num_proc)
    program = [executable, worker.__file__, protocol.RESULT]
    end = launcher.run(pack(func, args, kwargs), [*flags, *program])
    return outcome.values(launcher.replies, end)
