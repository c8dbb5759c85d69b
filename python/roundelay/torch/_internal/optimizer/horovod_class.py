"""``_DistributedOptimizer``: Horovod's class, for programs that subclass it or copy its methods.

``hvd.DistributedOptimizer`` makes no such objects. Each gradient, or group of ``groups``, is an operation of
its own. Methods that public subclasses override have Horovod's names and meaning: ``_register_hooks``,
``_make_hook``, ``_allreduce_grad_async``, ``synchronize``. A class may have these methods without being a
subclass: ``type(name, (torch.optim.SGD,), dict(_DistributedOptimizer.__dict__))``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.gradients.groups import assign
from roundelay.torch._internal.gradients.hooks import hook_behind_others
from roundelay.torch._internal.operations import (
    Adasum,
    Average,
    allreduce_async_,
    grouped_allreduce_async_,
    sparse_allreduce_async,
    synchronize,
)
from roundelay.torch._internal.operations.common import check_compression
from roundelay.torch._internal.optimizer.arguments import check_passes, checked_names, checked_reduction
from roundelay.torch._internal.optimizer.closure_loss import agreed_loss
from roundelay.torch._internal.optimizer.distributed import wrapped, wrapper_of
from roundelay.torch._internal.parameter_names import natural
from roundelay.torch._internal.unfit import check_fit, reduced_by
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set

Parameters = tuple[torch.Tensor, ...]
Pending = tuple[Any, Any]  # a handle, or a call that gives the result; None: not submitted. And a context


def _classes_of(kind: type) -> list[type]:
    """Returns the bases that have this module's methods, first the one whose methods count."""
    return [base for base in kind.__mro__ if base.__dict__.get("__init__") is _DistributedOptimizer.__init__]


def _inherited(optimizer: torch.optim.Optimizer, method: str) -> Callable[..., Any]:
    """Returns the base class's method, which one of this module overrides. ``super()`` needs a subclass."""
    kinds = _classes_of(type(optimizer)) or [type(optimizer)]
    found: Callable[..., Any] = getattr(super(kinds[0], optimizer), method)
    return found


