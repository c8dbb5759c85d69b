"""One parameter's gradient between two steps: local, handed to the core, in flight, reduced."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch.compression import Compressor
from roundelay.torch.operations import LINEAR_OPS
from roundelay.torch.process_sets import ProcessSet, set_id


class Reduction(NamedTuple):
    """How the gradients of one optimizer are reduced; equal on all ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    compression: type[Compressor]
    sparse_as_dense: bool
    process_set: ProcessSet


class Holds(enum.IntEnum):
    """What ``parameter.grad`` holds."""

    LOCAL = 0  # this rank's contribution, or nothing
    FLIGHT = 1  # a tensor that is being reduced: nobody may touch it
    REDUCED = 2  # what all ranks agreed on since the last step


class Reducing:
    """One operation on its way, which the gradients in it wait for in turn: only the first wait costs."""

    __slots__ = ("_error", "_handle")

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._error: HorovodInternalError | None = None

    def wait(self) -> None:
        """Sleeps until it is done. Raises its error each time."""
        if self._error is not None:
            raise self._error
        if self._handle is not None:
            try:
                _core.synchronize(self._handle)
            except HorovodInternalError as error:
                self._error = error
                raise
            self._handle = None


@dataclass(slots=True)
class Contribution:
    """What this rank gives to one reduction. The result comes into ``gradient``."""

    gradient: torch.Tensor
    wire: torch.Tensor
    context: torch.dtype | None
    operation: Reducing | None = None  # that of the whole group, once it is submitted

    def wait(self, gradient: Gradient) -> torch.Tensor:
        """Sleeps until the reduction is done."""
        self.done()
        plain = self.gradient.detach()
        result = gradient.rule.compression.decompress(self.wire, self.context)
        if not _is_same(result, plain):
            plain.copy_(result)
        return self.gradient

    def done(self) -> None:
        """Sleeps until the reduction is done; its result stays where it is."""
        assert self.operation is not None
        self.operation.wait()


@dataclass(slots=True)
class InPool:
    """What all gradients of a bucket give that lie in the pool: each has its own there."""

    operation: Reducing

    def wait(self, gradient: Gradient) -> torch.Tensor:
        """Sleeps until the reduction is done."""
        self.done()
        result = gradient.land()
        assert result is not None
        return result

    def done(self) -> None:
        """Sleeps until the reduction is done; its result stays where it is."""
        self.operation.wait()


Flight = Contribution | InPool | Callable[[], torch.Tensor]  # a call: the result of a sparse reduction


