"""DistributedOptimizer(weight=): each rank's gradients count by the size of its batch.

The core has the arithmetic (csrc/gradients/batch_weights.h).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations import Average
from roundelay.torch._internal.optimizer.equality import fail
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, global_process_set

# The optimizer's attribute that is the user's function. Nothing else refers to that: it may refer to the
# optimizer.
_ATTRIBUTE = "_batch_weight"


class _Source:
    """This rank's weights, as the core asks for them. It does not keep the optimizer alive.

    prefix: that of the optimizer's names.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._shown = ""  # the last weight
        self._wrong: str | None = None  # what is wrong with it
        self._error: Exception | None = None
        self.prefix, self.process_set = "", global_process_set

    def weight(self) -> float:
        """Returns the user's number; NaN if it is wrong: the peers wait for it, and all ranks refuse it."""
        self._error = self._wrong = None
        try:
            given = getattr(self._optimizer(), _ATTRIBUTE)()
            number = float(given)
        except Exception as error:
            self._error, self._wrong = error, f"weight= raised {type(error).__name__}: {error}"
            return math.nan
        self._shown = f"{number:g}"
        if not 0.0 <= number < math.inf:
            self._wrong = f"weight= returned {given!r}"
            return math.nan
        return number

    def refuse(self, in_flight: Sequence[str]) -> None:
        """Raises why the last weights of the ranks have no average. All ranks call it.

        in_flight: the names of this rank's operations. Those that only some ranks have submitted fail with
        the same text.
        """
        mine = (_core.rank(), self._wrong, self._shown, in_flight)
        gathered = allgather_object(mine, f"{self.prefix}.weights", self.process_set)
        bad = next(((rank, wrong) for rank, wrong, *_ in gathered if wrong is not None), None)
        if bad is not None:
            cause = (
                f"on rank {bad[0]} {bad[1]}, but it must return a finite number from 0 on, such as that of "
                "the rank's samples"
            )
        elif all(float(shown) == 0.0 for _, _, shown, _ in gathered):
            cause = (
                "the weights of all ranks are 0, which have no average: leave such a step out on all ranks"
            )
        else:
            cause = "the sum of the ranks' weights is too large or too small: return numbers of samples"
        text = f"gradients ({self.prefix!r}) cannot be averaged: {cause}; call zero_grad() and go on"
        names = {name for *_, names in gathered for name in names}
        fail(names - set(in_flight), text, self.process_set)
        raise ValueError(text) from self._error


class BatchWeight:
    """The weights of one optimizer. ``core`` is the core's part of them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._source = _Source(optimizer)
        self.core = _core.BatchWeights(self._source.weight, self._source.refuse)

    def belong_to(self, prefix: str, process_set: ProcessSet) -> None:
        """Makes them those of gradients with this prefix, reduced over these ranks."""
        self._source.prefix, self._source.process_set = prefix, process_set
        self.restart()

    def restart(self) -> None:
        """Forgets earlier weights, which a rank that had joined does not know. All ranks do it alike."""
        self.core.restart(self._source.process_set.size())


def checked_weight(
    optimizer: torch.optim.Optimizer, weight: Callable[[], Any] | None, op: int, strategy: Strategy
) -> BatchWeight | None:
    """Returns the weights of an optimizer; None if its ranks count alike. ValueError: it cannot have some."""
    if weight is None:
        return None
    if not callable(weight):
        raise ValueError(
            f"weight is {weight!r}, but must be a function that returns the number of this rank's samples in "
            "the step, such as lambda: len(batch)"
        )
    if op != Average:
        raise ValueError("weight= is for averages: it needs op=hvd.Average")
    if not strategy.takes_weight:
        raise ValueError(
            f"weight= cannot go with strategy {strategy.text}, which does not add up a step's gradients "
            "as they are: take strategy='dense'"
        )
    return BatchWeight(optimizer)


def own_weight(optimizer: torch.optim.Optimizer) -> float | None:
    """Returns this rank's weight now; None: all ranks count alike."""
    function = getattr(optimizer, _ATTRIBUTE, None)
    return None if function is None else float(function())


def keep_function(optimizer: torch.optim.Optimizer, weight: Callable[[], Any] | None) -> None:
    """Makes the optimizer keep the user's function; None: it keeps none any more."""
    optimizer.__dict__.pop(_ATTRIBUTE, None)
    if weight is not None:
        setattr(optimizer, _ATTRIBUTE, weight)
