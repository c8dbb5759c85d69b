"""The contenders of benchmarks.allreduce: each makes a blocking, in-place sum of a CPU tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from roundelay import _core


class Contender(Protocol):
    """One library's allreduce."""

    name: str

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return why it cannot reduce this type; None if it can."""

    def make(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a tensor where this library reduces tensors. All ranks call it alike."""
        return torch.empty(count, dtype=dtype)

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Return a call that sums `tensor` over all ranks in place and waits for the result."""


class Roundelay(Contender):
    """`hvd.allreduce_`."""

    name = "roundelay"

    def __init__(self) -> None:
        import roundelay.torch as hvd

        hvd.init()
        self._hvd = hvd

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use one name for each shape and type, as a training loop does."""
        name = f"bench.{tensor.dtype}.{tensor.numel()}"
        return lambda: self._hvd.allreduce_(tensor, name=name, op=self._hvd.Sum)


class Pool(Contender):
    """Roundelay's sum of a gradient in a pool, as DistributedOptimizer has them."""

    name = "pool"

    def __init__(self) -> None:
        from roundelay import _core
        from roundelay.torch._internal.operations import Sum

        self._core = _core
        self._sum = Sum
        self._keys = itertools.count(1)
        self._pools: dict[int, _core.GradientPool] = {}  # by the tensor's address

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def make(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a pool with one entry."""
        pool = self._core.GradientPool(next(self._keys), count * dtype.itemsize, 0, torch.device("cpu"))
        tensor = pool.fill(pool.add(0, torch.empty(count, dtype=dtype), dtype), None)
        self._pools[tensor.data_ptr()] = pool
        return tensor

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use one name for each shape, type and place."""
        pool = self._pools.pop(tensor.data_ptr())
        name = f"pool.{tensor.dtype}.{next(self._keys)}"
        size, dtype = tensor.numel() * tensor.itemsize, tensor.dtype
        return lambda: self._core.synchronize(pool.allreduce_async(size, dtype, name, self._sum))


class Gloo(Contender):
    """`torch.distributed.all_reduce`."""

    name = "gloo"

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Return None: it can reduce all types."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Use the default group."""
        return lambda: dist.all_reduce(tensor)


class Mpi(Contender):
    """`MPI_Allreduce`, through mpi4py's buffer interface."""

    name = "mpi"

    def __init__(self) -> None:
        import mpi4py

        mpi4py.rc.finalize = False  # if Roundelay has started MPI, it also ends it
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Refuse half types: MPI's predefined types end at float."""
        return None if dtype == torch.float32 else "MPI has no reduction of this type"

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Reduce in place."""
        buffer = [tensor.numpy(), self._mpi.FLOAT]
        return lambda: self._world.Allreduce(self._mpi.IN_PLACE, buffer, op=self._mpi.SUM)


def enter() -> tuple[list[Contender], dict[str, str]]:
    """Start all contenders of this process; return them, and the reason for each that is missing."""
    found: list[Contender] = [Roundelay(), Pool(), Gloo()]
    missing = {}
    try:
        found.append(Mpi())
    except ImportError:
        missing["mpi"] = "mpi4py is not installed: pip install mpi4py"
    return found, missing
