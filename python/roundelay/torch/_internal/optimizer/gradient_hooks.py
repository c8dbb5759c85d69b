"""The hooks on the parameters of one wrapped optimizer, by what happens to its gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.optimizer.closure_loss import agreed_loss
from roundelay.torch._internal.optimizer.gradient_marks import GradientMarks
from roundelay.torch._internal.optimizer.gradient_sync import GradientSync
from roundelay.torch._internal.optimizer.local_gradients import LocalGradients
from roundelay.torch._internal.optimizer.options import Options
from roundelay.torch.process_sets import ProcessSet

MakeSync = Callable[[ProcessSet], GradientSync]


class GradientHooks:
    """Hooks that reduce gradients (``sync``), or that only tell masters or a timeline of them.

    Gradients stay local until reduce_over() is called. marks: of a job of one rank. The hooks go when the
    optimizer is collected as garbage.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        options: Options,
        make_sync: MakeSync,
        marks: GradientMarks | None,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._masters = options.masters
        self._op = options.rule.op
        self._passes = options.passes
        self._make_sync = make_sync
        self.sync: GradientSync | None = None
        self._reduced_over: ProcessSet | None = None
        self._local: LocalGradients | None = None
        self._closer: weakref.finalize[Any, Any] | None = None  # of the one of both that there is
        self.stays_local = False  # the gradients of the next step are not reduced
        self.marks = marks
        self._end_marks = None if marks is None else self._at_end(optimizer, marks.close)

    @staticmethod
    def _at_end(optimizer: torch.optim.Optimizer, close: Callable[[], None]) -> weakref.finalize[Any, Any]:
        closer = weakref.finalize(optimizer, close)
        closer.atexit = False
        return closer

    def reduce_over(self, ranks: ProcessSet | None) -> bool:
        """Reduces gradients over these ranks from the next step on; None: they stay on this rank.

        Returns whether there are other hooks now, which follow() must be told of.
        """
        hooked = self.sync is not None or self._local is not None or not self._masters.enabled
        optimizer = self._optimizer()
        if optimizer is None or (hooked and ranks is self._reduced_over):
            return False
        self._end()
        self._reduced_over = ranks
        if ranks is not None:
            self.sync = self._make_sync(ranks)
            self.sync.rules.passes_per_step = self._passes
            self.sync.rules.no_sync_depth += int(self.stays_local)
            self._closer = self._at_end(optimizer, self.sync.close)
        elif self._masters.enabled:
            self._local = LocalGradients(self._masters.pairs.take_gradients)
            self._closer = self._at_end(optimizer, self._local.close)
        return True

    def leave_job(self) -> None:
        """Forgets what is in flight: a backward of the last job raised in its middle."""
        if self.sync is not None and self.sync.outstanding():
            self.sync.abandon()

    def keep_local(self, local: bool) -> None:
        """Makes the gradients of the next steps stay on this rank, or be reduced again; between steps."""
        if local != self.stays_local and self.sync is not None:
            self.sync.rules.no_sync_depth += 1 if local else -1
        self.stays_local = local

    def agreed_loss(self, loss: Any) -> Any:
        """Returns the loss by which the optimizer decides: all ranks', if it is one that decides by it."""
        if self.sync is None:
            return loss
        techniques = self.sync.techniques
        prefix = techniques.table.prefix
        return agreed_loss(self._optimizer(), loss, self._op, techniques.process_set, prefix)

    def follow(self, named: Mapping[torch.Tensor, str]) -> None:
        """Moves the hooks to these parameters."""
        if self.sync is not None:
            self.sync.follow(named)
        if self._local is not None:
            self._local.follow(named.keys())

    def rules(self) -> _core.HookRules | None:
        """Returns the settings of the hooks that count backwards; None: there are no such hooks."""
        hooks = self.sync or self.marks
        return None if hooks is None else hooks.rules

    def set_passes(self, passes: int) -> None:
        """Changes the number of backward passes in a step."""
        self._passes = passes
        rules = self.rules()
        if rules is not None:
            rules.passes_per_step = passes

    def _end(self) -> None:
        """Takes the hooks off the parameters, and forgets their owner and its pool."""
        if self._closer is not None:
            self._closer.detach()
            self._closer = None
        if self.sync is not None:
            self.sync.close()
            self.sync.give_back_key()
        if self._local is not None:
            self._local.close()
        self.sync = self._local = None

    def end(self) -> None:
        """Takes all hooks off."""
        self._end()
        if self._end_marks is not None:
            self._end_marks()
        self.marks = self._end_marks = None