class _Kind(type):
    """Makes ``isinstance(optimizer, _DistributedOptimizer)`` true of all whose gradients are reduced."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        if cls is not _DistributedOptimizer or not isinstance(instance, torch.optim.Optimizer):
            return False
        return wrapper_of(instance) is not None or bool(_classes_of(type(instance)))


class _DistributedOptimizer(torch.optim.Optimizer, metaclass=_Kind):
    """An optimizer of the next base class whose gradients are reduced over the ranks of ``process_set``.

    The arguments are those of ``hvd.DistributedOptimizer``, but for op=Adasum (ValueError). ValueError also
    if another optimizer reduces one of the parameters, and before ``init``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
        compression: type[Compressor] = Compression.none,
        backward_passes_per_step: int = 1,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: Any = None,
        sparse_as_dense: bool = False,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        _core.size()
        if len(_classes_of(type(self))) > 1:
            raise ValueError(
                f"{type(self).__name__} is wrapped twice: its base class reduces gradients already; take the "
                "class of the plain optimizer"
            )
        check_compression(compression)
        check_passes(backward_passes_per_step)
        if op == Adasum:
            raise ValueError("this class has no op=Adasum: use hvd.DistributedOptimizer(op=hvd.Adasum)")
        self.op, self.gradient_predivide_factor = checked_reduction(op, gradient_predivide_factor)
        _inherited(self, "__init__")(params)
        listed = [group["params"] for group in self.param_groups]
        given = checked_names(listed, named_parameters)
        self._parameter_names = {
            parameter: given.get(parameter, f"allreduce.noname.{number}.{index}")
            for number, group in enumerate(listed)
            for index, parameter in enumerate(group)
        }
        self._compression = compression
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce_delay = dict.fromkeys(self._parameter_names, backward_passes_per_step)
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._groups = groups
        self._p_to_group = _groups_of(self._parameter_names, groups)
        self._handles: dict[torch.Tensor | Parameters, Pending] = {}
        self._grad_accs: list[Any] = []
        self._requires_update: set[torch.Tensor] = set()
        self._should_synchronize, self._synchronized = True, False
        if process_set.included():
            _take(self, self._parameter_names)
            if _core.size() > 1:
                self._register_hooks()

    def _register_hooks(self) -> None:
        """Makes backward call ``_make_hook(parameter)``'s result for each gradient that is complete."""
        for parameter in self._parameter_names:
            if parameter.requires_grad:
                self._requires_update.add(parameter)
                self._grad_accs.append(hook_behind_others(parameter, self._make_hook(parameter)))

    def _make_hook(self, p: torch.Tensor) -> Callable[..., None]:
        """Returns the hook that submits the gradient in the last backward of a step."""
        owner = weakref.ref(self)

        def hook(*_: Any) -> None:
            optimizer = owner()
            if optimizer is not None:
                _arrived(optimizer, p)

        return hook

    def _allreduce_grad_async(self, p: torch.Tensor) -> Pending:
        """Submits the gradient; returns what ``synchronize`` waits for, and the compressor's context."""
        name = self._parameter_names[p]
        if _gradient(p).is_sparse and not self.sparse_as_dense:
            return self._sparse_allreduce_grad_async(p, name)
        gradient = _own_gradient(p)
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        wire, context = self._compression.compress(dense)
        before, after = _factors(self)
        handle = allreduce_async_(wire, None, name, self.op, before, after, self.process_set)
        return handle, context

    def _grouped_allreduce_grad_async(self, ps: Parameters) -> Pending:
        """Submits the gradients of a group."""
        sent = [self._compression.compress(_own_gradient(p)) for p in ps]
        wires, name = [wire for wire, _ in sent], self._parameter_names[ps[0]]
        before, after = _factors(self)
        handle = grouped_allreduce_async_(wires, None, name, self.op, before, after, self.process_set)
        return handle, [context for _, context in sent]

    def _sparse_allreduce_grad_async(self, p: torch.Tensor, name: str) -> Pending:
        """Submits the entries of a sparse gradient."""
        return sparse_allreduce_async(_gradient(p), name, self.op, self.process_set), None

    def synchronize(self) -> None:
        """Submits what backward did not, with zeros where this rank has no gradient, and waits for all.

        If operations failed, it raises the first one's HorovodInternalError after it has waited for all.
        """
        if not self.process_set.included():
            return
        _submit_rest(self)
        failure = None
        for key, pending in self._handles.items():
            try:
                _finish(self, key, pending)
            except HorovodInternalError as error:
                failure = failure or error
        _begin_window(self)
        self._synchronized = True
        if failure is not None:
            raise failure

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes ``step()`` inside ``with`` take the gradients as they are. Use it after ``synchronize()``."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Makes gradients be reduced once in ``passes`` backward passes from now on."""
        check_passes(passes)
        self.backward_passes_per_step = passes
        self._allreduce_delay = dict.fromkeys(self._allreduce_delay, passes)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the base class's step with reduced gradients, also with those of a closure."""

        def complete() -> None:
            if self._should_synchronize and (not self._synchronized or self._handles):
                self.synchronize()
            self._synchronized = False

        def synchronized() -> Any:
            assert closure is not None
            loss = closure()
            complete()
            return agreed_loss(self, loss, self.op, self.process_set, "optimizer")

        if closure is not None:
            return _inherited(self, "step")(synchronized)
        complete()
        return _inherited(self, "step")()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients. RuntimeError if some are in flight."""
        if any(handle is not None for handle, _ in self._handles.values()):
            raise RuntimeError(
                "zero_grad() was called between backward() and step(), while gradients are in flight: call "
                "step() or synchronize() before"
            )
        _inherited(self, "zero_grad")(set_to_none)

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads the base class's state, and begins a new window of backward passes."""
        _begin_window(self)
        self._synchronized, self._should_synchronize = False, True
        _inherited(self, "load_state_dict")(state_dict)


# The methods above may lie in a class without these.


