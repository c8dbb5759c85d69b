"""The steps of a run on one rank, between the exchanges with the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.algorithms.algorithm import Algorithm, Result
from roundelay.algorithms.checkpoint import Checkpoint
from roundelay.algorithms.errors import BrokenContractError, FaultHere, calling
from roundelay.algorithms.exchange import Phase, Status, exchange_status, raise_faults
from roundelay.algorithms.functions import Functions, check_associative, checked
from roundelay.algorithms.reduction import Reduction, Tensors
from roundelay.algorithms.shard_tree import Node, Plan, shares
from roundelay.algorithms.shards import Shards
from roundelay.algorithms.trees import Flat, Layout, add, added, checked_state, digest, flattened, rebuilt


class Run:
    """A run on this rank: its state, and how it comes from one step to the next.

    A fault on this rank does not stop it at once: it travels to the others at the next exchange, where all
    raise it.
    """

    def __init__(
        self,
        algorithm: Any,
        data: Any,
        shards: int | None,
        until: Callable[[Any], Any] | None,
        check: bool,
        device: torch.device,
    ) -> None:
        """The arguments are those of ``run``, unchecked. ValueError if one is wrong."""
        if not isinstance(algorithm, Algorithm):
            raise ValueError(f"algorithm must be an Algorithm, not a {type(algorithm).__name__}")
        functions = Functions(algorithm.evaluate, algorithm.combine, algorithm.update, until or _never)
        self._functions = checked(functions) if check else functions
        self.shards = Shards(data, shards, device)
        self.data_digest = self.shards.digest() if check else ""
        try:
            # A copy: a function that writes to its state must not change the author's first one.
            self.state = rebuilt(checked_state(algorithm.state, device), _copy)
        except BrokenContractError as broken:
            raise ValueError(f"the algorithm's first state {broken}") from None
        self.step = 0
        self._device, self._check = device, check
        self._share = shares(self.shards.count, hvd.size())[hvd.rank()]
        self._plan = Plan.of(self.shards.count, hvd.size())
        self._reduction = Reduction(self._plan, device)
        self._layout: Layout | None = None  # that of this step's partial results
        self._partials: list[Any] = []  # this step's partial results, if they are checked

    def device_context(self) -> AbstractContextManager[object]:
        """Returns the context in which torch makes new tensors on the run's device."""
        return nullcontext() if self._device.type == "cpu" else self._device

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint, if there is one. Collective; ValueError on every rank."""
        found = checkpoint.load()
        if found is not None:
            state, self.step = found
            self.state = checked_state(state, self._device)

    def go(self, steps: int, checkpoint: Checkpoint | None, advance: Callable[[], object]) -> Result[Any]:
        """Makes steps until there are enough or the criterion holds. Collective."""
        fault: FaultHere | None = None
        while True:
            values: dict[Node, Tensors] = {}
            converged = finished = False
            try:
                if fault is None:
                    converged = self._converged()
                    finished = converged or self.step >= steps
                    self._save(checkpoint, finished)
                    values = {} if finished else self._evaluated()
            except FaultHere as here:
                fault = here
            if exchange_status(self.step, self._status(fault, finished), fault, self._layout):
                return Result(self.state, self.step, converged)
            layout = self._agreed_layout()
            total, fault = self._reduction.total(values, layout, self._combined)
            if total is None:
                raise_faults(fault)
            fault = self._update(layout.tree_of(total))
            advance()

    def _status(self, fault: FaultHere | None, finished: bool) -> Status:
        phase = Phase.FAULT if fault else Phase.FINISHED if finished else Phase.EVALUATED
        seen = phase != Phase.FAULT and (finished or self._check)
        state = int.from_bytes(digest(self.state)[:7], "little") if seen else 0
        return Status(phase, 0 if self._layout is None else self._layout.number, state)

    def _converged(self) -> bool:
        with calling("until", self.step):
            return bool(self._functions.until(self.state))

    def _save(self, checkpoint: Checkpoint | None, finished: bool) -> None:
        if checkpoint is not None:
            with calling("checkpoint", self.step):
                checkpoint.save(self.state, self.step, finished)

    def _evaluated(self) -> dict[Node, Tensors]:
        """Returns the values of this rank's part of the shard tree.

        A rank without a shard evaluates the first one, to know the layout of the total.
        """
        self._layout, self._partials = None, []
        if self._share.begin == self._share.end:
            self._value(Node(0, 1))
            return {}
        values = {node: self._value(node) for node in self._plan.roots(self._share)}
        if self._partials:
            with calling("combine", self.step):
                check_associative(self._functions.combine, self._partials)
        self._partials = []
        return values

    def _value(self, node: Node) -> Tensors:
        """Returns the value of a node within this rank's share. Keeps one value for a level of the tree."""
        if node.end - node.begin > 1:
            left, right = node.children
            return self._combined(self._value(left), self._value(right), right.begin)
        with calling("evaluate", self.step, node.begin):
            partial = self._functions.evaluate(self.state, self.shards[node.begin])
            flat = flattened(partial, self._device)
            if self._layout is None:
                self._layout = Layout(partial, flat)
            elif not self._layout.fits(flat):
                other = self._layout.difference(Layout(partial, flat))
                raise BrokenContractError(f"gives other shapes than on shard {self._share.begin}: {other}")
        if self._check:
            self._partials.append(self._layout.tree_of(flat.tensors))
        return flat.tensors

    def _agreed_layout(self) -> Layout:
        """Returns the layout of this step's partial results, after the first of them."""
        assert self._layout is not None
        return self._layout

    def _combined(self, first: Tensors, second: Tensors, shard: int) -> Tensors:
        """Combines two values; ``shard`` is the first of the second one's."""
        layout = self._agreed_layout()
        with calling("combine", self.step, shard):
            if self._functions.combine is add:
                return added(Flat(layout.paths, first), second)
            made = self._functions.combine(layout.tree_of(first), layout.tree_of(second))
            flat = flattened(made, self._device)
            if not layout.fits(flat):
                other = layout.difference(Layout(made, flat))
                raise BrokenContractError(f"gives other shapes than its arguments have: {other}")
        return flat.tensors

    def _update(self, total: Any) -> FaultHere | None:
        """Makes the next state of the total. Returns this rank's fault, for the next exchange."""
        try:
            with calling("update", self.step):
                self.state = checked_state(self._functions.update(self.state, total), self._device)
        except FaultHere as here:
            return here
        self.step += 1
        return None


def _copy(_: str, leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _never(_: Any) -> bool:
    return False
