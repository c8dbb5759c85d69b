"""One parameter's gradient: its settings, its hooks, and the reductions that Python completes.

The state between two steps is the core's (csrc/adapter/gradient.h).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch.compression import Compressor
from roundelay.torch.operations import LINEAR_OPS
from roundelay.torch.parameter_list import Row, kind_of
from roundelay.torch.process_sets import ProcessSet, set_id
from roundelay.torch.strategies.pool_shapes import pool_strides


class Reduction(NamedTuple):
    """The way in which the gradients of one optimizer are reduced; equal on all ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    compression: type[Compressor]
    sparse_as_dense: bool
    takes_sparse: bool  # False: a sparse gradient that is not made dense is an error
    process_set: ProcessSet


class Operation:
    """A submitted operation that several gradients wait for. Only the first wait costs."""

    __slots__ = ("_error", "_handle")

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._error: HorovodInternalError | None = None

    def wait(self) -> None:
        """Sleeps until the operation is done. Raises its error each time."""
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
    """This rank's part in one reduction of a gradient. The result comes into ``gradient``."""

    gradient: torch.Tensor
    wire: torch.Tensor  # the tensor that is reduced in place: ``gradient``, or its compressed form
    context: torch.dtype | None  # Compressor.decompress() takes it
    operation: Operation | None = None  # the whole group's, once it is submitted

    def wait(self, compression: type[Compressor]) -> torch.Tensor:
        """Sleeps until the reduction is done, and returns the result."""
        self.done()
        plain = self.gradient.detach()
        result = compression.decompress(self.wire, self.context)
        if not _is_same(result, plain):
            plain.copy_(result)
        return self.gradient

    def done(self) -> None:
        """Sleeps until the reduction is done, and leaves the result as it is on the wire."""
        assert self.operation is not None
        self.operation.wait()


Pending = Contribution | Callable[[], torch.Tensor]  # a call: returns the result of a sparse reduction


class Gradient:
    """One parameter's gradient. Only ``core`` changes ``.grad`` and knows what it contains."""

    __slots__ = ("__weakref__", "core", "hooks", "name", "pending", "row", "rule")

    def __init__(self, parameter: torch.Tensor, name: str, rule: Reduction) -> None:
        self.core = _core.Gradient(parameter, name, rule.op in LINEAR_OPS)
        self.name = name
        self.row = Row(name, *kind_of(parameter), strides=_strides(parameter))  # when the optimizer got it
        self.rule = rule
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.pending: list[Pending] = []  # reductions outside a pool

    def sparse_dimensions(self) -> int:
        """Returns the number of dimensions in which ``.grad`` is sparse; 0: it is or will be made dense.

        ValueError, and HorovodInternalError on the other ranks, if the op or the strategy cannot reduce
        sparse tensors.
        """
        gradient = self.core.local()
        if gradient is None or gradient.layout == torch.strided or self.rule.sparse_as_dense:
            return 0
        rule = self.rule
        if rule.op not in LINEAR_OPS or gradient.layout != torch.sparse_coo or not rule.takes_sparse:
            text = f"{self.name} has a sparse gradient: give DistributedOptimizer sparse_as_dense=True"
            _core.submit_error("allreduce", self.name, text, set_id(self.rule.process_set))
            raise ValueError(text)
        return gradient.sparse_dim()

    def contribution(self, template: torch.Tensor) -> Contribution:
        """Takes ``.grad``, made dense, for a reduction in place; zeros like ``template`` if there is none."""
        gradient = self.core.take()
        if gradient is None:
            gradient = torch.zeros_like(template, requires_grad=False)
        else:
            gradient = gradient if gradient.layout == torch.strided else gradient.to_dense()
            self.core.send(gradient)
        plain = gradient.detach()
        return Contribution(gradient, *self.rule.compression.compress(plain))

    def sparse_contribution(self, template: torch.Tensor, dimensions: int) -> torch.Tensor:
        """Takes ``.grad`` as a sparse tensor, for a reduction out of place; an empty one if there is none."""
        gradient = self.core.take()
        if gradient is None:
            indices = torch.empty((dimensions, 0), dtype=torch.int64, device=template.device)
            values = torch.empty(
                (0, *template.shape[dimensions:]), dtype=template.dtype, device=template.device
            )
            return torch.sparse_coo_tensor(indices, values, template.shape, check_invariants=False)
        if gradient.layout == torch.strided:
            gradient = gradient.detach().to_sparse(dimensions)
        self.core.send(gradient)
        return gradient.detach()

    def submitted(self, pending: Pending) -> None:
        """Makes finish() wait for this reduction, too."""
        self.pending.append(pending)
        self.core.submitted()

    def finish(self) -> None:
        """Sleeps until all pending reductions are done. The core adds their results up in ``.grad``."""
        while self.pending:
            pending = self.pending.pop(0)
            self.core.complete(
                pending.wait(self.rule.compression) if isinstance(pending, Contribution) else pending()
            )

    def abandon(self) -> None:
        """Waits for operations in flight after a failure, ignores their results, and starts anew."""
        while self.pending:
            pending = self.pending.pop()
            try:
                if isinstance(pending, Contribution):
                    pending.done()
                else:
                    pending()
            except (RuntimeError, ValueError):
                continue  # the first failure is being raised already
        self.core.new_step()

    def own(self, number: int) -> None:
        """Takes the parameter with this id over from the gradient of another optimizer."""
        previous = owners.get(number)
        if previous is not None and previous is not self:
            previous.core.give_up()
            previous.release()
        owners[number] = self

    def disown(self, number: int) -> None:
        """Lets go of the parameter with this id, which is no longer the optimizer's."""
        self.core.give_up()
        self.release()
        if owners.get(number) is self:
            del owners[number]

    def release(self) -> None:
        """Takes the hooks off the parameter."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()


def _strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides of the gradient in a pool, without those of dimensions of one element."""
    if torch.nn.parameter.is_lazy(parameter) or parameter.layout != torch.strided:
        return ()
    strides = zip(pool_strides(parameter), parameter.shape, strict=True)
    return tuple(stride for stride, size in strides if size != 1)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether both are the same elements of the same memory."""
    if a.data_ptr() != b.data_ptr() or a.dtype != b.dtype:
        return False
    return a.shape == b.shape and a.stride() == b.stride()


# The gradient of each parameter, by id(parameter). It is that of the optimizer that was wrapped last.
owners: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()
