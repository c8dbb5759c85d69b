"""Making all ranks start alike: broadcasting parameters, optimizer state and Python objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roundelay import _core
from roundelay.torch.operations import broadcast_async_, synchronize
from roundelay.torch.process_sets import ProcessSet, global_process_set

try:
    from cloudpickle import dumps as _dumps  # lambdas and local classes too, where it is installed
except ImportError:
    _dumps = pickle.dumps

Parameters = Mapping[str, Any] | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | torch.nn.Module


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Overwrites ``params`` on every rank with the root's values, in place.

    params: a dict (``model.state_dict()``), an iterable of tensors or of ``(name, tensor)`` pairs such as
    ``model.named_parameters()``, or a module (parameters and buffers). None entries are skipped. ValueError
    for anything else; HorovodInternalError where shapes or dtypes differ between ranks.
    """
    _core.size()
    named = _named_tensors(params)
    handles = [broadcast_async_(tensor, root_rank, f"parameter.{name}") for name, tensor in named]
    _core.flush()
    for handle in handles:
        synchronize(handle)


def _named_tensors(params: Parameters) -> list[tuple[str, torch.Tensor]]:
    entries: list[tuple[str, Any]]
    if isinstance(params, torch.nn.Module):
        entries = sorted(params.state_dict(keep_vars=True).items())
    elif isinstance(params, Mapping):
        entries = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor):
        entries = [
            item if isinstance(item, tuple) else (str(index), item) for index, item in enumerate(params)
        ]
    else:
        raise ValueError(
            f"params must be a dict, a module or an iterable of tensors, not {type(params).__name__}"
        )
    named = [(name, tensor) for name, tensor in entries if tensor is not None]
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"params[{name!r}] is a {type(tensor).__name__}, not a tensor: use broadcast_object for it"
            )
    return named


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's Python object, pickled and unpickled on the others; the root gets its own ``obj`` back."""
    name = name or "object"
    is_root = _core.rank() == root_rank
    data = (
        torch.frombuffer(bytearray(_dumps(obj)), dtype=torch.uint8)
        if is_root
        else torch.empty(0, dtype=torch.uint8)
    )
    length = torch.tensor([data.numel()], dtype=torch.int64)
    synchronize(broadcast_async_(length, root_rank, f"{name}.length", process_set))
    if not is_root:
        data = torch.empty(int(length.item()), dtype=torch.uint8)
    synchronize(broadcast_async_(data, root_rank, f"{name}.data", process_set))
    return obj if is_root else pickle.loads(data.numpy().tobytes())


@dataclass(frozen=True)
class _TensorPlace:
    """Stands for a tensor in a pickled structure; its data follows on its own."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device_type: str


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives every rank the root's optimizer state and hyperparameters.

    The structure travels first, then each tensor; the optimizer takes no step, and any optimizer whose
    ``state_dict`` nests dicts, lists and tuples will do. ``model`` is accepted for compatibility and not
    needed. ValueError where the parameter groups differ from the root's.
    """
    is_root = _core.rank() == root_rank
    tensors: list[torch.Tensor] = []
    structure = _replace(optimizer.state_dict(), lambda leaf: _take(leaf, tensors)) if is_root else None
    structure = broadcast_object(structure, root_rank, name="optimizer.structure")
    if not is_root:
        device = _device_of(optimizer)
        structure = _replace(structure, lambda leaf: _give(leaf, tensors, device))
    handles = [
        broadcast_async_(tensor, root_rank, f"optimizer.state.{index}")
        for index, tensor in enumerate(tensors)
    ]
    _core.flush()
    for handle in handles:
        synchronize(handle)
    if not is_root:
        optimizer.load_state_dict(structure)


def _replace(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of nested dicts, lists and tuples with ``leaf`` applied to what is in them, in order."""
    if isinstance(value, Mapping):
        return {key: _replace(item, leaf) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replace(item, leaf) for item in value)
    return leaf(value)


def _take(leaf: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    tensors.append(leaf)
    return _TensorPlace(len(tensors) - 1, tuple(leaf.shape), leaf.dtype, leaf.device.type)


def _give(leaf: Any, tensors: list[torch.Tensor], device: torch.device) -> Any:
    if not isinstance(leaf, _TensorPlace):
        return leaf
    place = device if leaf.device_type == device.type else torch.device(leaf.device_type)
    tensors.append(torch.empty(leaf.shape, dtype=leaf.dtype, device=place))
    return tensors[-1]


def _device_of(optimizer: torch.optim.Optimizer) -> torch.device:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return next((parameter.device for parameter in parameters), torch.device("cpu"))
