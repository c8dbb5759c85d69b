"""Knows tensors that something else of PyTorch keeps or reduces, and says what to do instead.

PyTorch's classes are looked up among the loaded modules: whoever has such a tensor has loaded its class.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, MutableMapping

import torch
from torch.utils.weak import WeakIdKeyDictionary

from roundelay import _core

_FSDP1 = (
    "a parameter of a FullyShardedDataParallel (FSDP1) module, and each rank has another part of it: FSDP "
    "keeps the ranks alike by itself: leave hvd out for this module, or do not shard it"
)
_DTENSOR = (
    "a DTensor, placed as {placements}, which fully_shard() (FSDP2) or tensor parallelism keeps in parts and "
    "reduces by itself: leave hvd out for this module, or do not shard it"
)
_DDP = (
    "a parameter of a DistributedDataParallel module, which reduces its gradients already: give hvd the "
    "module without DistributedDataParallel"
)

_OTHER = (
    "a parameter of a {kind} with the methods of _DistributedOptimizer, which reduces its gradients already: "
    "leave one of the two out"
)
# Parameters whose gradients such an optimizer (optimizer/horovod_class.py) reduces. It writes this table.
reduced_by: MutableMapping[torch.Tensor, weakref.ref[torch.optim.Optimizer]] = WeakIdKeyDictionary()

# Modules and classes of tensors that do not have this rank's values, and what to say of them.
_CLASSES = {
    ("torch.distributed.tensor", "DTensor"): (
        "a DTensor, placed as {placements}: pass its to_local(), which is this rank's part, or full_tensor()"
    ),
    ("torch._subclasses.fake_tensor", "FakeTensor"): (
        "a FakeTensor, which has no values: call it outside of FakeTensorMode, and of what is being traced"
    ),
    ("torch._subclasses.functional_tensor", "FunctionalTensor"): (
        "a FunctionalTensor, which stands for values while PyTorch traces: call it outside of what is traced"
    ),
    ("torch.distributed._functional_collectives", "AsyncCollectiveTensor"): (
        "the result of a functional collective that may be in flight: pass what its wait() returns"
    ),
}


def _class_of(tensor: torch.Tensor) -> tuple[str, str] | None:
    for module, name in _CLASSES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(tensor, kind):
            return module, name
    return None


def wrong_tensor(tensor: torch.Tensor) -> str:
    """Returns what a tensor is that no operation can take, with the cure; nothing for any other."""
    kind = type(tensor)
    if kind is torch.Tensor:
        return ""
    if getattr(tensor, "_fsdp_flattened", False):  # FSDP's flat parameter, and the original ones
        return _FSDP1
    found = None if kind is torch.nn.Parameter else _class_of(tensor)
    return _CLASSES[found].format(placements=getattr(tensor, "placements", "")) if found else ""


def wrong_parameter(parameter: torch.Tensor, reduced: bool) -> str:
    """Returns whose parameter it is, with the cure; nothing for one that nothing else keeps.

    reduced: its gradients are to be reduced, which must not happen twice.
    """
    wrong = wrong_tensor(parameter)
    if wrong and hasattr(parameter, "placements"):
        return _DTENSOR.format(placements=parameter.placements)
    if wrong or not reduced:
        return wrong
    if _core.reducer_hooks(parameter):
        return _DDP
    owner = reduced_by[parameter]() if parameter in reduced_by else None
    return _OTHER.format(kind=type(owner).__name__) if owner is not None else ""


def check_fit(named: Iterable[tuple[str, torch.Tensor]], reduced: bool) -> None:
    """Raises ValueError, with the name and the cure, for the first that is somebody else's."""
    for name, parameter in named:
        wrong = wrong_parameter(parameter, reduced)
        if wrong:
            raise ValueError(f"parameter {name!r} is {wrong}")
