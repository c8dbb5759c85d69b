"""Trust ratios of layers: each rank computes all of them, or its share and gets the others.

The ranks agree first on the optimizer and its layers, and compare all ratios of the first step. After that a
step that shares them has one operation: the sum of vectors in which each rank fills its layers' places, and
the others are 0, so that it changes no bit. It does an allgather's work, but the response cache and the
schedule lock know only operations whose shapes are alike on all ranks.

Source: "PTO", parallel tensor operators, in Shi et al. (arXiv 2010.10458).
"""

from __future__ import annotations

import hashlib
import weakref
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.operations import Sum, allgather, allreduce_
from roundelay.torch._internal.operations.common import Call, row_of_this_rank
from roundelay.torch._internal.operations.join import after_join
from roundelay.torch._internal.optimizer.distributed import job_number
from roundelay.torch.functions import allgather_object
from roundelay.torch.optim.norms import shares
from roundelay.torch.optim.report import NormsReport
from roundelay.torch.optim.trial import Trial
from roundelay.torch.process_sets import ProcessSet

MODES = ("auto", True, False)
Description = Sequence[tuple[str, str]]  # names and values, which are equal on all ranks
_AGREE = "trust_ratios.agree"
_joins: weakref.WeakKeyDictionary[ProcessSet, int] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Layers:
    """The layers of one step that have trust ratios.

    names: those of the parameters, in the canonical order. sizes: their bytes. present: True for layers that
    have gradients. ratios: a function that computes the ratios of layers with these numbers: fp64 on the CPU,
    1 for a layer without gradient.
    """

    names: Sequence[str]
    sizes: Sequence[int]
    present: Sequence[bool]
    devices: Iterable[torch.device]
    ratios: Callable[[Sequence[int]], torch.Tensor]

    def fingerprint(self) -> int:
        """Returns 32 bits that tell which layers have gradients."""
        return zlib.crc32(bytes(self.present))


