"""``DistributedOptimizer`` returns the optimizer it was given, with gradients kept equal on all ranks.

The object keeps its class, parameter groups, state and hooks. Hooks on the parameters (gradient_sync.py) and
before and after ``step`` synchronise. They run in whatever order schedulers and GradScaler wrap ``step``. A
copied or unpickled optimizer is a plain one of the original class: give it to ``DistributedOptimizer`` again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from roundelay import _core
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.gradients.gradient import Reduction
from roundelay.torch.gradients.groups import assign
from roundelay.torch.gradients.pool import job_keys
from roundelay.torch.measure import Span
from roundelay.torch.operations import Average
from roundelay.torch.operations.common import check_compression
from roundelay.torch.operations.join import after_join
from roundelay.torch.optimizer.agreements import agree_on_steps, asking, check_nothing_is_kept
from roundelay.torch.optimizer.arguments import (
    check_optimizer,
    check_passes,
    checked_names,
    checked_reduction,
    chosen_strategy,
    names_of,
)
from roundelay.torch.optimizer.bound_method import BoundMethod
from roundelay.torch.optimizer.grad_scaler import watch
from roundelay.torch.optimizer.gradient_sync import GradientSync
from roundelay.torch.optimizer.local_gradients import LocalGradients
from roundelay.torch.optimizer.master_weights import MasterWeights
from roundelay.torch.optimizer.scopes import Scopes
from roundelay.torch.optimizer.techniques import Techniques
from roundelay.torch.process_sets import ProcessSet, global_process_set, set_id
from roundelay.torch.strategies import Context, Strategy
from roundelay.torch.strategies.attached import attached
from roundelay.torch.tuning.buckets import Cuts

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)
_wrapped: weakref.WeakKeyDictionary[torch.optim.Optimizer, Wrapper] = weakref.WeakKeyDictionary()
_scopes = Scopes()


def restart_scopes() -> None:
    """Begins a job: all ranks count alike again. Before, some ranks may have wrapped other optimizers."""
    _scopes.restart()
    job_keys.restart()
    for _, wrapper in wrapped():
        wrapper.restart()


def job_number() -> int:
    """Returns a number that differs between the jobs of this process."""
    return _scopes.first


class Wrapper:
    """The hooks and methods of one wrapped optimizer. It does not keep the optimizer alive."""

    _methods = ("synchronize", "skip_synchronize", "no_sync", "set_backward_passes_per_step")
    _fields = ("_parameter_names", "_requires_update", "_handles")

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        sync: GradientSync | None,
        strategy: Strategy | None,
        names: dict[int, str],
        process_set: ProcessSet,
        masters: MasterWeights,
    ) -> None:
        """sync: None if gradients stay local. strategy: None if there are no other ranks to work with.

        names: by id(parameter).
        """
        self.process_set = process_set
        self._optimizer = weakref.ref(optimizer)
        self._sync = sync
        self.masters = masters
        self._local: LocalGradients | None = None
        self._strategy = strategy
        self._names = names
        self._skip = False
        self._step: Span | None = None
        self._hooks = [
            optimizer.register_step_pre_hook(BoundMethod(self._before_step)),
            optimizer.register_step_post_hook(BoundMethod(self._after_step)),
        ]
        for name in self._methods:
            setattr(optimizer, name, BoundMethod(getattr(self, name)))
        self._attributes = [*self._methods, *self._fields]
        self._extend(optimizer, "add_param_group", after=self._take_parameters)
        if self._sync is not None:
            self._extend(optimizer, "zero_grad", self._finish_failed, self._sync.new_step)
            weakref.finalize(optimizer, self._sync.close).atexit = False
        if masters.enabled:
            self._give_masters(optimizer)
        self._take_parameters()

    def _extend(
        self,
        optimizer: torch.optim.Optimizer,
        name: str,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Wraps a method of this object only; that of the masters or of the class does the work."""
        method = self.masters.methods.get(name) or getattr(type(optimizer), name)
        owner = self._optimizer

        def extended(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before()
            result = method(owner(), *args, **kwargs)
            if after is not None:
                after()
            return result

        extended.__doc__ = method.__doc__
        setattr(optimizer, name, BoundMethod(extended))
        self._attributes.append(name)

    def _give_masters(self, optimizer: torch.optim.Optimizer) -> None:
        for name in self.masters.methods.keys() - self._attributes:
            self._extend(optimizer, name)
        if self._sync is None:
            self._local = LocalGradients(self.masters.take_gradients)
            weakref.finalize(optimizer, self._local.close).atexit = False

    def restart(self) -> None:
        """Begins a new job with this optimizer in it. init() calls it."""
        if self._sync is not None:
            self._sync.restart()

    def buckets(self) -> int:
        """Returns the number of buckets; 0 if each gradient is reduced on its own."""
        return 0 if self._sync is None else self._sync.buckets()

    def cuts(self) -> Cuts | None:
        """Returns the sizes of the buckets; None if there are no buckets."""
        return None if self._sync is None else self._sync.cuts()

    def techniques(self) -> Techniques | None:
        """Returns the techniques of the buckets; None if gradients stay local."""
        return None if self._sync is None else self._sync.techniques

    def undo(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the optimizer a plain one again."""
        for hook in self._hooks:
            hook.remove()
        for name in self._attributes:
            optimizer.__dict__.pop(name, None)
        if self._sync is not None:
            self._sync.close()
            self._sync.give_back_key()
        if self._local is not None:
            self._local.close()

    def _take_parameters(self, after_backward: bool = False) -> None:
        """Takes new parameters, and those that were frozen until now."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        self.masters.adopt(optimizer, self._names)
        hooks = self._sync or self._local
        if hooks is not None and hooks.covers(sum(len(group["params"]) for group in optimizer.param_groups)):
            return
        named = names_of(self.masters.parameters(optimizer), self._names)
        if self._sync is not None:
            self._sync.add(((name, parameter) for parameter, name in named.items()), after_backward)
        if self._local is not None:
            self._local.add(named)
        # Users of Horovod look at these.
        optimizer._parameter_names = named  # type: ignore[attr-defined]
        optimizer._requires_update = {parameter for parameter in named if parameter.requires_grad}  # type: ignore[attr-defined]
        optimizer._handles = {}  # type: ignore[attr-defined]  # outside of backward() nothing is in flight

    def _finish_failed(self) -> None:
        """Completes the reductions that a failed backward or step has left."""
        if self._strategy is not None:
            self._strategy.abandon_step()
        if self._sync is not None and self._sync.outstanding():
            self._sync.synchronize()

    def synchronize(self) -> None:
        """Completes the gradients for this step; ``step()`` does so by itself.

        Needed only to see gradients as ``step()`` will where some are not complete when backward() returns:
        a window of backward_passes_per_step that ended early, gradients made without backward().
        """
        if self._sync is not None or self._local is not None:
            self._take_parameters(after_backward=True)
        if self._sync is not None:
            self._sync.synchronize()
        self.masters.take_gradients(arrived=False)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes ``step()`` inside ``with`` take the gradients as they are. Use it after ``synchronize()``."""
        if self._strategy is not None and not self._strategy.reduces_gradients:
            text = f"skip_synchronize() has no meaning with strategy {self._strategy.text}"
            raise RuntimeError(f"{text} (as op=Adasum is): it combines the steps")
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Makes ``backward()`` only add to ``.grad`` inside ``with``; the first one after it reduces all."""
        if self._sync is None:
            yield
            return
        self._sync.rules.no_sync_depth += 1
        try:
            yield
        finally:
            self._sync.rules.no_sync_depth -= 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Makes gradients be reduced once in ``passes`` backward passes from now on."""
        check_passes(passes)
        optimizer = self._optimizer()
        if self._strategy is not None and optimizer is not None:
            names = names_of(self.masters.parameters(optimizer), self._names)
            self._strategy.accept_gradients(names.values(), passes)
        if self._sync is not None:
            self._sync.rules.passes_per_step = passes

    def note_unscaled(self) -> None:
        """Records that GradScaler has changed the gradients."""
        self.masters.note_unscaled()

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings equal on all ranks. Reduced gradients overflow alike anyway."""
        if self._strategy is not None:
            self._strategy.agree_on_overflow(found)
        if self._sync is not None:
            self._sync.techniques.note_overflow(found.values())

    @property
    def keeps_back(self) -> bool:
        """Whether the strategy may keep gradients back on this rank."""
        return self._sync is not None and self._sync.techniques.may_keep()

    def rescale(self, factor: float) -> None:
        """Multiplies what the strategy's techniques keep back: the loss has a new scale."""
        if self._strategy is not None:
            self._strategy.rescale(factor)

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._step = Span("step")
        self.masters.refresh()
        changed = self._synchronize_in_step(args, kwargs)
        if self._strategy is not None:
            self._strategy.before_step(optimizer)
        return changed

    def _synchronize_in_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Synchronizes now, or makes the closure do it and returns the changed arguments of step()."""
        if self._skip and self._sync is not None and self._sync.has_submitted():
            raise RuntimeError("gradients are still in flight: call synchronize() before skip_synchronize()")
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._complete_gradients()
            return None
        if self._strategy is not None:
            self._strategy.accept_closure()

        def synchronized(*closure_args: Any, **closure_kwargs: Any) -> Any:
            self.masters.write_back()
            loss = closure(*closure_args, **closure_kwargs)
            self._complete_gradients()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": synchronized}
        return (args[0], synchronized, *args[2:]), kwargs

    def _complete_gradients(self) -> None:
        if self._skip:
            self.masters.take_gradients(arrived=False)
        else:
            self.synchronize()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._strategy is not None:
            self._strategy.after_step(optimizer)
        self.masters.end_step()
        if self._sync is not None:
            self._sync.techniques.new_step()
            self._sync.new_step()
        if self._step is not None:
            self._step.end()
            self._step = None


def wrapped() -> list[tuple[torch.optim.Optimizer, Wrapper]]:
    """Returns all wrapped optimizers of this process, in the order of wrapping."""
    return list(_wrapped.items())


def wrapper_of(optimizer: torch.optim.Optimizer) -> Wrapper | None:
    """Returns the wrapper of a wrapped optimizer; None for a plain one."""
    return _wrapped.get(optimizer)


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
    *,
    strategy: Strategy | str | None = None,
    master_weights: bool = False,
) -> OptimizerT:
    """Returns ``optimizer`` itself. Backward passes reduce its gradients over all ranks from now on.

    When ``backward()`` returns the gradients hold the result, so clipping and GradScaler need nothing
    special. Every rank of ``process_set`` wraps its optimizers in the same order, with the same parameters;
    on other ranks the optimizer stays a plain one. Wrapping again replaces the settings.

    named_parameters: names for messages and the timeline. compression: the form in which gradients travel.
    backward_passes_per_step: gradients are summed locally over so many backward passes, then reduced. op:
    Average, Sum, Min, Max, Product; Adasum combines the ranks' steps instead of their gradients
    (strategies/adasum.py). gradient_predivide_factor: with Average, gradients are divided by it before the
    sum and by size / factor afterwards. groups: into how many groups to put the parameters, or lists of
    parameters; the gradients of a group are reduced together. num_groups: its deprecated name.
    sparse_as_dense: sparse gradients are made dense to be reduced, and sparse again; else indices and values
    are gathered (Average and Sum; ValueError for other ops). strategy: what happens to buckets and around a
    step (docs/strategies.md), as an object or as text such as "dense:wire=bf16"; None: ROUNDELAY_STRATEGY's.
    master_weights: the optimizer works on fp32 copies of fp16 and bf16 parameters (docs/master_weights.md).

    It gains ``synchronize()``, ``skip_synchronize()``, ``no_sync()``, ``set_backward_passes_per_step(n)``.
    Raises ValueError for wrong arguments, before ``init``, and if its present strategy keeps gradients back.
    """
    _core.size()
    check_optimizer(optimizer)
    before = _wrapped.get(optimizer)
    masters = MasterWeights.chosen(optimizer, master_weights, before.masters if before is not None else None)
    parameters = masters.parameters(optimizer)
    names = checked_names(parameters, named_parameters)
    check_compression(compression)
    check_passes(backward_passes_per_step)
    op, factor = checked_reduction(op, gradient_predivide_factor)
    chosen, compression = chosen_strategy(strategy, compression, op)
    chosen.check(optimizer, op, factor, names_of(parameters, names).values(), backward_passes_per_step)
    grouping = assign(num_groups, groups, [parameter for group in parameters for parameter in group])
    set_id(process_set)
    watch(wrapper_of)
    _leave(optimizer)
    scope = _scopes.next(process_set) if process_set.included() else 0
    sync = None
    active = process_set.included() and process_set.size() > 1
    if active and chosen.reduces_gradients:
        sparse = chosen.takes_sparse
        rule = Reduction(op, 1.0 / factor, factor, compression, sparse_as_dense, sparse, process_set)
        sync = GradientSync(scope, rule, backward_passes_per_step, grouping, chosen, masters)
        if sync.techniques.asks:
            asking.add(process_set)
    keeper = sync.techniques if sync is not None else Techniques(chosen, op, process_set, "", {})
    chosen.attach(optimizer, Context(process_set, compression, scope, masters.stepped), keeper)
    attached[optimizer] = chosen
    _wrapped[optimizer] = Wrapper(optimizer, sync, chosen if active else None, names, process_set, masters)
    return optimizer


def _leave(optimizer: torch.optim.Optimizer) -> None:
    """Makes a wrapped optimizer a plain one. ValueError on all ranks if its strategy keeps gradients back."""
    previous = _wrapped.get(optimizer)
    if previous is None:
        return
    check_nothing_is_kept(previous.techniques(), attached[optimizer].text, previous.process_set)
    del _wrapped[optimizer]
    attached.pop(optimizer).detach()
    previous.undo(optimizer)


def _joined(process_set: ProcessSet, last_rank: int) -> None:
    number = process_set.process_set_id
    there = [each.techniques() for _, each in wrapped() if each.process_set.process_set_id == number]
    agree_on_steps(process_set, last_rank, there)


after_join.append(_joined)
