"""DASO's work between the nodes: one rank of each node sends and receives, and gives its node the result.

Source of the formulas: Coquelin et al. (arXiv 2104.05588), and the authors' code (HeAT,
optim/dp_optimizer.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.measure import stats
from roundelay.torch._internal.nodes import Groups
from roundelay.torch.functions import broadcast_object
from roundelay.torch.process_sets import set_id
from roundelay.torch.strategies._averaging.averages import Cycle, CycleCheck
from roundelay.torch.strategies._daso.carried import Carried, Entry, State
from roundelay.torch.strategies._daso.flat_copy import FlatCopy, fitting
from roundelay.torch.strategies._daso.skips import Skips
from roundelay.torch.strategies._daso.transfer import Transfer

OTHER_NODES = "this state of daso is of a job with other nodes: load it in a job with the nodes of that one"
_Tensors = list[torch.Tensor]


@dataclass
class Pending:
    """A transfer that all ranks of the node wait for, and that one of them has sent."""

    place: int  # the place in its node of the rank that has sent
    batch: int
    wait: int  # batches until the merge
    carried: Carried  # the tensors that have travelled, and into which the sums are merged
    cycle: Cycle  # has their names
    transfer: Transfer | None = None  # the rank that has sent has it until it is done
    sums: FlatCopy | None = None  # that rank has them when the transfer is done
    senders: list[int] = field(default_factory=list)  # the ranks that have taken part

    def finish(self, late: str | None = None) -> None:
        """Waits until the sums are there. Errors: Transfer.wait()."""
        if self.transfer is not None:
            transfer, self.transfer = self.transfer, None
            self.senders = transfer.wait(late)
            self.sums = transfer.copy


class Exchange:
    """Transfers and averages of one optimizer's parameters, over places in turn; at most one is pending.

    name: makes names of operations. state: returns the optimizer's state, which travels with the parameters.
    All ranks of the job call the methods between the same two batches.
    """

    def __init__(self, groups: Groups, name: Callable[[str], str], state: Callable[[], State]) -> None:
        self._groups, self._state = groups, state
        self._transfers, self._spreads = name("parameters.transfer"), name("parameters.spread")
        self.place = 0  # the place that sends next
        self._pending: Pending | None = None
        self._sent: FlatCopy | None = None  # it travels between nodes, and has the sums when it has come
        self._small: FlatCopy | None = None  # changes, in the type in which they travel
        self._landing: FlatCopy | None = None  # it travels in the node

    @property
    def merges_first(self) -> bool:
        """True if a transfer must be merged before the next one begins: both would be this rank's."""
        return self._groups.places == 1

    @property
    def sends_next(self) -> bool:
        """True if this rank sends next."""
        return self._groups.transfers is not None and self._groups.place == self.place

    def end_batch(self, named: Mapping[torch.Tensor, str], step: int, batch: int, skips: Skips) -> None:
        """Merges and sends what is due after this batch. named: the parameters. step: counts all batches."""
        due = self.take_due(batch)
        if due is not None and self.merges_first:
            self.merge(due, batch)
            due = None
        if skips.sends(batch):
            cycle = Cycle(step, skips.global_skip, tuple(named.values()))
            self.send(list(named), batch, skips.batches_to_wait, cycle)
        if due is not None:
            self.merge(due, batch)

    def report(self) -> Iterable[str]:
        """Says how many transfers there were, and how many a step had to wait for."""
        found = stats()
        late = f"{found['late_merges']} times, {found['late_merges_ns'] / 1e9:.3f} s in all"
        yield f"sent to other nodes {found['parameter_transfers']} times; steps waited {late}"

    def send(self, parameters: _Tensors, batch: int, wait: int, cycle: Cycle) -> None:
        """Begins a transfer of the present values. None may be pending: call take_due() before."""
        state = self._state()
        carried = Carried(parameters, state)
        cycle = cycle._replace(names=carried.names(cycle.names))
        self._pending = Pending(self.place, batch, wait, carried, cycle)
        if self.sends_next:
            assert self._groups.transfers is not None
            copy = self._weighed(self.copy(carried.tensors(state)))
            self._pending.transfer = Transfer(copy, cycle, self._transfers, self._groups.transfers)
        self._turn()

    def take_due(self, batch: int) -> Pending | None:
        """Removes and returns the pending transfer if it is to be merged after this batch."""
        pending = self._pending
        return self.take_pending() if pending is not None and batch - pending.batch >= pending.wait else None

    def take_pending(self) -> Pending | None:
        """Removes and returns the pending transfer."""
        pending, self._pending = self._pending, None
        return pending

    def merge(self, pending: Pending, batch: int) -> None:
        """Merges the transfer into the node's tensors: (2 S x + the sum of w x_sent) / (2 S + the sum of w).

        S is the number of batches since it was sent, x a tensor now, w a sender's weight (Groups.weights).

        MismatchError, on all ranks of the job: the senders' batches differ.
        """
        tensors = pending.carried.tensors(self._state())

        def combine() -> None:
            pending.finish(late="late_merges")
            if len(pending.senders) > 1:
                assert pending.sums is not None
                own = 2 * (batch - pending.batch) or 1
                whole = own + self._weight_of(pending.senders)
                torch._foreach_mul_(tensors, own / whole)
                torch._foreach_add_(tensors, pending.sums.views, alpha=1 / whole)

        self._on_the_sender(pending.place, tensors, pending.cycle, combine)

    def average(
        self,
        tensors: _Tensors,
        cycle: Cycle,
        start: FlatCopy | None = None,
        wire: torch.dtype | None = None,
    ) -> None:
        """Gives all ranks the mean of one rank of each node, by the nodes' weights, and waits for it.

        start: a copy of values that all ranks had; the differences to it travel, in the type ``wire``.
        """

        def combine() -> None:
            assert self._groups.transfers is not None
            if start is None:
                copy = self.copy(tensors)
            else:
                self._small = copy = fitting(self._small, tensors, wire)
                for change, now, before in zip(copy.views, tensors, start.views, strict=True):
                    torch.sub(now, before, out=change)
            sent = Transfer(self._weighed(copy), cycle, self._transfers, self._groups.transfers)
            senders = sent.wait()
            copy.store(tensors)
            torch._foreach_div_(tensors, self._weight_of(senders))
            if start is not None:
                torch._foreach_add_(tensors, start.views)

        self._on_the_sender(self.place, tensors, cycle, combine)
        self._turn()

    @torch.no_grad()
    def copy(self, tensors: _Tensors) -> FlatCopy:
        """Returns a copy of the tensors, in the memory of this rank's transfers. None may be under way."""
        self._sent = fitting(self._sent, tensors)
        self._sent.load(tensors)
        return self._sent

    def drop(self) -> None:
        """Forgets the pending transfer, whose result nobody needs any more."""
        pending = self.take_pending()
        if pending is not None:
            pending.finish()

    def _weighed(self, copy: FlatCopy) -> FlatCopy:
        weight = self._groups.weights[_core.rank()]
        if weight != 1.0:
            torch._foreach_mul_(copy.views, weight)
        return copy

    def _weight_of(self, senders: Iterable[int]) -> float:
        return math.fsum(self._groups.weights[rank] for rank in senders)

    def _turn(self) -> None:
        self.place = (self.place + 1) % self._groups.places

    def _on_the_sender(
        self, place: int, tensors: _Tensors, cycle: Cycle, combine: Callable[[], None]
    ) -> None:
        """Combines on the rank of this place, and gives the node's other ranks its tensors."""
        failed = None
        sends = self._groups.place == place
        if sends:
            try:
                combine()
            except MismatchError as error:
                failed = error
        if self._groups.spreads is not None:
            self._spread(place, tensors, cycle, failed)
        if failed is not None:
            raise failed

    def _spread(self, place: int, tensors: _Tensors, cycle: Cycle, failed: MismatchError | None) -> None:
        """Gives the tensors of the rank of this place to the others of the node, unless it has joined.

        MismatchError, on all ranks of the node: their cycles differ.
        """
        process_set = self._groups.spreads
        assert process_set is not None
        sends, root, number = self._groups.place == place, self._groups.ranks[place], set_id(process_set)
        check = CycleCheck(cycle, self._spreads, process_set, flags=bytes([sends, failed is not None]))
        found = check.wait()
        is_there, has_failed = found.flags
        if has_failed:
            said = broadcast_object(str(failed), root, f"{self._spreads}.error", process_set)
            if not sends:
                raise MismatchError(said)
        elif not found.alike:
            check.raise_mismatch()
        elif is_there:
            self._landing = landing = fitting(self._landing, tensors)
            if sends:
                landing.load(tensors)
            for index, piece in enumerate(landing.pieces):
                _core.broadcast(piece, piece, root, f"{self._spreads}.{index}", number)
            if not sends:
                landing.store(tensors)

    # -- checkpoints

    def state_dict(self, stepped: _Tensors) -> dict[str, Any]:
        """Waits for the pending transfer, and returns it and the turn. stepped: the optimizer's tensors."""
        pending = self._pending
        if pending is None:
            return {"place": self.place, "nodes": self._groups.layout, "pending": None}
        pending.finish()
        places = {one: index for index, one in enumerate(stepped)}
        sums = None if pending.sums is None else [one.cpu().clone() for one in pending.sums.views]
        return {
            "place": self.place,
            "nodes": self._groups.layout,
            "pending": {
                "place": pending.place,
                "batch": pending.batch,
                "wait": pending.wait,
                "parameters": [places[one] for one in pending.carried.parameters],
                "entries": [tuple(entry) for entry in pending.carried.entries],
                "sums": sums,
                "senders": pending.senders,
            },
        }

    def load_state_dict(self, named: Mapping[torch.Tensor, str], state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned. ValueError: it is of another model, or of other nodes."""
        if state.get("nodes", self._groups.layout) != self._groups.layout:  # earlier versions have none
            raise ValueError(OTHER_NODES)
        self.drop()
        stepped = list(named)
        pending = state["pending"]
        if pending is not None:
            indices, sums = pending["parameters"], pending["sums"]
            if any(index >= len(stepped) for index in indices):
                raise ValueError(
                    f"this state is of another model: the optimizer has only {len(stepped)} parameters: "
                    "load a state that was saved with this model"
                )
            entries = [Entry(*entry) for entry in pending["entries"]]
            carried = Carried([stepped[index] for index in indices], self._state(), entries)
            tensors = carried.tensors(self._state())
            if sums is not None and [one.shape for one in sums] != [one.shape for one in tensors]:
                raise ValueError(
                    "this state is of another model, whose tensors have other shapes: load a state that was "
                    "saved with this model"
                )
            names = carried.names([named[one] for one in carried.parameters])
            cycle = Cycle(pending["batch"], pending["wait"], names)
            loaded = Pending(pending["place"], pending["batch"], pending["wait"], carried, cycle)
            if sums is not None:
                self._sent = loaded.sums = fitting(self._sent, tensors)
                loaded.sums.load(sums)
                # Earlier versions kept their number alone, and weighed all nodes alike.
                earlier = list(self._groups.weights)[: pending.get("ranks")]
                loaded.senders = pending.get("senders", earlier)
            self._pending = loaded
        self.place = state["place"]
