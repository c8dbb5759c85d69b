"""`roundelay.run`: takes horovod.run's arguments and turns them into roundelayrun's flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from roundelay.run.function.options import ElasticOptions, JobOptions, number_of_ranks, one_of

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
    min_num_proc, min_np: an elastic job, which returns its last ranks' results. All others: docs/elastic.md.

    Raises the exception of the rank that failed first, its traceback there as the cause; RuntimeError with
    the text where it cannot be carried over, or a rank was killed, left by sys.exit() or never started.
    TypeError: function or arguments cannot be pickled. ValueError: the arguments make no sense; nothing ran.
    RuntimeWarning: all functions returned, but a process crashed afterwards, or was ended after 30 s.
    """
    elastic = elastic_options(locals())
    options = JobOptions(
        num_proc=number_of_ranks(num_proc, np),
        hosts=hosts,
        hostfile=hostfile,
        start_timeout=start_timeout,
        output_filename=output_filename,
        verbose=bool(verbose),
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        network_interfaces=network_interface or network_interfaces,
        modes={"gloo": bool(use_gloo), "mpi": bool(use_mpi)},
        mpi_args=mpi_args,
        executable=executable or sys.executable,
        elastic=elastic,
    )
    return _run(func, args, kwargs or {}, options)


def elastic_options(arguments: Mapping[str, Any]) -> ElasticOptions:
    """Returns those of run()'s arguments that are for elastic jobs. ValueError: they make no sense."""
    names = ("slots", "reset_limit", "cooldown_range", "host_discovery_script")
    least, most = (
        one_of(name, arguments[name], other, arguments[other])
        for name, other in (("min_num_proc", "min_np"), ("max_num_proc", "max_np"))
    )
    return ElasticOptions(least, most, **{name: arguments[name] for name in names})


def _run(
    func: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], options: JobOptions
) -> list[T]:
    # Imported here, as roundelayrun loads this package, too, and needs none of these.
    from roundelay.run.agent import protocol
    from roundelay.run.function import outcome, worker
    from roundelay.run.function.launcher_process import LauncherProcess
    from roundelay.run.function.payload import pack

    launcher = LauncherProcess(None if options.elastic.is_wanted else options.num_proc)
    program = [options.executable, worker.__file__, protocol.RESULT]
    end = launcher.run(pack(func, args, kwargs), [*options.flags(), *program])
    return outcome.values(launcher.replies, end)
