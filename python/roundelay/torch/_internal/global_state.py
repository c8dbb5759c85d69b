"""The state of this process in its job: init, shutdown, ranks and sizes, features of this build, timeline."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from roundelay import _core
from roundelay._internal import (
    backend,
    error_report,
    exits,
    gpu,
    launch_detection,
    mpi_modules,
    subset,
    trust,
)
from roundelay._internal.launch_detection import Rendezvous
from roundelay.errors import HorovodInternalError
from roundelay.run.agent import member
from roundelay.torch._internal import generations, same_world
from roundelay.torch._internal.operations.handles import forget_handles
from roundelay.torch._internal.optimizer.arguments import check_variable
from roundelay.torch._internal.optimizer.distributed import restart_scopes, wrapped
from roundelay.torch._internal.tuning import calibration
from roundelay.torch._internal.unreduced import unreduced
from roundelay.torch.process_sets import ProcessSet, add_process_set, forget_process_sets, make_again
from roundelay.tuning import file as tuning_file

is_initialized = _core.is_initialized
# csrc/bootstrap/rank_info.h describes these numbers. ValueError before init().
rank = _core.rank
size = _core.size
local_rank = _core.local_rank
local_size = _core.local_size
cross_rank = _core.cross_rank
cross_size = _core.cross_size
is_homogeneous = _core.is_homogeneous


def init(comm: Any = None, process_sets: Sequence[Any] | str | None = None) -> None:
    """Joins the job; calling it again does nothing, after ``shutdown`` it starts anew.

    Collective over all ranks that one launcher started; without a launcher size is 1. comm: a subset of these
    ranks that is the job: a list, the same everywhere, or an mpi4py communicator, which may be freed
    afterwards. Only the subset's ranks call, and others may call for a job of their own. process_sets: sets
    to add, the same on all ranks; they count ranks within ``comm``. More sets can be added later: Horovod's
    "dynamic" changes nothing. Raises RuntimeError with the cure if the launcher and the build do not fit,
    ValueError for a variable with a bad value, and for a bad ``comm`` or process set.
    """
    chosen = subset.read(comm)
    wanted = _checked_sets(process_sets)
    if _core.is_initialized():
        outside = [one for one in wanted if one.process_set_id is None]
        if outside:
            raise ValueError(f"init was called before: use hvd.add_process_set({outside[0].ranks})")
        return
    config = _core.load_config()
    check_variable()
    gpu.load()
    tuning, tuning_error = _tuning(config.tuning)

    def join(path: str | None, store: Rendezvous | None, generation: int = 0) -> None:
        _core.init(
            path,
            None if store is None else _core.Rendezvous(**dataclasses.asdict(store)),
            list(chosen.ranks),
            chosen.communicator,
            launch_detection.rack(os.environ),
            tuning,
            tuning_error,
            trust.secret(),
            generation,
        )

    def join_with_sets(path: str | None, store: Rendezvous | None, generation: int) -> None:
        join(path, store, generation)
        try:
            make_again()
        except BaseException:
            _core.shutdown()
            forget_process_sets(generation)
            raise

    worker = member.of_this_process()
    if worker is None:
        join(*subset.choose(chosen, config.bootstrap))
    elif comm is not None:
        raise ValueError("init: the ranks of an elastic job come and go, so comm= cannot name some of them")
    else:
        generations.join_next(worker, join_with_sets)
    subset.entered(chosen)
    error_report.tell_init()
    restart_scopes()
    watch_process()
    if _core.rank() == 0 and _core.size() > 1 and not wrapped():
        unreduced.begin()
    try:
        if comm is None:
            same_world.check_with_process_group()
        for one in wanted:
            add_process_set(one)
    except BaseException:
        shutdown()
        raise


def watch_process() -> None:
    """Begins to tell peers what ends this process, if it does not end in order. Later calls do nothing."""
    _ExceptionReport.install()
    exits.watch()


def _tuning(path: str) -> tuple[str, str]:
    """Returns the text of the tuning file, and why there is none. Rank 0's counts, and no rank knows yet."""
    if not path:
        return "", ""
    try:
        return tuning_file.agreed_text(tuning_file.load(path)), ""
    except tuning_file.TuningFileError as error:
        return "", str(error)


