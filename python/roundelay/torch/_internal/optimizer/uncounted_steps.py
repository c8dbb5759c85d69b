"""Warns if parameters change without ``step()`` of the wrapped optimizer, where strategies and masters work.

An optimizer that steps in a method of its own (SAM's ``second_step``), or through another optimizer object,
runs no hook of ``step()``. Then nothing is averaged, and a warm-up never ends. Hooks on two parameters see
this: versions differ from those at the end of the last backward, and no step was counted since.

One such change of a parameter is allowed for each step: SAM around a wrapped optimizer makes one between its
two backwards, and loading a checkpoint is another. A master may not change so at all, as its parameter gets
the value in ``step()`` only. A change through ``.data`` has no version, so nothing sees it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Reversible
from dataclasses import dataclass

import torch

from roundelay import _core
from roundelay.torch._internal.strategy.strategy import Strategy

_SUPPOSED = (
    "does it step in a method of its own, or does another object step these parameters? Give "
    "DistributedOptimizer the optimizer whose step() is called (such as SAM's base_optimizer), or call "
    "step() of the wrapped one"
)


@dataclass(slots=True)
class _Watched:
    """A parameter, whose versions the core compares in each backward."""

    core: _core.StepWatch
    has_master: bool
    changes: int = 0  # between two backwards, since the last step


class UncountedSteps:
    """Hooks on two parameters of one optimizer. The core calls changed() only where versions differ.

    strategy: None if there are no other ranks. masters: the optimizer has fp32 masters. Nothing is watched if
    neither works in ``step()``.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, strategy: Strategy | None, masters: bool) -> None:
        self._optimizer = type(optimizer).__name__
        self._strategy = strategy.text if strategy is not None and strategy.counts_steps else None
        self._hooks: dict[torch.Tensor, torch.utils.hooks.RemovableHandle] = {}  # keys: parameters
        self._watched: list[_Watched] = []  # one for each hook
        self._over = self._strategy is None and not masters
        self._found: tuple[torch.Tensor, ...] = ()  # GradScaler's; not 0: it skips the step
        self.end = weakref.finalize(optimizer, self._stop)  # stops watching
        self.end.atexit = False

    def follow(
        self, parameters: Reversible[torch.Tensor], stepped: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        """Watches the first and the last of the parameters that is trained.

        stepped: returns the tensor that the optimizer steps for a parameter. An optimizer that was wrapped
        before stops watching these parameters.
        """
        if self._over:
            return

        def wanted(parameter: torch.Tensor) -> bool:
            return parameter.requires_grad and (
                self._strategy is not None or stepped(parameter) is not parameter
            )

        ends = (next(filter(wanted, each), None) for each in (parameters, reversed(parameters)))
        chosen = dict.fromkeys(one for one in ends if one is not None)
        if chosen.keys() == self._hooks.keys():
            return
        self._unhook()
        for parameter in chosen:
            previous = _watchers.get(id(parameter))
            if previous is not None and previous is not self:
                previous._stop()
            _watchers[id(parameter)] = self
            self._watch(parameter, stepped(parameter))

    def _watch(self, parameter: torch.Tensor, stepped: torch.Tensor) -> None:
        watch = _core.StepWatch(stepped)
        hook = _core.WatchHook(watch, self, len(self._watched))
        self._watched.append(_Watched(watch, stepped is not parameter))
        self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(hook)

    def changed(self, number: int) -> None:
        """Takes a change of a watched parameter, by its number, between two backwards: the core calls it."""
        watched = self._watched[number]
        if any(map(bool, self._found)):
            self._begin_anew(but=watched)
            return
        watched.changes += 1
        if watched.has_master or watched.changes > 1:
            self._warn(watched.has_master)

    def forget(self, *_: object) -> None:
        """Allows all changes until the next backward: a step was counted, or parameters were set."""
        self._begin_anew()

    def _begin_anew(self, but: _Watched | None = None) -> None:
        """but: this backward has seen its versions already."""
        self._found = ()
        for watched in self._watched:
            watched.changes = 0
            if watched is not but:
                watched.core.forget()

    def note_overflow(self, found: Iterable[torch.Tensor]) -> None:
        """Takes GradScaler's findings, and does not wait for a GPU: a step that it skips counts, too."""
        self._found = tuple(found)

    def _warn(self, has_master: bool) -> None:
        if has_master:
            text = (
                "fp32 masters have changed between backwards, and parameters get their values only in step() "
                f"of the wrapped {self._optimizer}, which was not called: change parameters and not masters; "
            )
        else:
            text = (
                f"strategy {self._strategy} works in step(), but parameters have changed between backwards "
                f"and step() of the wrapped {self._optimizer} was not called: "
            )
        self._stop()
        warnings.warn(text + _SUPPOSED, RuntimeWarning, stacklevel=2)

    def _stop(self) -> None:
        self._over = True
        self._unhook()

    def _unhook(self) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
        self._watched.clear()


# By id(parameter): the watcher of the optimizer that was wrapped last.
_watchers: weakref.WeakValueDictionary[int, UncountedSteps] = weakref.WeakValueDictionary()