class TrustRatios:
    """The trust ratios of one optimizer. All ranks of the process set call the methods alike.

    On a rank that is not in the set, before ``init`` and with one rank nothing is sent.
    """

    _latest = 0  # the largest number that any optimizer of this process has

    def __init__(self, owner: str, mode: str | bool, process_set: ProcessSet) -> None:
        """Sends nothing yet. owner: the optimizer's name for messages. mode: one of MODES."""
        self._owner, self.mode, self.process_set = owner, mode, process_set
        self._ranks = 1
        self._agreed: Hashable = None  # the state of the job and the layers that the ranks agreed on
        self._state: Hashable = None  # those of this step
        self._name = ""  # the operations' name
        self._plan: _Plan | None = None
        self._trial: Trial | None = None
        self.report = NormsReport(None, "no step was taken")

    def begin(self, layout: Hashable) -> AbstractContextManager[object]:
        """Begins a step. If peers wait for this rank, they get the errors that are raised in the context.

        layout: identifies the layers. If it has changed, the ranks agree anew.
        """
        self._ranks = 1
        if _core.is_initialized() and self.process_set.included():
            self._ranks = self.process_set.size()
        elif self.mode is True and not _core.is_initialized():
            raise ValueError(f"{self._owner}(distributed_norms=True) needs hvd.init() before the first step")
        self._state = (job_number(), self._ranks, _joins.get(self.process_set, 0), layout)
        if self._ranks > 1 and self._state != self._agreed:
            return Call("allgather", _AGREE, self.process_set, shown=self._owner)
        name = self._next_operation() if self._ranks > 1 else None
        if name is None:
            return nullcontext()
        return Call("allreduce", name, self.process_set, shown=self._owner)

    def agree(self, description: Callable[[], Description]) -> None:
        """Raises MismatchError on all ranks if they describe the optimizer differently.

        Does nothing unless the job or the layers are new.
        """
        if self._state == self._agreed:
            return
        self._plan = self._trial = None
        if self._ranks == 1:
            self.report = NormsReport(False, "there is one rank")
        else:
            mine = description()
            row = row_of_this_rank(_digest(repr(mine).encode()), TrustRatios._latest)
            rows = allgather(row, _AGREE, self.process_set)
            TrustRatios._latest = int(rows[:, 2].max()) + 1
            self._name = f"trust_ratios.{TrustRatios._latest}"
            if len(rows[:, 1].unique()) > 1:
                self._raise_difference(mine)
            self.report = NormsReport(None, "the ranks have not compared their ratios yet")
        self._agreed = self._state

    def _raise_difference(self, mine: Description) -> None:
        everyone = allgather_object((_core.rank(), dict(mine)), f"{_AGREE}.texts", self.process_set)
        (first, one), (second, other) = (
            everyone[0],
            next(each for each in everyone if each[1] != everyone[0][1]),
        )
        name = next(name for name in {**one, **other} if one.get(name) != other.get(name))
        raise MismatchError(
            f"{self._owner} differs between ranks: {name} is {one.get(name, 'absent')} on rank {first} and "
            f"{other.get(name, 'absent')} on rank {second}: make the same optimizer of the same model on "
            "every rank, and step several optimizers in the same order"
        )

    def ratios(self, layers: Layers) -> list[float]:
        """Returns the ratios of all layers, the same bits on all ranks and whichever rank computes them.

        MismatchError, on all ranks: they have gradients for other layers, or with ``distributed_norms=True``
        other ratios.
        """
        if self._ranks == 1 or self.report.shared is False:
            return self._all(layers)
        if self._plan is None:
            self._plan = _Plan(shares(layers.sizes, self._ranks), self.process_set.rank())
            return self._first(layers)
        if self._trial is None:
            return self._shared(layers, self._plan)
        shared, plan = self._trial.way(), self._plan
        found = self._trial.run(
            layers.devices, lambda: self._shared(layers, plan) if shared else self._all(layers)
        )
        choice = self._trial.choice()
        if choice is not None:
            self.report, self._trial = choice, None
        return found

    def _next_operation(self) -> str | None:
        """Returns the name of this step's operation of all ranks; None: it has none."""
        if self.report.shared is False:
            return None
        return self._name if self._trial is None else self._trial.start

    @staticmethod
    def _all(layers: Layers) -> list[float]:
        ratios: list[float] = layers.ratios(range(len(layers.sizes))).tolist()
        return ratios

    def _first(self, layers: Layers) -> list[float]:
        """Computes all ratios, compares them with the other ranks', and chooses the way of the next step."""
        ratios = layers.ratios(range(len(layers.sizes)))
        if self.mode is False:
            self.report = NormsReport(False, "distributed_norms=False")
            return _list(ratios)
        row = row_of_this_rank(_digest(ratios.numpy().tobytes()), layers.fingerprint())
        rows = allgather(row, f"{self._name}.first", self.process_set)
        self._check_present(layers, rows[:, 2])
        unequal = (rows[:, 1] != rows[0, 1]).nonzero()
        if len(unequal):
            one, other = int(rows[0, 0]), int(rows[int(unequal[0]), 0])
            self._differ(f"rank {other} has other trust ratios than rank {one}")
        elif self.mode is True:
            self.report = NormsReport(True, "distributed_norms=True")
        else:
            self._trial = Trial(self.process_set, self._name)
            self.report = NormsReport(None, "both ways are measured in the first steps")
        return _list(ratios)

    def _differ(self, text: str) -> None:
        if self.mode is not True:
            self.report = NormsReport(False, text)
            return
        self._agreed = None  # if the job goes on, the ranks compare again
        raise MismatchError(
            f"{self._owner}(distributed_norms=True): {text}. Gradients and weights must be equal on all "
            "ranks: wrap the optimizer in hvd.DistributedOptimizer and call hvd.broadcast_parameters. "
            "Machines of several kinds, or other numbers of threads, need distributed_norms=False"
        )

    def _shared(self, layers: Layers, plan: _Plan) -> list[float]:
        """Computes this rank's share and gets the others'."""
        row = torch.zeros(self._ranks + len(layers.sizes), dtype=torch.float64, device="cpu")
        row[plan.rank] = 1 + layers.fingerprint()
        if plan.mine:
            row[plan.places] = layers.ratios(plan.mine)
        allreduce_(row, name=self._name, op=Sum, process_set=self.process_set)
        fingerprints, ratios = row[: self._ranks], row[self._ranks :]
        if not bool(fingerprints.all()):  # a rank has joined and brings none
            return self._all(layers)
        self._check_present(layers, fingerprints)
        return _list(ratios)

    def _check_present(self, layers: Layers, fingerprints: torch.Tensor) -> None:
        """Raises MismatchError on all ranks if they have gradients for other layers."""
        if len(fingerprints.unique()) == 1:
            return
        self._agreed = None  # if the job goes on, the ranks compare again
        everyone = allgather_object(
            (_core.rank(), list(layers.present)), f"{self._name}.gradients", self.process_set
        )
        (first, one), (second, other) = (
            everyone[0],
            next(each for each in everyone if each[1] != everyone[0][1]),
        )
        number = next(number for number, has in enumerate(one) if has != other[number])
        has, lacks = (first, second) if one[number] else (second, first)
        raise MismatchError(
            f"{self._owner}: rank {has} has a gradient for layer {layers.names[number]!r}, rank {lacks} has "
            "none: wrap the optimizer in hvd.DistributedOptimizer, or reduce the same gradients on every "
            "rank before step()"
        )


class _Plan:
    """The layers of this rank, and their places in the sum: all ranks' fingerprints come first."""

    def __init__(self, layers: Sequence[Sequence[int]], rank: int) -> None:
        self.rank = rank
        self.mine = layers[rank]
        self.places = [len(layers) + number for number in self.mine]


def _list(ratios: torch.Tensor) -> list[float]:
    values: list[float] = ratios.tolist()
    return values


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def _joined(process_set: ProcessSet, _: int) -> None:
    """Makes optimizers agree anew, as ranks that have joined missed steps."""
    _joins[process_set] = _joins.get(process_set, 0) + 1


after_join.append(_joined)