def _checked_sets(process_sets: Any) -> list[ProcessSet]:
    if process_sets is None or process_sets == "dynamic":
        return []
    if isinstance(process_sets, str | ProcessSet) or not isinstance(process_sets, Iterable):
        raise ValueError(f'process_sets must be a list of ProcessSets, "dynamic" or None: {process_sets!r}')
    return [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in process_sets]


def shutdown() -> None:
    """Leaves the job; Python calls it at exit, too.

    Operations still outstanding on any rank fail with HorovodInternalError.
    """
    optimizer = unreduced.end()
    if optimizer and _core.is_initialized() and not error_report.failed():
        _core.log_warning(
            f"{optimizer} took steps, but this job of {_core.size()} ranks has reduced no gradients: each "
            "rank has trained a model of its own. Wrap the optimizer after hvd.init(): "
            "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())"
        )
    _core.shutdown()
    forget_handles()
    forget_process_sets(generations.present())
    calibration.forget()


class _ExceptionReport:
    """Tells the peers which exception ends this process; their own errors name it as the cause."""

    installed = False

    @classmethod
    def install(cls) -> None:
        """Installs an excepthook that first calls the present hook, which shows the traceback."""
        if cls.installed:
            return
        cls.installed = True
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            interactive = hasattr(sys, "ps1") or sys.flags.interactive  # the process goes on
            if not interactive:
                error_report.tell_peers(error)

        sys.excepthook = hook


def _leave() -> None:
    """Leaves the job at the interpreter's end. Daemon threads that still communicate then end quietly."""
    if _core.is_initialized():
        before = threading.excepthook

        def hook(ended: threading.ExceptHookArgs) -> None:
            late = isinstance(ended.exc_value, HorovodInternalError | ValueError) and (
                issubclass(ended.exc_type, HorovodInternalError)
                or "not been initialized" in str(ended.exc_value)
            )
            if not (late and ended.thread is not None and ended.thread.daemon):
                before(ended)

        threading.excepthook = hook
    ended_by = exits.failure()
    if ended_by is not None:
        error_report.fail(f"ended by {ended_by} (look at its own last lines)")
    _core.stop_c10d_backends()
    shutdown()


atexit.register(_leave)
os.register_at_fork(after_in_child=_core.after_fork)


def mpi_built() -> bool:
    """Returns whether this build has a module that speaks MPI."""
    return bool(mpi_modules.built())


def mpi_enabled() -> bool:
    """Returns whether this process uses MPI, or would: this build has it, and an MPI launcher is here."""
    path, launch = backend.choose(_core.load_config().bootstrap)
    return path is not None and launch.bootstrap == "mpi"


def mpi_threads_supported() -> bool:
    """Returns whether MPI has MPI_THREAD_MULTIPLE. Call it after ``init``."""
    _core.size()  # raises ValueError before init
    path, launch = backend.choose(_core.load_config().bootstrap)
    if path is None or launch.bootstrap != "mpi":
        return False
    return "MPI_THREAD_MULTIPLE" in _core.backend_description(path)


def cuda_built() -> bool:
    """Returns whether this build has the module for NVIDIA's GPUs."""
    return backend.cuda_module() is not None


def nccl_built() -> int:
    """Returns the version code of the NCCL to use, such as 23007; 0 without NCCL or CUDA."""
    return _core.nccl_version(gpu.nccl_library()) if cuda_built() else 0


def gloo_built() -> bool:
    """Returns whether this build can use PyTorch's Gloo, for ranks that MPI did not start."""
    return backend.c10d_module() is not None


def gloo_enabled() -> bool:
    """Returns whether this process finds its peers through PyTorch's store, as under torchrun."""
    return backend.choose(_core.load_config().bootstrap)[1].bootstrap == "store"


def _not_built() -> bool:
    """Returns False: this build has no such backend."""
    return False


ddl_built = ccl_built = rocm_built = _not_built


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts to record a timeline of all ranks into ``file_path`` (Chrome trace JSON).

    Every rank may call it; rank 0's call counts, and ends a recording that runs. mark_cycles: the timeline
    marks each order. At init ROUNDELAY_TIMELINE (or HOROVOD_TIMELINE) must be DYNAMIC or a path; ValueError
    otherwise, and for a path that cannot be written.
    """
    _core.size()
    if not _core.config().timeline:
        raise ValueError("start_timeline needs ROUNDELAY_TIMELINE=DYNAMIC (or a path) when init() is called")
    _core.start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """Ends the recording and completes the file. Rank 0's call counts."""
    _core.stop_timeline()