class Gradient(_core.Arrival):
    """Parks and completes the gradient of one parameter.

    Autograd adds to ``.grad`` in place. Before it does (a tensor hook), a gradient that is in flight or
    already reduced is set aside, so that the new contribution is reduced on its own and added to it
    afterwards.
    """

    __slots__ = ("flights", "hooks", "name", "parked", "rule", "was_sparse")

    def __init__(self, parameter: torch.Tensor, name: str, rule: Reduction) -> None:
        super().__init__(parameter)
        self.name = name
        self.rule = rule
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.flights: list[Flight] = []
        self.parked: torch.Tensor | None = None
        self.was_sparse = False  # the last contribution, which was made dense

    def local(self) -> torch.Tensor | None:
        """This rank's contribution where ``.grad`` is one."""
        parameter = self.parameter
        return parameter.grad if parameter is not None and self.holds == Holds.LOCAL else None

    def notice_layout(self) -> int:
        """In how many dimensions ``.grad`` is sparse; 0: it is dense, or will be made so for the reduction.

        ValueError, on all ranks, where the op has no meaning for sparse tensors.
        """
        gradient = self.local()
        if gradient is None:
            return 0
        sparse = gradient.layout != torch.strided
        self.was_sparse = sparse and self.rule.sparse_as_dense
        if not sparse or self.was_sparse:
            return 0
        if self.rule.op not in LINEAR_OPS or gradient.layout != torch.sparse_coo:
            text = f"{self.name} has a sparse gradient: give DistributedOptimizer sparse_as_dense=True"
            _core.submit_error("allreduce", self.name, text, set_id(self.rule.process_set))
            raise ValueError(text)
        return gradient.sparse_dim()

    def make_room(self) -> None:
        """Before autograd adds to ``.grad``: sets aside what must not be added to."""
        parameter = self.parameter
        if parameter is None or self.holds == Holds.LOCAL:
            return
        if self.holds == Holds.REDUCED and parameter.grad is None:  # it was cleared
            self.holds = Holds.LOCAL
            return
        if self.rule.op not in LINEAR_OPS:
            raise RuntimeError(
                f"{self.name}: a second backward before step() needs op=Average or Sum, as others of "
                "several contributions cannot be put together"
            )
        if self.holds == Holds.REDUCED:
            self.parked = parameter.grad
        parameter.grad = None
        self.holds = Holds.LOCAL

    def take(self) -> torch.Tensor | None:
        """This rank's contribution since the last one; a reduced gradient is set aside for it."""
        if self.holds == Holds.REDUCED:
            self.make_room()
        self.accumulated = 0
        return self.local()

    def contribution(self, template: torch.Tensor) -> Contribution:
        """Takes ``.grad``, made dense, to be reduced in place; zeros like ``template`` where it is empty."""
        gradient = self.take()
        if gradient is None:
            gradient = torch.zeros_like(template, requires_grad=False)
        else:
            gradient = self.depart(gradient if gradient.layout == torch.strided else gradient.to_dense())
        plain = gradient.detach()
        return Contribution(gradient, *self.rule.compression.compress(plain))

    def sparse_contribution(self, template: torch.Tensor, dimensions: int) -> torch.Tensor:
        """Takes ``.grad`` as a sparse tensor, to be reduced out of place; an empty one where it is empty."""
        gradient = self.take()
        if gradient is None:
            indices = torch.empty((dimensions, 0), dtype=torch.int64, device=template.device)
            values = torch.empty(
                (0, *template.shape[dimensions:]), dtype=template.dtype, device=template.device
            )
            return torch.sparse_coo_tensor(indices, values, template.shape, check_invariants=False)
        if gradient.layout == torch.strided:
            gradient = gradient.detach().to_sparse(dimensions)
        return self.depart(gradient).detach()

    def depart(self, gradient: torch.Tensor) -> torch.Tensor:
        """``.grad`` is this tensor now, and in flight."""
        parameter = self.parameter
        assert parameter is not None
        parameter.grad = gradient
        self.holds = Holds.FLIGHT
        return gradient

    def finish(self) -> None:
        """Sleeps until all flights are done and puts the sum of them into ``.grad``."""
        total = self.parked
        while self.flights:
            flight = self.flights.pop(0)
            result = flight.wait(self) if isinstance(flight, InPool | Contribution) else flight()
            total = result if total is None else _sum(total, result)
        if self.was_sparse and total is not None and total.layout == torch.strided:
            total = total.detach().to_sparse()  # for optimizers that take no other
        parameter = self.parameter
        if parameter is None:
            return
        if self.holds == Holds.LOCAL and parameter.grad is not None:
            self.parked = total  # .grad holds the beginning of the next contribution
            return
        if parameter.requires_grad and parameter.grad is not total:
            parameter.grad = total
        self.parked = None
        self.holds = Holds.REDUCED

    def abandon(self) -> None:
        """After a failure: waits for what is in flight, whatever comes of it, and starts anew."""
        while self.flights:
            flight = self.flights.pop()
            try:
                if isinstance(flight, InPool | Contribution):
                    flight.done()
                else:
                    flight()
            except (RuntimeError, ValueError):
                continue  # the first failure is being raised already
        self.land()
        self.new_step()

    def new_step(self) -> None:
        """What ``.grad`` holds from now on is local again, as after ``step()`` or ``zero_grad()``."""
        self.parked = None
        self.holds = Holds.LOCAL
        self.accumulated = 0

    def own(self, number: int) -> None:
        """Is the gradient of the parameter with this id from now on; another optimizer's is no more."""
        previous = owners.get(number)
        if previous is not None and previous is not self:
            previous.replaced = True
            previous.release()
        owners[number] = self

    def release(self) -> None:
        """Takes the hooks off the parameter."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same elements of the same memory."""
    if a.data_ptr() != b.data_ptr() or a.dtype != b.dtype:
        return False
    return a.shape == b.shape and a.stride() == b.stride()


def _sum(total: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    if total.layout == torch.strided:
        total.detach().add_(result.detach())
        return total
    return result.detach() + total.detach()


# The optimizer's gradient that each parameter belongs to, by id(parameter): the last that was wrapped.
owners: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()
