"""What Python has of one parameter's gradient. The core has its state (csrc/gradients/gradient.h)."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.pool_strides import pool_strides
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.parameter_list import Row, kind_of
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, set_id

_CARRIED_OUT_BY_CORE = (Compression.none, Compression.fp16, Compression.bf16)


class Reduction(NamedTuple):
    """The way in which the gradients of one optimizer are reduced; equal on all ranks."""

    op: int
    prescale_factor: float
    postscale_factor: float
    compression: type[Compressor]
    sparse_as_dense: bool
    takes_sparse: bool  # False: a sparse gradient that is not made dense is an error
    process_set: ProcessSet
    weights: _core.BatchWeights | None  # None: the ranks count alike

    def for_core(self) -> _core.Rule:
        """Returns the same for the core. It belongs to this job. ValueError: the process set does not."""
        built_in = self.compression in _CARRIED_OUT_BY_CORE
        return _core.Rule(
            op=self.op,
            prescale_factor=self.prescale_factor,
            postscale_factor=self.postscale_factor,
            process_set=set_id(self.process_set),
            additive=self.op in LINEAR_OPS,
            sparse_as_dense=self.sparse_as_dense,
            takes_sparse=self.takes_sparse,
            wire=getattr(self.compression, "wire", None) if built_in else None,
            compressor=None if built_in else self.compression,
            weights=self.weights,
        )


class Gradient:
    """What Python keeps of one parameter's gradient. ``core`` has its state, and alone changes ``.grad``.

    group: the number of the user's group that it is in; None: it is in none.
    """

    __slots__ = ("__weakref__", "core", "group", "hooks", "row", "rule")

    def __init__(self, parameter: torch.Tensor, name: str, rule: Reduction, group: int | None) -> None:
        self.core = _core.Gradient(parameter, name, rule.op in LINEAR_OPS)
        self.row = Row(name, *kind_of(parameter), strides=_strides(parameter))  # when the optimizer got it
        self.rule = rule
        self.group = group
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []

    @property
    def name(self) -> str:
        """Its name, with the optimizer's prefix."""
        return self.core.name

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


# The gradient of each parameter, by id(parameter). It is that of the optimizer that was wrapped last.
owners: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()
