"""The errors of an algorithm's own functions, which every rank raises with the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class AlgorithmError(RuntimeError):
    """A function of the algorithm raised an exception, or breaks its contract.

    Every rank raises it with the same text; on the rank where it happened, ``__cause__`` is the exception.
    The job can go on.
    """

    def __init__(self, fault: Fault, where: str) -> None:
        super().__init__(fault, where)  # so that it can be pickled
        self._text = f"{fault.function} {fault.text} ({fault.place}, {where})"
        self.function = fault.function
        self.step = fault.step
        self.shard = fault.shard

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Fault:
    """One rank's error, in a form that travels to the others."""

    function: str  # evaluate, combine, update, until or checkpoint
    step: int
    shard: int | None  # evaluate's shard; combine's: the first shard of its second argument
    text: str

    @property
    def place(self) -> str:
        """Returns the step and the shard, as text."""
        return f"step {self.step}" if self.shard is None else f"step {self.step}, shard {self.shard}"


class FaultHere(Exception):  # noqa: N818  never leaves the package
    """Carries a fault of this rank to the next exchange with the others."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class BrokenContractError(Exception):
    """Describes how a function breaks its contract; the text continues the function's name."""


@contextmanager
def calling(function: str, step: int, shard: int | None = None) -> Iterator[None]:
    """Turns an exception of the algorithm's function into a FaultHere."""
    try:
        yield
    except BrokenContractError as broken:
        raise FaultHere(Fault(function, step, shard, str(broken))) from None
    except Exception as error:  # the author's code may raise anything
        text = f"raised {type(error).__name__}: {error}".removesuffix(": ")
        raise FaultHere(Fault(function, step, shard, text)) from error


def error_of(faults: Sequence[Fault | None]) -> AlgorithmError:
    """Returns the error that all ranks raise. ``faults`` has each rank's; some rank has one."""
    rank, first = next((rank, fault) for rank, fault in enumerate(faults) if fault is not None)
    everywhere = len(faults) > 1 and all(fault == first for fault in faults)
    return AlgorithmError(first, "every rank" if everywhere else f"rank {rank}")
