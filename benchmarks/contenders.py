"""Who is measured in benchmarks.allreduce: a blocking, in-place sum of a CPU tensor by each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist


class Contender(Protocol):
    """One library's allreduce."""

    name: str

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Tell why it cannot reduce this type; None if it can."""

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Make the call that sums `tensor` over all ranks in place and returns when that is done."""


class Roundelay:
    """`hvd.allreduce_`."""

    name = "roundelay"

    def __init__(self) -> None:
        import roundelay.torch as hvd

        hvd.init()
        self._hvd = hvd

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Nothing: it takes all of them."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """One name for a shape and type, as a training loop has it."""
        name = f"bench.{tensor.dtype}.{tensor.numel()}"
        return lambda: self._hvd.allreduce_(tensor, name=name, op=self._hvd.Sum)


class Gloo:
    """`torch.distributed.all_reduce`."""

    name = "gloo"

    def why_not(self, dtype: torch.dtype) -> str | None:
        """Nothing: it takes all of them."""
        return None

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Take the default group."""
        return lambda: dist.all_reduce(tensor)


class Mpi:
    """`MPI_Allreduce`, through mpi4py's buffer interface."""

    name = "mpi"

    def __init__(self) -> None:
        import mpi4py

        mpi4py.rc.finalize = False  # where Roundelay has started MPI, it also ends it
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD

    def why_not(self, dtype: torch.dtype) -> str | None:
        """MPI's predefined types end at float."""
        return None if dtype == torch.float32 else "MPI has no reduction of this type"

    def prepare(self, tensor: torch.Tensor) -> Callable[[], object]:
        """Reduce in place."""
        buffer = [tensor.numpy(), self._mpi.FLOAT]
        return lambda: self._world.Allreduce(self._mpi.IN_PLACE, buffer, op=self._mpi.SUM)


def enter() -> tuple[list[Contender], dict[str, str]]:
    """Start all contenders of this process; returns also who is missing, and why."""
    found: list[Contender] = [Roundelay(), Gloo()]
    missing = {}
    try:
        found.append(Mpi())
    except ImportError:
        missing["mpi"] = "mpi4py is not installed: pip install mpi4py"
    return found, missing
