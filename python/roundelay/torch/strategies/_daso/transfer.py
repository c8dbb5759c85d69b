"""Tensors on their way between the nodes, while training goes on."""

from __future__ import annotations

from roundelay import _core
from roundelay.torch._internal.measure import Span, count
from roundelay.torch._internal.operations import Sum
from roundelay.torch._internal.operations.common import by_device
from roundelay.torch.process_sets import ProcessSet, set_id
from roundelay.torch.strategies._averaging.averages import Cycle, CycleCheck
from roundelay.torch.strategies._daso.flat_copy import FlatCopy


class Transfer:
    """Adds up copies of the ranks of a set in the background: the copy then has the sums.

    It begins at once and waits for nothing. Nobody may use the copy before wait() has returned. The cycles
    must be equal on all ranks that take part; ranks that have joined add nothing.
    """

    def __init__(self, copy: FlatCopy, cycle: Cycle, name: str, process_set: ProcessSet) -> None:
        self.copy, self._ranks = copy, process_set.ranks
        parts = by_device((piece, piece) for piece in copy.pieces)
        self._check = CycleCheck(cycle, name, process_set)
        self._handles = [
            _core.grouped_allreduce_async(
                part, part, f"{name}.part{number}" if number else name, Sum, 1.0, 1.0, set_id(process_set)
            )
            for number, part in enumerate(parts)
        ]
        _core.end_linger()
        count("parameter_transfers")

    def is_done(self) -> bool:
        """Returns whether wait() would not wait."""
        return all(_core.poll(handle) for handle in (*self._handles, self._check.handle))

    def wait(self, late: str | None = None) -> list[int]:
        """Sleeps until the copy has the sums. Returns the ranks that have taken part. Call it once.

        late: the name of a counter, which counts the call if it must sleep. HorovodInternalError: a rank
        failed. MismatchError, on all ranks that take part: their cycles differ.
        """
        if late is not None and not self.is_done():
            count(late)
            span = Span("late transfer", f"{late}_ns")
            ranks = self._finish()
            span.end()
        else:
            ranks = self._finish()
        return ranks

    def _finish(self) -> list[int]:
        handles, self._handles = self._handles, []
        errors = []
        for handle in handles:
            try:
                _core.synchronize(handle)
            except RuntimeError as error:
                errors.append(error)
        members = self._check.members()
        if errors:
            raise errors[0]
        return [self._ranks[one] for one in members]
