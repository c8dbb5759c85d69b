"""What ranks tell each other beside partial results: that they agree, that they have come, and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch

import roundelay.torch as hvd
from roundelay.algorithms.errors import AlgorithmError, Fault, FaultHere, error_of
from roundelay.algorithms.trees import Layout
from roundelay.errors import HorovodInternalError, MismatchError

Given = TypeVar("Given")
Raised = TypeVar("Raised", bound=Exception)


class Phase(IntEnum):
    """How a rank comes to an exchange."""

    EVALUATED = 0
    FINISHED = 1
    FAULT = 2


class Status(NamedTuple):
    """A rank's word at an exchange. Numbers stand for layouts and states; 0 is none."""

    phase: Phase
    layout: int = 0
    state: int = 0


def everyone_valid(check: Callable[[], Given], call: str) -> Given:
    """Returns what ``check`` returns. If it raises ValueError on some rank, every rank raises ValueError."""
    given, own = None, None
    try:
        given = check()
    except (ValueError, TypeError) as error:
        own = str(error)
    texts = hvd.allgather_object(own, name="algorithms.valid")
    if own is None and all(text is None for text in texts):
        return given  # type: ignore[return-value]
    rank, text = next((rank, text) for rank, text in enumerate(texts) if text is not None)
    who = "" if all(one == text for one in texts) else f"rank {rank}: "
    raise _known(ValueError(f"{call}: {who}{text}"))


def agree(settings: Mapping[str, Any], call: str) -> None:
    """Raises MismatchError on every rank if some rank's settings differ from those of rank 0."""
    everyone = hvd.allgather_object(dict(settings), name="algorithms.settings")
    for rank, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                text = f"{call}: rank 0 has {name} {value}, rank {rank} has {theirs[name]}"
                raise _known(MismatchError(f"{text}: run the same program on the same data on every rank"))


def _known(error: Raised) -> Raised:
    """Returns the error once every rank knows it: a rank that ends with it would cut off the others."""
    with suppress(HorovodInternalError):
        hvd.barrier()
    return error


class Exchange:
    """The exchanges of one run. All ranks call its functions in the same order."""

    def __init__(self) -> None:
        self._layout: Layout | None = None  # of the partial results, as this rank knows it

    def meet(self, step: int, status: Status, fault: FaultHere | None, layout: Layout | None) -> bool:
        """Meets the other ranks before the partial results of a step travel.

        layout: that of this rank's partial results, None if it has no shard. Returns whether the run has
        ended. Raises AlgorithmError, on every rank, if there is a fault or the ranks' words do not fit.
        """
        known = self._layout.number if self._layout is not None else 0
        row = torch.tensor([[*status, known]], dtype=torch.int64, device="cpu")
        table = hvd.allgather(row, name="algorithms.status")
        phases, layouts, states, knowns = table.unbind(1)
        if bool((phases == Phase.FAULT).any()):
            self.raise_faults(fault)
        if bool((phases != phases[0]).any()):
            says = [int(rank) for rank in (phases == Phase.FINISHED).nonzero()]
            raise self._contract(
                "until", step, f"ends the run on ranks {says} alone: it must depend on the state"
            )
        if bool((states != states[0]).any()):
            other = int((states != states[0]).nonzero()[0])
            text = f"gave rank {other} another state than rank 0: it must depend on state and total alone"
            raise self._contract("update", step, text, other)
        if phases[0] == Phase.FINISHED:
            return True
        if bool(((layouts != layouts[0]) & (layouts != 0)).any()):
            self._raise_other_layout(step, layout)
        if bool((knowns != layouts[0]).any()):
            self._layout = hvd.broadcast_object(layout, 0, name="algorithms.layout")
        return False

    @property
    def layout(self) -> Layout:
        """Returns the layout of this step's partial results, which ``meet`` has agreed."""
        assert self._layout is not None
        return self._layout

    def raise_faults(self, fault: FaultHere | None) -> NoReturn:
        """Raises the first rank's fault as AlgorithmError. Every rank calls it with its own fault or None."""
        own = fault.fault if fault is not None else None
        error = error_of(hvd.allgather_object(own, name="algorithms.fault"))
        raise _known(error) from (fault.__cause__ if fault is not None else None)

    def _raise_other_layout(self, step: int, layout: Layout | None) -> None:
        everyone = hvd.allgather_object(layout, name="algorithms.layouts")
        for rank, other in enumerate(everyone):
            if other is not None and other != everyone[0]:
                text = f"gives other shapes than on shard 0: {everyone[0].difference(other)}"
                raise self._contract("evaluate", step, text, rank)

    def _contract(self, function: str, step: int, text: str, rank: int | None = None) -> AlgorithmError:
        fault = Fault(function, step, None, text)
        return _known(AlgorithmError(fault, "every rank" if rank is None else f"rank {rank}"))
