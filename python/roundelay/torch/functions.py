"""Gives all ranks the same parameters, optimizer state and objects; gathers objects from all ranks.

All functions here are collective over ``process_set`` and block; ``root_rank`` is a world rank. ``name``
begins the names of the operations: calls at the same time need different ones.
"""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from roundelay import _core
from roundelay._internal import trust
from roundelay.errors import HorovodInternalError, MismatchError
from roundelay.torch._internal import operations
from roundelay.torch._internal.operations.broadcast import checked_root
from roundelay.torch._internal.operations.common import Call, row_of_this_rank
from roundelay.torch._internal.optimizer_layout import Layout, layout_of, needs_order, renumbered, rows_in
from roundelay.torch._internal.parameter_list import difference
from roundelay.torch._internal.unfit import check_fit
from roundelay.torch.process_sets import ProcessSet, global_process_set

try:
    from cloudpickle import dump as _dump  # it pickles lambdas and local classes, too
except ImportError:
    _dump = pickle.dump

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

_MAC = struct.Struct("<4q")  # a MAC as the numbers of a header

Parameters = Mapping[str, Any] | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | torch.nn.Module


def broadcast_parameters(
    params: Parameters, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites ``params`` on every rank with the root's values, in place.

    params: a dict (``model.state_dict()``), an iterable of tensors or of ``(name, tensor)`` pairs such as
    ``model.named_parameters()``, or a module (parameters and buffers). None entries are skipped. ValueError
    for anything else; MismatchError where names, shapes or dtypes differ between ranks.
    """
    with Call("allgather", "parameters", process_set):
        given = _named_tensors(params)
        check_fit(given, reduced=False)
    _agree_on_names(sorted(name for name, _ in given), process_set)
    named = [(f"parameter.{name}", tensor) for name, tensor in given]
    try:
        _broadcast_all(named, root_rank, process_set)
    except MismatchError as error:
        raise MismatchError(f"{error} broadcast_parameters: build the same model on every rank") from error


def _named_tensors(params: Parameters) -> list[tuple[str, torch.Tensor]]:
    entries: list[tuple[str, Any]]
    if isinstance(params, torch.nn.Module):
        entries = sorted([*params.named_parameters(), *params.named_buffers()])
    elif isinstance(params, Mapping):
        entries = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor | str):
        entries = [
            item if isinstance(item, tuple) else (str(index), item) for index, item in enumerate(params)
        ]
    else:
        raise ValueError(
            f"params must be a dict, a module or an iterable of tensors, not {type(params).__name__}"
        )
    if any(len(entry) != 2 or not isinstance(entry[0], str) for entry in entries):
        raise ValueError("params must be tensors, or pairs of a name and a tensor")
    named = {name: tensor for name, tensor in entries if tensor is not None}
    if len(named) < sum(tensor is not None for _, tensor in entries):
        raise ValueError("params has two tensors of one name: broadcast_parameters needs distinct names")
    for name, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"params[{name!r}] is a {type(tensor).__name__}, not a tensor: use broadcast_object for it"
            )
        if torch.nn.parameter.is_lazy(tensor):
            raise ValueError(f"params[{name!r}] has no shape yet: run a batch through the model first")
    return list(named.items())


def _agree_on_names(names: list[str], process_set: ProcessSet) -> None:
    """Raises MismatchError on every rank if names differ: ranks would wait for a tensor that some lack."""
    digest = hashlib.blake2b(repr(names).encode(), digest_size=8).digest()
    mine = torch.tensor([int.from_bytes(digest, "little", signed=True)], device="cpu")
    if len(operations.allgather(mine, name="parameters", process_set=process_set).unique()) == 1:
        return
    everyone = allgather_object((_core.rank(), names), "parameters.names", process_set)
    first, other = everyone[0], next(one for one in everyone if one[1] != everyone[0][1])
    name = min(set(first[1]) ^ set(other[1]))
    has, lacks = (first, other) if name in first[1] else (other, first)
    raise MismatchError(
        f"broadcast_parameters: rank {has[0]} has {name!r} (of {len(has[1])} parameters), rank {lacks[0]} "
        f"({len(lacks[1])} parameters) does not: build the same model on every rank"
    )


def _broadcast_all(named: list[tuple[str, torch.Tensor]], root_rank: int, process_set: ProcessSet) -> None:
    """Broadcasts in place. No broadcast is in flight afterwards, also after an error."""
    errors: list[Exception] = []
    handles = []
    for name, tensor in named:
        try:
            handles.append(operations.broadcast_async_(tensor, root_rank, name, process_set))
        except (ValueError, RuntimeError) as error:
            errors.append(error)
    _core.end_linger()
    for handle in handles:
        try:
            operations.synchronize(handle)
        except (ValueError, RuntimeError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns a copy of the root's Python object; the root gets its own ``obj`` back. Pickles it.

    It may have any size. If the root cannot pickle it, the root raises pickle's error and the others
    HorovodInternalError with that text.
    """
    name = name or "object"
    with Call("broadcast", f"{name}.head", process_set) as call:
        root_rank = checked_root(root_rank, call, process_set)
    payload = _Payload.of(obj) if _core.rank() == root_rank else _Payload()
    head = torch.tensor(payload.head(name, root_rank), dtype=torch.int64, device="cpu")
    operations.broadcast_(head, root_rank, f"{name}.head", process_set)
    if _core.rank() != root_rank:
        payload = _Payload(torch.empty(int(head[0]), dtype=torch.uint8, device="cpu"), is_error=bool(head[1]))
    operations.broadcast_(payload.data, root_rank, f"{name}.data", process_set)
    payload.raise_error(root_rank)
    return obj if _core.rank() == root_rank else payload.content(name, root_rank, head.tolist())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns copies of all ranks' objects, in the set's order of ranks, also of this rank's own.

    Ranks that have joined give none: the list is shorter then. Objects may have any size. If a rank cannot
    pickle its object, it raises pickle's error and the others HorovodInternalError with that text.
    """
    name = name or "objects"
    Call("allgather", f"{name}.head", process_set)  # a wrong call raises before the object is pickled
    payload = _Payload.of(obj)
    head = row_of_this_rank(*payload.head(name, _core.rank()))
    heads = operations.allgather(head, name=f"{name}.head", process_set=process_set).tolist()
    whole = operations.allgather(payload.data, name=f"{name}.data", process_set=process_set)
    payload.raise_error(_core.rank())
    parts = whole.split([head[1] for head in heads])
    payloads = [_Payload(part, is_error=bool(head[2])) for head, part in zip(heads, parts, strict=True)]
    for (rank, *_), received in zip(heads, payloads, strict=True):
        received.raise_error(rank)
    return [
        received.content(name, rank, head) for (rank, *head), received in zip(heads, payloads, strict=True)
    ]


@dataclass(frozen=True)
class _Payload:
    """A pickled object to send, or the text of the error that pickling it raised."""

    data: torch.Tensor = torch.empty(0, dtype=torch.uint8, device="cpu")  # noqa: RUF009  never written to
    is_error: bool = False
    cause: Exception | None = None  # set on the rank that could not pickle

    @classmethod
    def of(cls, obj: Any) -> _Payload:
        stream = io.BytesIO()
        try:
            _dump(obj, stream)
        except Exception as error:  # any class in obj may raise anything
            text = f"{type(error).__name__}: {error}".encode()
            return cls(torch.frombuffer(bytearray(text), dtype=torch.uint8), is_error=True, cause=error)
        return cls(torch.frombuffer(stream.getbuffer(), dtype=torch.uint8))

    def head(self, name: str, sender: int) -> list[int]:
        """Returns the header that goes first: the length in bytes, whether it is an error's text, the MAC."""
        return [self.data.numel(), int(self.is_error), *self._mac(name, sender)]

    def content(self, name: str, sender: int, head: list[int]) -> Any:
        """Returns the object. Unpickling can run code, so the MAC comes first. HorovodInternalError."""
        if head[2:] != self._mac(name, sender):
            raise HorovodInternalError(
                f"the object {name!r} that should be of rank {sender} has no MAC of this job's secret: a "
                "stranger has changed it on its way, and it was not unpickled"
            )
        return pickle.loads(self.data.numpy().data)

    def _mac(self, name: str, sender: int) -> list[int]:
        """Returns the MAC of the bytes as numbers; zeros if the job has no secret."""
        secret = trust.secret()
        if secret == trust.NO_SECRET:
            return list(_MAC.unpack(trust.NO_SECRET))
        parts = (name.encode(), sender.to_bytes(4, "little"), self.data.numpy().data)
        return list(_MAC.unpack(trust.mac(secret, "object", *parts)))

    def raise_error(self, sender: int) -> None:
        if self.cause is not None:
            raise self.cause
        if self.is_error:
            text = self.data.numpy().tobytes().decode()
            raise HorovodInternalError(f"rank {sender} could not pickle its object: {text}")


@dataclass(frozen=True)
class _TensorPlace:
    """Replaces a tensor in a pickled structure; another broadcast sends the data."""

    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device_type: str


# Broadcasts send these types; tensors of other types travel within the pickled structure.
_CARRIED = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    *(torch.float8_e8m0fnu, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the root's optimizer state and hyperparameters.

    The optimizer takes no step. Its ``state_dict`` may be any nesting of dicts, lists and tuples: the
    structure travels first, then each tensor. State that the root does not have is forgotten. ``model`` is
    accepted for compatibility and not needed. A parameter gets the state of the root's parameter of its name,
    which DistributedOptimizer or the optimizer itself was given; without names, of the one in its place.
    MismatchError, on every rank, where the parameter groups differ from the root's in number, names, shapes
    or dtypes.
    """
    with Call("broadcast", "optimizer.structure.head", process_set) as call:
        root_rank = checked_root(root_rank, call, process_set)
        if not hasattr(optimizer, "param_groups"):
            raise ValueError(f"an optimizer is needed, itself and not its state: {type(optimizer).__name__}")
        check_fit(_numbered(optimizer), reduced=False)
    is_root = _core.rank() == root_rank
    tensors: list[torch.Tensor] = []
    structure = replaced(optimizer.state_dict(), lambda leaf: _take(leaf, tensors)) if is_root else None
    mine = layout_of(optimizer)
    roots, structure = broadcast_object((mine, structure), root_rank, "optimizer.structure", process_set)
    _agree(roots, mine, needs_order(optimizer), root_rank, process_set)
    if not is_root:
        device = _device_of(optimizer)
        structure = renumbered(structure, roots, mine)
        structure = replaced(structure, lambda leaf: _give(leaf, tensors, device))
    named = [(f"optimizer.state.{index}", tensor) for index, tensor in enumerate(tensors)]
    _broadcast_all(named, root_rank, process_set)
    if not is_root:
        # Loading casts state to the parameter's dtype (ASGD's fp32 eta to bf16), which the root did not.
        optimizer.load_state_dict(structure)
        _set_state(optimizer, structure.get("state"))


def _numbered(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the parameters, named by their places in the groups."""
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield f"noname.{number}.{index}", parameter


def _agree(roots: Layout, mine: Layout, ordered: bool, root_rank: int, process_set: ProcessSet) -> None:
    """Raises MismatchError on every rank if some have other parameters than the root; names the first one."""
    rows = rows_in(roots, ordered), rows_in(mine, ordered)
    unequal = rows[0] != rows[1] or len(roots) != len(mine)
    differs = torch.tensor([_core.size() - _core.rank() if unequal else 0], device="cpu")
    operations.allreduce_(differs, name="optimizer.layout", op=operations.Max, process_set=process_set)
    if int(differs) == 0:
        return
    first = _core.size() - int(differs)
    text = f"rank {first} has other parameter groups in its optimizer than rank {root_rank}"
    if len(roots) != len(mine):
        text += f"; rank {_core.rank()} has {len(mine)} groups, rank {root_rank} {len(roots)}"
    elif unequal:
        text += f"; {difference((root_rank, rows[0]), (_core.rank(), rows[1]))}"
    raise MismatchError(f"{text}: build the same optimizer on every rank before broadcasting its state")


def replaced(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns a copy of nested dicts, lists and tuples with ``leaf`` applied to their items, in order."""
    if isinstance(value, MutableMapping):
        made = copy.copy(value)  # an OrderedDict or defaultdict stays one
        for key, item in value.items():
            made[key] = replaced(item, leaf)
        return made
    if type(value) in (list, tuple):
        return type(value)(replaced(item, leaf) for item in value)
    return leaf(value)


def _take(leaf: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.layout != torch.strided or leaf.dtype not in _CARRIED:
        return leaf.detach()
    stride = torch.empty_like(leaf, device="meta").stride()  # the leaf's own, unless elements share memory
    tensors.append(leaf if leaf.stride() == stride else leaf.contiguous())
    return _TensorPlace(len(tensors) - 1, tuple(leaf.shape), stride, leaf.dtype, leaf.device.type)


def _give(leaf: Any, tensors: list[torch.Tensor], device: torch.device) -> Any:
    if not isinstance(leaf, _TensorPlace):
        return leaf
    place = device if leaf.device_type == device.type else torch.device(leaf.device_type)
    tensors.append(torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device=place))
    return tensors[-1]


def _set_state(optimizer: torch.optim.Optimizer, received: Any) -> None:
    """Sets each parameter's state as received, on the parameter's device; torch numbers parameters alike."""
    if not isinstance(received, Mapping):
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(parameters):
        if isinstance(received.get(index), Mapping) and parameter in optimizer.state:
            optimizer.state[parameter] = replaced(received[index], partial(_moved, parameter.device))


def _moved(device: torch.device, leaf: Any) -> Any:
    moves = isinstance(leaf, torch.Tensor) and leaf.device.type == device.type
    return leaf.to(device) if moves else leaf


def _device_of(optimizer: torch.optim.Optimizer) -> torch.device:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return next((parameter.device for parameter in parameters), torch.device("cpu"))
