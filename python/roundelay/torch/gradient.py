"""One parameter's gradient between two steps: handed to the core, in flight, reduced."""

from __future__ import annotations

import enum
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.torch.compression import Compressor
from roundelay.torch.operations import LINEAR_OPS


class Reduction(NamedTuple):
    """How the gradients of one optimizer are reduced; equal on all ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    compression: type[Compressor]
    sparse_as_dense: bool


class Holds(enum.Enum):
    """What ``parameter.grad`` holds."""

    LOCAL = 0  # this rank's contribution, or nothing
    FLIGHT = 1  # a tensor that is being reduced: nobody may touch it
    REDUCED = 2  # what all ranks agreed on since the last step


@dataclass(slots=True)
class _Flight:
    handle: int
    gradient: torch.Tensor
    wire: torch.Tensor
    context: torch.dtype | None
    compressed: bool


class Gradient:
    """Submits, parks and completes the gradient of one parameter.

    Autograd adds to ``.grad`` in place. Before it does (a tensor hook), a gradient that is in flight or
    already reduced is set aside, so that the new contribution is reduced on its own and added to it
    afterwards.
    """

    __slots__ = (
        "__weakref__",
        "_parameter",
        "accumulated",
        "flights",
        "holds",
        "hooks",
        "name",
        "parked",
        "passes",
        "reduction",
        "submitted",
    )

    def __init__(self, parameter: torch.Tensor, name: str, reduction: Reduction) -> None:
        self._parameter = weakref.ref(parameter)
        self.name = name
        self.reduction = reduction
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.flights: list[_Flight] = []
        self.parked: torch.Tensor | None = None
        self.holds = Holds.LOCAL
        self.accumulated = 0  # backward passes in .grad that were not submitted yet
        self.submitted = 0  # since the ranks last compared notes
        self.passes = 0  # since the last step: numbers the names

    @property
    def parameter(self) -> torch.Tensor | None:
        """The parameter, or None when it is gone."""
        return self._parameter()

    def make_room(self) -> None:
        """Before autograd adds to ``.grad``: sets aside what must not be added to."""
        parameter = self.parameter
        if parameter is None or self.holds is Holds.LOCAL:
            return
        if self.reduction.op not in LINEAR_OPS:
            raise RuntimeError(
                f"{self.name}: a second backward before step() needs op=Average or Sum, as others of "
                "several contributions cannot be put together"
            )
        if self.holds is Holds.REDUCED:
            self.parked = parameter.grad
        parameter.grad = None
        self.holds = Holds.LOCAL

    def submit(self) -> None:
        """Hands ``.grad`` to the core, to be reduced in place. ValueError where it is sparse."""
        parameter = self.parameter
        assert parameter is not None
        gradient = parameter.grad
        assert gradient is not None
        if gradient.layout != torch.strided:
            gradient = self._densified(gradient)
            parameter.grad = gradient
        self._start(gradient)
        self.holds = Holds.FLIGHT

    def submit_missing(self) -> None:
        """Takes part for a gradient that other ranks have: with ``.grad`` as it stands, or zeros."""
        parameter = self.parameter
        if self.holds is Holds.REDUCED:
            self.make_room()
        if parameter is not None and self.holds is Holds.LOCAL and parameter.grad is not None:
            self.submit()
        elif parameter is not None:
            self._start(torch.zeros_like(parameter, requires_grad=False))

    def finish(self) -> None:
        """Sleeps until all flights are done and puts the sum of them into ``.grad``."""
        total = self.parked
        while self.flights:
            flight = self.flights.pop(0)
            _core.synchronize(flight.handle)
            gradient = flight.gradient.detach()
            if flight.compressed:
                gradient.copy_(self.reduction.compression.decompress(flight.wire, flight.context))
            if total is None:
                total = flight.gradient
            else:
                total.detach().add_(gradient)
        parameter = self.parameter
        if parameter is None:
            return
        if self.holds is Holds.LOCAL and parameter.grad is not None:
            self.parked = (
                total  # backward_passes_per_step: .grad holds the beginning of the next contribution
            )
            return
        if parameter.requires_grad and parameter.grad is not total:
            parameter.grad = total
        self.parked = None
        self.holds = Holds.REDUCED

    def abandon(self) -> None:
        """After a failure: waits for what is in flight, whatever comes of it, and starts anew."""
        for flight in self.flights:
            try:
                _core.synchronize(flight.handle)
            except (RuntimeError, ValueError):
                continue  # the first failure is being raised already
        self.flights.clear()
        self.new_step()

    def new_step(self) -> None:
        """What ``.grad`` holds from now on is local again, as after ``optimizer.step()``."""
        self.parked = None
        self.holds = Holds.LOCAL
        self.passes = self.submitted = 0

    def release(self) -> None:
        """Takes the hooks off the parameter."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def _start(self, gradient: torch.Tensor) -> None:
        self.accumulated = 0
        self.submitted += 1
        self.passes += 1
        name = self.name if self.passes == 1 else f"{self.name}.pass{self.passes}"
        rule = self.reduction
        plain = gradient.detach()
        wire, context = rule.compression.compress(plain)
        handle = _core.allreduce_async(
            wire, wire, name, rule.op, rule.prescale_factor, rule.postscale_factor, 0
        )
        self.flights.append(_Flight(handle, gradient, wire, context, wire is not plain))

    def _densified(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.reduction.sparse_as_dense:
            return gradient.to_dense()
        text = f"{self.name} has a sparse gradient: give DistributedOptimizer sparse_as_dense=True"
        _core.submit_error("allreduce", self.name, text, 0)
        raise ValueError(text)
