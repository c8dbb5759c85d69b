"""The loop of elastic training: sync, train, and begin again when the ranks change."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.run.agent import member
from roundelay.torch._internal import resets
from roundelay.torch._internal.generations import is_elastic
from roundelay.torch._internal.global_state import init, shutdown
from roundelay.torch._internal.optimizer.distributed import wrapped
from roundelay.torch._internal.resets import change
from roundelay.torch._internal.strategy.attached import attached

if TYPE_CHECKING:
    from roundelay.torch._internal.strategy.strategy import Strategy
    from roundelay.torch.elastic.objects import State

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="State")


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """The workers of the job have changed. ``skip_sync``: nobody has joined, so all have the same state."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def run(func: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorates an elastic training function, whose first argument is its ``State``.

    Before each call it gives every rank the same state (``state.sync()``). When a rank is lost
    (HorovodInternalError) the others go back to their last ``state.commit()``; when ranks have come or are to
    leave (HostsUpdatedInterrupt, out of ``commit()``) they go on from there. Then the ranks are counted anew,
    the state's reset callbacks run, and the function is called again, in the same process.

    Raises what the function raises, and HorovodInternalError when the job cannot go on. Without an elastic
    launcher the errors of a lost rank are raised at once.
    """

    @functools.wraps(func)
    def wrapper(state: S, *args: P.args, **kwargs: P.kwargs) -> T:
        changed = skip_sync = False
        state.go_on()
        while True:
            try:
                if changed:
                    for strategy in _strategies():
                        strategy.join_generation()
                    state.on_reset()
                if skip_sync:
                    state.note_generation()
                else:
                    change.begin(resets.SYNC)
                    state.sync()
                change.show()
                return func(state, *args, **kwargs)
            except HorovodInternalError:
                if not is_elastic():
                    raise
                change.begin(resets.RESTORE)
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                change.begin(resets.RESTORE)
                skip_sync = _left_together(state) and interrupt.skip_sync
            _join_next_generation()
            changed = True

    return cast(Callable[Concatenate[S, P], T], wrapper)  # which takes the state by name, too


def _left_together(state: State) -> bool:
    """Prepares for other ranks. Returns whether all had the time: a rank may be lost meanwhile."""
    try:
        for strategy in _strategies():
            strategy.leave_generation()
        state.leave_generation()
    except HorovodInternalError:
        state.restore()
        return False
    return True


def _join_next_generation() -> None:
    """Joins the next generation. The process ends if it has no place there."""
    shutdown()
    try:
        init()
    except SystemExit:
        for strategy in _strategies():
            lost = strategy.lost_with_this_rank()
            if lost:
                _core.log_warning(
                    f"strategy {strategy.text}: this rank leaves, and what it has kept back of its gradients "
                    f"is lost: {lost}"
                )
        raise


def _strategies() -> list[Strategy]:
    """Returns those of all wrapped optimizers, in the order of wrapping."""
    return [attached[optimizer] for optimizer, _ in wrapped()]


def change_of_workers() -> int:
    """Returns what the launcher says of this rank's generation: 0, or a run/elastic/membership.Change."""
    worker = member.of_this_process()
    return 0 if worker is None else worker.change


__all__ = ["HostsUpdatedInterrupt", "change_of_workers", "run"]
