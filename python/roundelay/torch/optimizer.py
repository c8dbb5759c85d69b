"""``DistributedOptimizer``: the optimizer that it was given, with gradients kept equal on all ranks.

The object keeps its class, parameter groups, state and hooks. Synchronisation hangs on hooks: of the
parameters (gradient_sync.py) and before and after ``step``; they are found in whatever order learning rate
schedulers and GradScaler wrap ``step``. A deepcopy or an unpickled optimizer is a plain one of the original
class that synchronises nothing: give it to ``DistributedOptimizer`` again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import torch

from roundelay import _core
from roundelay.errors import NotInThisVersionError
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.gradient import Reduction
from roundelay.torch.gradient_sync import GradientSync
from roundelay.torch.measure import Span
from roundelay.torch.operations import Average, checked_op
from roundelay.torch.process_sets import ProcessSet, global_process_set, set_id

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)
_scopes = count()  # optimizers are wrapped in the same order on all ranks
_wrapped: weakref.WeakKeyDictionary[torch.optim.Optimizer, Wrapping] = weakref.WeakKeyDictionary()


def _inert(*_: Any, **__: Any) -> None:
    """What the additions of a copied or unpickled optimizer are: nothing happens."""


class _Addition:
    """Something that is put on one optimizer object, and does nothing on copies of it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _Addition, (_inert,)

    def __deepcopy__(self, _: Any) -> _Addition:
        return _Addition(_inert)


class Wrapping:
    """What belongs to one wrapped optimizer; refers to it weakly."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, sync: GradientSync | None, names: dict[int, str]
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._sync = sync  # None: a single process
        self._names = names
        self._skip = False
        self._step: Span | None = None
        self._hooks = [
            optimizer.register_step_pre_hook(_Addition(self._before_step)),
            optimizer.register_step_post_hook(_Addition(self._after_step)),
        ]
        for name in ("synchronize", "skip_synchronize", "set_backward_passes_per_step"):
            setattr(optimizer, name, _Addition(getattr(self, name)))
        self._additions = ["synchronize", "skip_synchronize", "set_backward_passes_per_step"]
        if sync is not None:
            self._extend(optimizer, "add_param_group", after=self._take_parameters)
            self._extend(optimizer, "zero_grad", before=self._settle_failed_backward)
            self._take_parameters()
            weakref.finalize(optimizer, sync.close).atexit = False

    def _extend(
        self,
        optimizer: torch.optim.Optimizer,
        name: str,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Puts something around a method, on this object only; the class's method does the work."""
        method = getattr(type(optimizer), name)
        owner = self._optimizer

        def extended(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before()
            result = method(owner(), *args, **kwargs)
            if after is not None:
                after()
            return result

        extended.__doc__ = method.__doc__
        setattr(optimizer, name, _Addition(extended))
        self._additions.append(name)

    def undo(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the optimizer a plain one again."""
        for hook in self._hooks:
            hook.remove()
        for name in self._additions:
            optimizer.__dict__.pop(name, None)
        if self._sync is not None:
            self._sync.close()

    def _take_parameters(self, after_backward: bool = False) -> None:
        """Notices new parameters, and those that were frozen until now."""
        optimizer = self._optimizer()
        if self._sync is None or optimizer is None:
            return
        if self._sync.covers(sum(len(group["params"]) for group in optimizer.param_groups)):
            return
        named = (
            (self._names.get(id(parameter), f"noname.{number}.{index}"), parameter)
            for number, group in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(group["params"])
        )
        self._sync.add(named, after_backward)

    def _settle_failed_backward(self) -> None:
        if self._sync is not None and self._sync.outstanding():
            self._sync.synchronize()

    def synchronize(self) -> None:
        """Completes the gradients for this step; ``step()`` does so by itself.

        Needed only to see gradients as ``step()`` will where some are not complete when backward() returns:
        a window of backward_passes_per_step that ended early, gradients made without backward().
        """
        self._take_parameters(after_backward=True)
        if self._sync is not None:
            self._sync.synchronize()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """``step()`` inside it takes the gradients as they are: for use after ``synchronize()``."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on gradients are reduced once in ``passes`` backward passes."""
        _check_passes(passes)
        if self._sync is not None:
            self._sync.passes_per_step = passes

    def _before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._step = Span("step")
        if self._skip:
            if self._sync is not None and self._sync.has_submitted():
                raise RuntimeError(
                    "gradients are still in flight: call synchronize() before skip_synchronize()"
                )
            return None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self.synchronize()
            return None

        def synchronized(*closure_args: Any, **closure_kwargs: Any) -> Any:
            loss = closure(*closure_args, **closure_kwargs)
            self.synchronize()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": synchronized}
        return (args[0], synchronized, *args[2:]), kwargs

    def _after_step(self, *_: Any) -> None:
        if self._sync is not None:
            self._sync.new_step()
        if self._step is not None:
            self._step.end()
            self._step = None


def _check_passes(passes: int) -> None:
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes!r}, but must be a whole number from 1 on")


def _checked_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[int, str]:
    """Names by id(parameter). ValueError where they are not unique pairs that cover the optimizer."""
    pairs = list(named_parameters or ())
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be (name, parameter) pairs, such as model.named_parameters()")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"named_parameters has names more than once: {', '.join(twice)}")
    by_id = {id(parameter): name for name, parameter in pairs}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    unnamed = sum(id(parameter) not in by_id for parameter in parameters)
    if pairs and unnamed:
        raise ValueError(f"named_parameters lacks {unnamed} of the optimizer's {len(parameters)} parameters")
    return by_id


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> OptimizerT:
    """Returns ``optimizer`` itself; from now on its gradients are reduced over all ranks while backward runs.

    When ``backward()`` returns the gradients hold the result, so clipping and GradScaler need nothing
    special. Every rank wraps its optimizers in the same order, with the same parameters. Wrapping again
    replaces the settings.

    named_parameters: names for messages and the timeline. compression: what goes over the wire.
    backward_passes_per_step: gradients are summed locally over so many backward passes, then reduced. op:
    Average, Sum, Min, Max or Product. gradient_predivide_factor: with Average, gradients are divided by it
    before the sum and by size / factor afterwards. sparse_as_dense: sparse gradients are made dense; else
    they raise ValueError.

    It gains ``synchronize()``, ``skip_synchronize()`` and ``set_backward_passes_per_step(n)``. Raises
    ValueError for wrong arguments and before ``init``, NotInThisVersionError for groups and other sets.
    """
    size = _core.size()
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, not {type(optimizer).__name__}")
    names = _checked_names(optimizer, named_parameters)
    _check_passes(backward_passes_per_step)
    op = checked_op(op, None)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if gradient_predivide_factor <= 0:
        raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor}, but must be above 0")
    if num_groups or groups is not None:
        raise NotInThisVersionError("num_groups and groups are not in this version yet: leave them out")
    set_id(process_set)
    previous = _wrapped.pop(optimizer, None)
    if previous is not None:
        previous.undo(optimizer)
    scope = next(_scopes)
    sync = None
    if size > 1:
        factor = float(gradient_predivide_factor)
        rule = Reduction(op, 1.0 / factor, factor, compression, sparse_as_dense)
        sync = GradientSync(scope, rule, backward_passes_per_step)
    _wrapped[optimizer] = Wrapping(optimizer, sync, names)
    return optimizer
