"""Puts a backend wherever PyTorch's tests list gloo, without a change to PyTorch's files.

The tests choose by name what they run. Decorators and bodies compare the module's constant BACKEND: it stays
"gloo" (or another name, `listed_as`), and init_process_group() takes this name for the backend under test. A
group that a test asks of gloo by its own name, new_group(backend=dist.Backend.GLOO), is one of gloo's. Tables
are compared with what dist.get_backend() says: they get the other name as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

from tests.torch_suite import without_gpus

GLOO = "gloo"


@dataclass(frozen=True)
class Part:
    """Some of the tests. `listed_as`: for whose sake they are run; `gpus`: those of GPUs too, on the CPU."""

    what: str
    listed_as: str = GLOO
    gpus: bool = False


# These compare dist.get_backend() with BACKEND, and choose nothing by it.
ASK_THE_NAME = {"test_get_backend"}

# A test belongs to the first part that does not skip it.
PARTS = {
    "gloo": Part("what gloo runs"),
    "mpi": Part("what MPI alone runs", "mpi"),
    "gpu": Part("what gloo runs on GPUs, with tensors on the CPU", gpus=True),
    "nccl": Part("what NCCL alone runs on GPUs, with tensors on the CPU", "nccl", gpus=True),
}


def load(backend: str, world_size: int, part: Part) -> ModuleType:
    """Import PyTorch's module of tests, in a process that has not, for ranks of `backend`."""
    listed_as = part.listed_as
    os.environ["WORLD_SIZE"] = str(world_size)
    os.environ["BACKEND"] = listed_as
    os.environ["INIT_METHOD"] = "file://"  # each test gets a file of its own (cases.py)

    import torch.distributed as dist
    from torch.testing._internal import common_distributed

    tables = common_distributed.DistTestCases
    _add(tables.backend_feature.values(), backend)
    _add(tables.skip_collective.values(), backend)
    dist.is_mpi_available = dist.is_nccl_available = lambda: True  # whose tests are wanted, and not these
    if part.gpus:
        without_gpus.allow_tests(common_distributed)
    from torch.testing._internal.distributed import distributed_test

    _add([value for name, value in vars(distributed_test).items() if name.endswith("_BACKENDS")], backend)
    os.environ["BACKEND"] = GLOO  # asked at run time: MPI's tests start ranks as they need them
    dist.init_process_group = _taken_for({listed_as, GLOO}, backend, dist.init_process_group)
    if backend != GLOO:
        dist.monitored_barrier = monitored_barrier
    return distributed_test


def _add(tables: Any, backend: str) -> None:
    for table in tables:
        if GLOO in table and backend not in table:
            table.add(backend) if isinstance(table, set) else table.append(backend)


def _taken_for(names: set[str], backend: str, init: Callable[..., None]) -> Callable[..., None]:
    def init_process_group(*args: Any, **more: Any) -> None:
        if more.get("backend") in names:
            more["backend"] = backend
        init(*args, **more)

    return init_process_group


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Stand for `dist.monitored_barrier`, which refuses every name but gloo, and calls the group's then."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    if c10d._rank_not_in_group(group):
        return
    if isinstance(timeout, float):
        timeout = timedelta(seconds=timeout)
    own: Any = group or dist.group.WORLD
    own.monitored_barrier(timeout or c10d.default_pg_timeout, wait_all_ranks=wait_all_ranks)