def _groups_of(names: Mapping[torch.Tensor, str], groups: Any) -> dict[torch.Tensor, Parameters]:
    """Returns each grouped parameter's group, in the order of names: the same on all ranks."""
    numbers = assign(0, groups, names)
    members: dict[int, list[torch.Tensor]] = {}
    for parameter in sorted(names, key=lambda one: natural(names[one])):
        if id(parameter) in numbers and parameter.requires_grad:
            members.setdefault(numbers[id(parameter)], []).append(parameter)
    return {one: tuple(group) for group in members.values() for one in group}


def _take(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> None:
    """Records that this optimizer reduces the parameters. ValueError if another one does."""
    check_fit(((name, parameter) for parameter, name in names.items()), reduced=True)
    for other, wrapper in wrapped():
        for parameter in (one for group in wrapper.masters.parameters(other) for one in group):
            if parameter in names:
                raise ValueError(
                    f"parameter {names[parameter]!r} belongs to a {type(other).__name__} that "
                    "hvd.DistributedOptimizer has wrapped, which reduces its gradients already: wrap once"
                )
    for parameter in names:
        reduced_by[parameter] = weakref.ref(optimizer)


def _begin_window(optimizer: Any) -> None:
    optimizer._handles.clear()
    passes = optimizer.backward_passes_per_step
    optimizer._allreduce_delay = dict.fromkeys(optimizer._allreduce_delay, passes)


def _arrived(optimizer: Any, parameter: torch.Tensor) -> None:
    """Counts a gradient that is complete in this backward; submits it, or its group, in the last one."""
    delay = optimizer._allreduce_delay
    if delay[parameter] <= 0:
        raise RuntimeError(
            f"the gradient of {optimizer._parameter_names[parameter]!r} was computed more than "
            f"backward_passes_per_step={optimizer.backward_passes_per_step} times before step() or "
            "synchronize(): raise backward_passes_per_step"
        )
    optimizer._synchronized = False
    delay[parameter] -= 1
    group = optimizer._p_to_group.get(parameter)
    if group is None:
        if delay[parameter] == 0:
            optimizer._handles[parameter] = optimizer._allreduce_grad_async(parameter)
    elif all(delay[member] == 0 for member in group):
        optimizer._handles[group] = optimizer._grouped_allreduce_grad_async(group)


def _submit_rest(optimizer: Any) -> None:
    for parameter in optimizer._requires_update:
        group = optimizer._p_to_group.get(parameter)
        if optimizer._handles.get(group or parameter, (None, None))[0] is not None:
            continue
        if group is None:
            optimizer._handles[parameter] = optimizer._allreduce_grad_async(parameter)
        else:
            optimizer._handles[group] = optimizer._grouped_allreduce_grad_async(group)


def _finish(optimizer: Any, key: torch.Tensor | Parameters, pending: Pending) -> None:
    """Waits for an operation and puts its results into the gradients."""
    handle, context = pending
    output = handle() if callable(handle) else synchronize(handle)
    decompress = optimizer._compression.decompress
    if isinstance(key, tuple):
        for parameter, wire, one in zip(key, output, context, strict=True):
            _put(parameter, decompress(wire, one))
    else:
        _put(key, decompress(output, context))


@torch.no_grad()
def _put(parameter: torch.Tensor, reduced: torch.Tensor) -> None:
    gradient = _gradient(parameter)
    if gradient.is_sparse:
        parameter.grad = reduced if reduced.is_sparse else reduced.to_sparse()
    elif reduced is not gradient:
        gradient.copy_(reduced)


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the gradient: zeros if there is none, as another rank may have one."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _own_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the gradient, in memory of its own: backward may still read what autograd has put there."""
    gradient = _gradient(parameter)
    if not gradient.is_sparse:
        with torch.enable_grad():  # what has a graph keeps it
            parameter.grad = gradient.clone()
    return _gradient(parameter)


def _factors(optimizer: Any) -> tuple[float, float]:
    """Returns the factors before and after the sum."""
    factor = optimizer.gradient_predivide_factor
    return 1.0 / factor, factor
