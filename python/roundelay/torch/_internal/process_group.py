"""Makes the process groups of torch.distributed whose backend is Roundelay (csrc/process_group)."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from roundelay import _core
from roundelay._internal import error_report, trust
from roundelay.errors import HorovodInternalError, MismatchError
from roundelay.torch._internal import same_world
from roundelay.torch._internal.global_state import watch_process


class ProcessGroupError(HorovodInternalError, dist.DistBackendError):
    """A process group has failed: a rank is gone or late. The group cannot be used any more."""


class ProcessGroupMismatchError(MismatchError, ProcessGroupError):
    """Ranks of a process group have called different things: another operation, size, type or root."""


_core.set_c10d_errors(ProcessGroupError, ProcessGroupMismatchError)


def create(options: Any) -> dist.distributed_c10d.Backend:
    """Makes a group's backend: all its members call it. Blocks for at most ROUNDELAY_START_TIMEOUT.

    options: c10d's DistributedBackendOptions. Raises RuntimeError if the ranks cannot meet, or if this
    process has another rank in the job of ``hvd.init()``.
    """
    _lend_memory_to_ddp()
    rank, size = options.group_rank, options.group_size
    if not dist.is_initialized():
        same_world.check(rank, size)
    backend: dist.distributed_c10d.Backend = _core.make_c10d_backend(
        options.store, rank, size, str(options.group_id), _timeout(options.timeout), trust.secret()
    )
    error_report.tell_init()
    watch_process()
    return backend


def _lend_memory_to_ddp() -> None:
    """Lets DDP ask groups for its buckets' memory, which ranks of a node then reduce where it lies.

    DDP would ask NCCL, too, where there are GPUs: then this is the user's to decide.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _timeout(asked: timedelta) -> timedelta:
    return max(asked, timedelta(milliseconds=1))
