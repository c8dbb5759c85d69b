"""The hooks and methods that DistributedOptimizer gives to an optimizer (distributed.py)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.measure import Span
from roundelay.torch._internal.optimizer.arguments import check_passes
from roundelay.torch._internal.optimizer.bound_method import BoundMethod
from roundelay.torch._internal.optimizer.gradient_marks import GradientMarks
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.optimizer.local_gradients import LocalGradients
from roundelay.torch._internal.optimizer.master_weights import MasterWeights
from roundelay.torch._internal.optimizer.parameter_watch import ParameterWatch
from roundelay.torch._internal.optimizer.settings import note_passes
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch._internal.optimizer.uncounted_steps import UncountedSteps
from roundelay.torch._internal.parameter_names import Names, of_wrapped
from roundelay.torch._internal.unfit import check_fit
from roundelay.torch._internal.untraced import untraced
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies import Strategy
from roundelay.tuning.buckets import Cuts

MakeSync = Callable[[ProcessSet], GradientSync]


class Wrapper:
    """The hooks and methods of one wrapped optimizer. It does not keep the optimizer alive."""

    _methods = ("synchronize", "skip_synchronize", "no_sync", "set_backward_passes_per_step")
    _fields = ("_parameter_names", "_requires_update", "_handles")

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        make_sync: MakeSync,
        strategy: Strategy | None,
        names: MutableMapping[torch.Tensor, str],
        process_set: ProcessSet,
        masters: MasterWeights,
        passes: int,
        marks: GradientMarks | None,
    ) -> None:
        """Gradients stay local until regroup() is called.

        strategy: None if there are no other ranks to work with. names: those that the user gave. passes: the
        number of backward passes in a step. marks: of a job of one rank.
        """
        self.process_set = process_set
        self._optimizer = weakref.ref(optimizer)
        self._make_sync = make_sync
        self._sync: GradientSync | None = None
        self._reduced_over: ProcessSet | None = None
        self.masters = masters
        self._local: LocalGradients | None = None
        self._closer: weakref.finalize[Any, Any] | None = None  # of the one of both that there is
        self._marks = marks
        if marks is not None:
            self._end_marks = weakref.finalize(optimizer, marks.close)
            self._end_marks.atexit = False
        self._strategy = strategy
        self._watch = ParameterWatch(names)
        of_wrapped[optimizer] = self._present_names
        self._passes = passes
        self._skip = False
        self._stays_local = False  # the gradients of the next step are not reduced
        self._step: Span | None = None
        self._uncounted = UncountedSteps(optimizer, strategy, masters.enabled)
        self._checked = False  # nothing else has reduced the parameters in the first backward
        self._hooks = [
            optimizer.register_step_pre_hook(BoundMethod(self._before_step)),
            optimizer.register_step_post_hook(BoundMethod(self._after_step)),
            optimizer.register_load_state_dict_post_hook(BoundMethod(self._uncounted.forget)),
        ]
        for name in self._methods:
            setattr(optimizer, name, BoundMethod(getattr(self, name)))
        self._attributes = [*self._methods, *self._fields]
        self._extend(optimizer, "add_param_group", after=self._take_group)
        if strategy is not None:
            self._extend(optimizer, "zero_grad", self._finish_failed, self._new_gradients)
        for name in masters.methods.keys() - self._attributes:
            self._extend(optimizer, name)
        self._take_parameters()
        self._follow_timeline()

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

    def _present_names(self) -> Names:
        """Returns the names of the parameters, group by group."""
        self._take_parameters()
        optimizer = self._optimizer()
        groups = [] if optimizer is None else self.masters.parameters(optimizer)
        return [[self._watch.named[parameter] for parameter in group] for group in groups]

    def keep_local(self, local: bool) -> None:
        """Makes the gradients of the next steps stay on this rank, or be reduced again; between steps."""
        if local != self._stays_local and self._sync is not None:
            self._sync.rules.no_sync_depth += 1 if local else -1
        self._stays_local = local

    def regroup(self) -> None:
        """Reduces gradients over the ranks that the strategy names, or over none; between two steps."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        wanted = self._strategy.gradient_set() if self._strategy is not None else None
        if wanted is not None and wanted.size() == 1:
            wanted = None
        hooked = self._sync is not None or self._local is not None or not self.masters.enabled
        if hooked and wanted is self._reduced_over:
            return
        self._end_hooks()
        self._reduced_over = wanted
        if wanted is not None:
            self._sync = self._make_sync(wanted)
            self._sync.rules.passes_per_step = self._passes
            self._sync.rules.no_sync_depth += int(self._stays_local)
            self._close_with(optimizer, self._sync.close)
        elif self.masters.enabled:
            self._local = LocalGradients(self.masters.pairs.take_gradients)
            self._close_with(optimizer, self._local.close)
        self._take_parameters()
        self._hook_parameters()

    def _close_with(self, optimizer: torch.optim.Optimizer, close: Callable[[], None]) -> None:
        """Closes the hooks' owner when the optimizer dies, if _end_hooks() has not let go of it before."""
        self._closer = weakref.finalize(optimizer, close)
        self._closer.atexit = False

    def _end_hooks(self) -> None:
        """Takes the hooks off the parameters, and forgets their owner and its pool."""
        if self._closer is not None:
            self._closer.detach()
            self._closer = None
        if self._sync is not None:
            self._sync.close()
            self._sync.give_back_key()
        if self._local is not None:
            self._local.close()
        self._sync = self._local = None

    def restart(self) -> None:
        """Begins a new job with this optimizer in it. init() calls it."""
        if self._strategy is not None:
            self._strategy.restart()
        if self._sync is not None:
            self._sync.restart()

    def _new_gradients(self) -> None:
        self._take_parameters()
        if self._sync is not None:
            self._sync.new_step()

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
        of_wrapped.pop(optimizer, None)
        self._end_hooks()
        self._uncounted.end()
        if self._marks is not None:
            self._end_marks()
            self._marks = None

    def _take_group(self) -> None:
        """Takes a new group of parameters. Removes it, and raises, if something else reduces some of them."""
        try:
            self._take_parameters()
        except ValueError:
            optimizer = self._optimizer()
            if optimizer is not None:
                optimizer.param_groups.pop()
                self._take_parameters()
            raise

    def _take_parameters(self) -> None:
        """Takes the parameters that are in the groups now, and those that were frozen until now."""
        optimizer = self._optimizer()
        if optimizer is None or self._watch.unchanged(optimizer):
            return
        self._watch.take(optimizer, self.masters.parameters(optimizer))
        named = self._watch.named
        try:
            self._check_owners()
        except ValueError:
            self._watch.forget()
            raise
        self.masters.adopt(optimizer, named)
        self._watch.unchanged(optimizer)  # masters have taken places
        self._hook_parameters()
        self._uncounted.follow(named, self.masters.stepped)
        # Users of Horovod look at these.
        optimizer._parameter_names = named  # type: ignore[attr-defined]
        optimizer._requires_update = {parameter for parameter in named if parameter.requires_grad}  # type: ignore[attr-defined]
        optimizer._handles = {}  # type: ignore[attr-defined]  # outside of backward() nothing is in flight

    def _check_owners(self) -> None:
        """Raises ValueError if something else reduces the parameters."""
        if self.process_set.included():
            named = self._watch.named.items()
            check_fit(((name, parameter) for parameter, name in named), reduced=True)

    def _hook_parameters(self) -> None:
        """Makes the hooks those of the present parameters."""
        if self._sync is not None:
            self._sync.follow(self._watch.named)
        if self._local is not None:
            self._local.follow(self._watch.named.keys())

    def _follow_timeline(self) -> None:
        """Marks gradients from now on, or no longer, where no GradientSync does: in a job of one rank."""
        optimizer = self._optimizer()
        if self._marks is None or optimizer is None:
            return
        if _core.timeline_enabled():
            self._take_parameters()
            self._marks.follow(self._watch.named)
        else:
            self._marks.close()

    def _rules(self) -> _core.HookRules | None:
        hooks = self._sync or self._marks
        return None if hooks is None else hooks.rules

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
        self._take_parameters()
        if self._sync is not None and not self._stays_local:
            self._sync.synchronize()
        self.masters.pairs.take_gradients(arrived=False)

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
        rules = self._rules()
        if rules is None:
            yield
            return
        rules.no_sync_depth += 1
        try:
            yield
        finally:
            rules.no_sync_depth -= 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Makes gradients be reduced once in ``passes`` backward passes from now on."""
        check_passes(passes)
        if self._strategy is not None:
            self._take_parameters()
            self._strategy.accept_gradients(self._watch.named.values(), passes)
        self._passes = passes
        note_passes(self._optimizer(), passes)
        rules = self._rules()
        if rules is not None:
            rules.passes_per_step = passes

    def note_unscaled(self) -> None:
        """Records that GradScaler has changed the gradients."""
        self.masters.pairs.note_unscaled()

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings equal on all ranks. Reduced gradients overflow alike anyway."""
        if self._strategy is not None:
            self._strategy.agree_on_overflow(found)
        self._uncounted.note_overflow(found.values())
        if self._sync is not None:
            self._sync.techniques.note_overflow(found.values())

    @property
    def keeps_back(self) -> bool:
        """True if the strategy may keep gradients back on this rank."""
        return self._sync is not None and self._sync.techniques.may_keep()

    def rescale(self, factor: float) -> None:
        """Multiplies what the strategy's techniques keep back: the loss has a new scale."""
        if self._strategy is not None:
            self._strategy.rescale(factor)

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._checked:
            self._take_parameters()
            self._check_owners()
            self._checked = True
        self._step = Span("step")
        self.masters.pairs.refresh()
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

        before, after = untraced(self.masters.pairs.write_back), untraced(self._complete_gradients)

        def synchronized(*closure_args: Any, **closure_kwargs: Any) -> Any:
            before()
            loss = closure(*closure_args, **closure_kwargs)
            after()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": synchronized}
        return (args[0], synchronized, *args[2:]), kwargs

    def _complete_gradients(self) -> None:
        """Completes what step() takes next. The changes that follow are its own."""
        if self._skip:
            self.masters.pairs.take_gradients(arrived=False)
        else:
            self.synchronize()
        self._uncounted.forget()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._strategy is not None:
            self._strategy.after_step(optimizer)
        self.masters.pairs.end_step()
        self._uncounted.forget()
        if self._sync is not None:
            self._sync.techniques.new_step()
            self._sync.new_step()
        if self._step is not None:
            self._step.end()
            self._step = None
        self._follow_timeline()
