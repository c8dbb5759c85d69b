"""The hooks and methods that DistributedOptimizer gives to an optimizer (distributed.py)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.generations import is_elastic
from roundelay.torch._internal.measure import Span
from roundelay.torch._internal.optimizer.arguments import check_passes
from roundelay.torch._internal.optimizer.bound_method import BoundMethod, GainedMethods
from roundelay.torch._internal.optimizer.gradient_hooks import GradientHooks, MakeSync
from roundelay.torch._internal.optimizer.gradient_marks import GradientMarks
from roundelay.torch._internal.optimizer.options import Options
from roundelay.torch._internal.optimizer.settings import note_passes
from roundelay.torch._internal.optimizer.step_hook import StepHook
from roundelay.torch._internal.optimizer.techniques import Techniques
from roundelay.torch._internal.optimizer.uncounted_steps import UncountedSteps
from roundelay.torch._internal.optimizer.wrapped_parameters import WrappedParameters
from roundelay.torch._internal.parameter_names import of_wrapped
from roundelay.torch._internal.untraced import untraced
from roundelay.torch.process_sets import set_id


class Wrapper:
    """What one wrapped optimizer does around ``step()``. It does not keep the optimizer alive.

    parameters: those in its groups. gradient_hooks: the hooks on them. masters: its fp32 masters.
    """

    _methods = ("synchronize", "skip_synchronize", "no_sync", "set_backward_passes_per_step")

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        options: Options,
        make_sync: MakeSync,
        active: bool,
        marks: GradientMarks | None,
    ) -> None:
        """Gradients stay local until regroup() is called.

        active: this rank has others to work with. marks: of a job of one rank.
        """
        self.options, self.process_set = options, options.rule.process_set
        self.masters = options.masters
        self._optimizer = weakref.ref(optimizer)
        self._strategy = options.strategy if active else None
        self._skip = self._ended = False
        self._step: Span | None = None
        self._checked = False  # nothing else has reduced the parameters in the first backward
        self._uncounted = UncountedSteps(optimizer, self._strategy, self.masters.enabled)
        self.gradient_hooks = GradientHooks(optimizer, options, make_sync, marks)
        self.parameters = WrappedParameters(optimizer, options, self.gradient_hooks, self._uncounted)
        of_wrapped[optimizer] = self.parameters.names
        self._hooks = [
            optimizer.register_step_pre_hook(StepHook(self._before_step)),
            optimizer.register_step_post_hook(StepHook(self._after_step)),
            optimizer.register_load_state_dict_post_hook(BoundMethod(self._uncounted.forget)),
        ]
        self._gained = GainedMethods(optimizer)
        for name in self._methods:
            self._gained.add(name, getattr(self, name))
        self._extend(optimizer, "add_param_group", after=self.parameters.add_group)
        if self._strategy is not None:
            self._extend(optimizer, "zero_grad", self._finish_failed, self._new_gradients)
        for name in self.masters.methods.keys() - self._gained.names:
            self._extend(optimizer, name, self.parameters.refresh if name == "load_state_dict" else None)
        self.parameters.refresh()
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
        self._gained.extend(name, method, before, after)

    def regroup(self) -> None:
        """Reduces gradients over the ranks that the strategy names, or over none; between two steps."""
        if self._optimizer() is None:
            return
        wanted = self._strategy.gradient_set() if self._strategy is not None else None
        if wanted is not None and wanted.size() == 1 and not is_elastic():
            wanted = None
        if self.gradient_hooks.reduce_over(wanted):
            self.parameters.refresh()
            self.gradient_hooks.follow(self.parameters.watch.named)

    def restart(self) -> None:
        """Begins a new job with this optimizer in it. init() calls it.

        If its process set has ended, step() says so.
        """
        if self._strategy is not None and self.process_set.process_set_id is None:
            self.gradient_hooks.end()
            self._ended = True
            return
        self.gradient_hooks.leave_job()
        if self._strategy is not None:
            self._strategy.restart()
        if self.gradient_hooks.sync is not None:
            self.gradient_hooks.sync.restart()

    def undo(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the optimizer a plain one again."""
        for hook in self._hooks:
            hook.remove()
        self._gained.take_away(optimizer)
        self.parameters.forget(optimizer)
        of_wrapped.pop(optimizer, None)
        self.gradient_hooks.end()
        self._uncounted.end()

    def buckets(self) -> int:
        """Returns the number of buckets; 0 if each gradient is reduced on its own."""
        return 0 if self.gradient_hooks.sync is None else self.gradient_hooks.sync.buckets()

    def techniques(self) -> Techniques | None:
        """Returns the techniques of the buckets; None if gradients stay local."""
        return None if self.gradient_hooks.sync is None else self.gradient_hooks.sync.techniques

    def _new_gradients(self) -> None:
        self.parameters.refresh()
        if self.gradient_hooks.sync is not None:
            self.gradient_hooks.sync.new_step()

    def _follow_timeline(self) -> None:
        """Marks gradients from now on, or no longer, where no GradientSync does: in a job of one rank."""
        marks = self.gradient_hooks.marks
        if marks is None or self._optimizer() is None:
            return
        if _core.timeline_enabled():
            self.parameters.refresh()
            marks.follow(self.parameters.watch.named)
        else:
            marks.close()

    def _finish_failed(self) -> None:
        """Completes the reductions that a failed backward or step has left."""
        if self._strategy is not None:
            self._strategy.abandon_step()
        if self.gradient_hooks.sync is not None and self.gradient_hooks.sync.outstanding():
            self.gradient_hooks.sync.synchronize()

    def synchronize(self) -> None:
        """Completes the gradients for this step; ``step()`` does so by itself.

        Needed only to see gradients as ``step()`` will where some are not complete when backward() returns:
        a window of backward_passes_per_step that ended early, gradients made without backward().
        """
        self.parameters.refresh()
        if self.gradient_hooks.sync is not None and not self.gradient_hooks.stays_local:
            self.gradient_hooks.sync.synchronize()
        self.masters.pairs.take_gradients(arrived=False)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes ``step()`` inside ``with`` take the gradients as they are. Use it after ``synchronize()``."""
        if self._strategy is not None and not self._strategy.reduces_gradients:
            text = f"skip_synchronize() has no meaning with strategy {self._strategy.text}"
            raise RuntimeError(f"{text} (as op=Adasum is), which combines the steps: call step() without it")
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Makes ``backward()`` only add to ``.grad`` inside ``with``; the first one after it reduces all."""
        rules = self.gradient_hooks.rules()
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
            self.parameters.refresh()
            self._strategy.accept_gradients(self.parameters.watch.named.values(), passes)
        note_passes(self._optimizer(), passes)
        self.gradient_hooks.set_passes(passes)

    def note_unscaled(self) -> None:
        """Records that GradScaler has changed the gradients."""
        self.masters.pairs.note_unscaled()

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes GradScaler's findings equal on all ranks. Reduced gradients overflow alike anyway."""
        if self._strategy is not None:
            self._strategy.agree_on_overflow(found)
        self._uncounted.note_overflow(found.values())
        if self.gradient_hooks.sync is not None:
            self.gradient_hooks.sync.techniques.note_overflow(found.values())

    @property
    def keeps_back(self) -> bool:
        """True if the strategy may keep gradients back on this rank."""
        return self.gradient_hooks.sync is not None and self.gradient_hooks.sync.techniques.may_keep()

    def rescale(self, factor: float) -> None:
        """Multiplies what the strategy's techniques keep back: the loss has a new scale."""
        if self._strategy is not None:
            self._strategy.rescale(factor)

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._ended:
            set_id(self.process_set)
            raise ValueError("the process set has ended: give its optimizer to DistributedOptimizer again")
        if not self._checked:
            self.parameters.refresh()
            self.parameters.check_owners()
            self._checked = True
        self._step = Span("step")
        self.masters.pairs.refresh()
        changed = self._synchronize_in_step(args, kwargs)
        if self._strategy is not None:
            self._strategy.before_step(optimizer)
        return changed

    def _synchronize_in_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Synchronizes now, or makes the closure do it and returns the changed arguments of step()."""
        if self._skip and self.gradient_hooks.sync is not None and self.gradient_hooks.sync.has_submitted():
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
            return loss if self._skip else self.gradient_hooks.agreed_loss(loss)

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
        if self.gradient_hooks.sync is not None:
            self.gradient_hooks.sync.techniques.new_step()
            self.gradient_hooks.sync.new_step()
        if self._step is not None:
            self._step.end()
            self._step = None
        self._follow_timeline()
