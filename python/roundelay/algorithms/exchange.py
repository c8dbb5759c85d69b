"""Exchanges the ranks' settings, statuses and faults beside partial results."""

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
    """The work that a rank has done in this step."""

    EVALUATED = 0
    FINISHED = 1
    FAULT = 2


class Status(NamedTuple):
    """A rank's status before partial results travel. Layouts and states are numbers; 0: none."""

    phase: Phase
    layout: int = 0
    state: int = 0


def everyone_valid(check: Callable[[], Given], call: str) -> Given:
    """Returns the result of ``check``. If it raises on some rank, every rank raises ValueError."""
    given, own, cause = None, None, None
    try:
        given = check()
    except Exception as error:  # the author's data may raise anything
        own = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        cause = error
    texts = hvd.allgather_object(own, name="algorithms.valid")
    for rank, text in enumerate(texts):
        if text is not None:
            who = "" if all(one == text for one in texts) else f"rank {rank}: "
            raise _known(ValueError(f"{call}: {who}{text}")) from cause
    return given  # type: ignore[return-value]  # it is None if there was an error


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


def exchange_status(step: int, status: Status, fault: FaultHere | None, layout: Layout | None) -> bool:
    """Exchanges statuses with the other ranks before the partial results of a step travel. All ranks call it.

    fault, layout: this rank's own, if its status has one. Returns whether the run has ended. Raises
    AlgorithmError, on every rank, if there is a fault or the ranks' statuses contradict each other.
    """
    row = torch.tensor([status], dtype=torch.int64, device="cpu")
    phases, layouts, states = hvd.allgather(row, name="algorithms.status").unbind(1)
    if bool((phases == Phase.FAULT).any()):
        raise_faults(fault)
    if bool((phases != phases[0]).any()):
        ranks = (phases == Phase.FINISHED).nonzero().flatten().tolist()
        text = f"ends the run on ranks {ranks} alone: it must depend on the state"
        raise _contract("until", step, text)
    if bool((states != states[0]).any()):
        other = int((states != states[0]).nonzero()[0])
        text = f"gave rank {other} another state than rank 0: it must depend on state and total alone"
        raise _contract("update", step, text, other)
    if phases[0] == Phase.EVALUATED and bool((layouts != layouts[0]).any()):
        everyone = hvd.allgather_object(layout, name="algorithms.layouts")
        rank = next(rank for rank, other in enumerate(everyone) if other != everyone[0])
        text = f"gives other shapes than on shard 0: {everyone[0].difference(everyone[rank])}"
        raise _contract("evaluate", step, text, rank)
    return bool(phases[0] == Phase.FINISHED)


def raise_faults(fault: FaultHere | None) -> NoReturn:
    """Raises the first rank's fault as AlgorithmError. Every rank calls it with its own fault or None."""
    own = fault.fault if fault is not None else None
    error = error_of(hvd.allgather_object(own, name="algorithms.fault"))
    raise _known(error) from (fault.__cause__ if fault is not None else None)


def _contract(function: str, step: int, text: str, rank: int | None = None) -> AlgorithmError:
    fault = Fault(function, step, None, text)
    return _known(AlgorithmError(fault, "every rank" if rank is None else f"rank {rank}"))
