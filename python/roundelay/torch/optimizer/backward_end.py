"""Runs listeners at the end of the outermost backward.

The engine runs a callback at the end of the backward that queued it, but reentrant checkpointing runs
backwards inside a backward. The inner one runs while a node of the outer graph is evaluated. The node's
successors run in the outer backward: a hook on them queues the callback there.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd import Variable

from roundelay import _core
from roundelay.torch.measure import Span
from roundelay.torch.untraced import untraced

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED_AUTOGRAD = (
    "compiled autograd does not tell when a backward ends, so that gradients cannot be complete then: put "
    "backward() into `with optimizer.no_sync():`, and step() reduces them, or synchronize() before you clip"
)


class Listener(Protocol):
    """An object that takes part in backwards and is told when the outermost one ends."""

    order: tuple[int, int]  # listeners are waited for in this order, which is the same on all ranks

    def backward_ended(self) -> bool:
        """Returns whether the ranks have something to agree on. If so, begin_round() follows."""

    def begin_round(self, final: bool, alone: bool) -> None:
        """Tells the other ranks what was submitted; does not wait.

        final: this rank is in step() and has no further gradients. alone: end_round() comes next.
        """

    def end_round(self) -> None:
        """Waits until everything that was submitted is complete."""


class BackwardEnd:
    """The listeners that take part in the running backward. There is one object in a process."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._queued_in = -1  # the graph task that has our callback
        self._span: Span | None = None

    def add(self, listener: Listener) -> int:
        """Adds ``listener`` to this backward, and returns the backward's number. Hooks call it."""
        task = torch._C._current_graph_task_id()
        if task == self._queued_in and listener in self._listeners:
            return task
        if self._span is None:
            self._span = Span("backward", "backward_ns")
        if listener not in self._listeners:
            self._listeners.append(listener)
        self._queue(task)
        return task

    @staticmethod
    def is_compiled() -> bool:
        """Returns whether compiled autograd runs the backward, which ends without a callback."""
        return bool(torch._dynamo.compiled_autograd.in_compiled_autograd_region)

    def end_if_compiled(self) -> None:
        """Ends the backward after one gradient if no callback will come. For who waits for no rank."""
        if self.is_compiled():
            self._ended()

    def _queue(self, task: int) -> None:
        if task != self._queued_in:
            self._queued_in = task
            Variable._execution_engine.queue_callback(self._callback)

    @cached_property
    def _callback(self) -> Callable[[], None]:
        return untraced(self._ended)

    def _ended(self) -> None:
        self._queued_in = -1
        outer_node: Any = torch._C._current_autograd_node()  # None: this backward is the outermost
        if outer_node is not None:
            self._pass_on(outer_node)
            return
        listeners, self._listeners = sorted(self._listeners, key=lambda listener: listener.order), []
        if self._span is not None:
            self._span.end()
            self._span = None
        listeners = [listener for listener in listeners if listener.backward_ended()]
        if listeners:
            with _core.Waiting():
                self._synchronize(listeners)

    @staticmethod
    def _synchronize(listeners: list[Listener]) -> None:
        # All rounds begin before the first is waited for, as ranks may use their optimizers in any order.
        for listener in listeners:
            listener.begin_round(final=False, alone=len(listeners) == 1)
        failure: Exception | None = None
        for listener in listeners:
            try:
                listener.end_round()
            except Exception as error:
                failure = failure or error  # the other listeners' gradients are in flight: wait for them
        if failure is not None:
            raise failure

    def _pass_on(self, outer_node: Any) -> None:
        hooks: list[Any] = []

        def in_outer_backward(*_: Any) -> None:
            for hook in hooks:
                hook.remove()
            self._queue(torch._C._current_graph_task_id())

        for successor, _ in outer_node.next_functions:
            if successor is not None:
                hooks.append(successor.register_prehook(in_outer_backward))


backward_end = BackwardEnd()
