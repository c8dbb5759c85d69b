"""DASO: the ranks of a node train together. Now and then one of them sends its parameters to the other nodes,
and the node merges theirs some batches later, while training goes on.

Source: Coquelin et al. (arXiv 2104.05588), and the authors' code (HeAT, optim/dp_optimizer.py).
docs/techniques/daso.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from roundelay.torch._internal.nodes import Groups, nodes_of
from roundelay.torch._internal.operations import allgather
from roundelay.torch._internal.operations.common import row_of_this_rank
from roundelay.torch._internal.strategy.wires import checked_wire
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._averaging.averages import Cycle, average
from roundelay.torch.strategies._averaging.base import Averaging, trainable
from roundelay.torch.strategies._daso.buffers import Buffers, average_buffers, checked_buffers
from roundelay.torch.strategies._daso.carried import State
from roundelay.torch.strategies._daso.changes import Changes
from roundelay.torch.strategies._daso.exchange import OTHER_NODES, Exchange
from roundelay.torch.strategies._daso.flat_copy import FlatCopy
from roundelay.torch.strategies._daso.loss import checked_loss, mean_loss
from roundelay.torch.strategies._daso.settings import Settings
from roundelay.torch.strategies._daso.skips import (
    Schedule,
    Skips,
    checked_batches,
    checked_epochs,
    checked_skips,
)


class DASO(Averaging):
    """Merges the parameters of the nodes every ``global_skip`` batches, ``batches_to_wait`` batches later.

    global_skip: the number of batches from one transfer to the next; 0: every batch averages the parameters,
    and waits for the result. batches_to_wait: the number of batches until the merge; 0: the batch of a
    transfer averages and waits. local_skip: the ranks of a node average their gradients every ``local_skip``
    batches. warmup_epochs, cooldown_epochs: the first and the last of the total_epochs, which average after
    every batch. batches_per_epoch: the number of batches; an epoch's last one averages the parameters. None:
    epoch_ended() averages them. blocking_wire: the type in which parameters travel in epochs that average
    after every batch: torch.bfloat16, torch.float16, or None for the parameters' own. buffers: a function
    that returns tensors, such as ``model.buffers``, which are averaged at the ends of epochs. merge_momentum:
    True: the optimizer's tensors of a parameter's shape (momentum) travel with the parameter and are merged.

    The program calls epoch_ended() after each epoch. ValueError: an argument is wrong.
    """

    kind: ClassVar[str] = "daso"
    format: ClassVar[int] = 3

    def __init__(
        self,
        global_skip: int = 4,
        batches_to_wait: int = 1,
        local_skip: int = 1,
        warmup_epochs: int = 4,
        cooldown_epochs: int = 4,
        *,
        total_epochs: int,
        batches_per_epoch: int | None = None,
        blocking_wire: torch.dtype | str | None = torch.bfloat16,
        buffers: Buffers | None = None,
        merge_momentum: bool = False,
    ) -> None:
        self._settings = Settings(
            checked_skips(global_skip, batches_to_wait, local_skip),
            checked_epochs(warmup_epochs, cooldown_epochs, total_epochs),
            checked_batches(batches_per_epoch),
            checked_wire(blocking_wire),
            bool(merge_momentum),
        )
        self._buffers = checked_buffers(buffers)
        self._begin()

    def _begin(self) -> None:
        """Forgets an optimizer and its job."""
        super()._begin()
        self._groups: Groups | None = None  # None: there is one node, or one rank
        self._exchange: Exchange | None = None
        self._schedule = Schedule(self._settings.start, *self._settings.epochs)
        self._batch = 0  # the number of this epoch's batches that have ended
        self._changes = Changes(self.stepped)
        self._before: FlatCopy | None = None  # the parameters before a step, which all ranks had

    @property
    def text(self) -> str:
        """Returns these two, and what is not the default: ``daso:global_skip=4,total_epochs=90``."""
        return self._settings.text(self.kind)

    @property
    def epoch(self) -> int:
        """The number of epochs that have ended."""
        return self._schedule.epoch

    @property
    def skips(self) -> Skips:
        """The skips of this epoch."""
        return self._schedule.skips

    # -- checks and answers for DistributedOptimizer

    def accept_set(self, process_set: ProcessSet) -> None:
        """Raises ValueError for a part of the job."""
        self.accept_whole_job(process_set, "the ranks of a part strategy='dense'")

    def gradient_set(self) -> ProcessSet | None:
        """Returns the node's ranks, or all ranks if there is one node."""
        if not self._met:
            return None
        return self.context.process_set if self._groups is None else self._groups.gradients

    def own_sets(self) -> Iterable[ProcessSet]:
        """Returns the sets inside the node and between the nodes."""
        return () if self._groups is None else self._groups.sets()

    def report(self) -> Iterable[str]:
        """Returns what there is to say of transfers to other nodes."""
        return () if self._exchange is None else self._exchange.report()

    # -- begin and end of a job

    def compare_all(self) -> None:
        """Compares the ranks' strategies, and makes the sets of nodes. MismatchError: they differ."""
        buffers = " with buffers" if self._buffers is not None else ""
        nodes = nodes_of(self.compare(f"{self.text}{buffers}"))
        if len(nodes) == 1:
            self.warn_of_one_node("where it averages gradients in every batch and does nothing else")
            return
        self._groups = Groups.of(nodes)
        self._exchange = Exchange(self._groups, self.context.name, self._merged_state)

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        super().detach()
        self._begin()

    def restart(self) -> None:
        """Leaves the last job, whose process sets are gone. The ranks must compare their strategies again."""
        self._groups = self._exchange = None
        super().restart()

    def _merged_state(self) -> State:
        """Returns the optimizer's state if that is merged, too."""
        return self.owner.state if self._settings.merge_momentum and self.owner is not None else {}

    # -- before and after a step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Copies the parameters if the change by this step will travel."""
        self.check_job()
        if self._batch == self._settings.batches_per_epoch:
            raise RuntimeError(
                f"strategy {self.text}: epoch {self.epoch} has ended after {self._batch} batches: call "
                "hvd.strategies.of(optimizer).epoch_ended(loss) before the next one"
            )
        self._before = None
        small = self._settings.blocking_wire is not None and self._schedule.skips.global_skip == 0
        self._changes.begin_step(first=not self.unaveraged())
        if small and not self.unaveraged() and self._exchange is not None and self._exchange.sends_next:
            self._before = self._exchange.copy(list(self._changes.named()))

    @torch.no_grad()
    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Sends, merges or averages, if it is time."""
        batch = self._batch
        self._batch, self._step = batch + 1, self._step + 1
        if self._exchange is None:
            self._averaged_at = self._step  # gradients were those of all ranks
            return
        if self._batch == self._settings.batches_per_epoch or self.skips.blocks(batch):
            self._average()
        else:
            self._exchange.end_batch(trainable(optimizer), self._step, batch, self.skips)
        self._before = None
        self._choose_gradients()

    def _choose_gradients(self) -> None:
        """Decides whether the node reduces the gradients of the next batch. A single node always does."""
        reduced = self._exchange is None or self._batch + 1 == self._settings.batches_per_epoch
        self.context.keep_local(not (reduced or self.skips.reduces(self._batch)))

    def average(self) -> None:
        """Averages the nodes' parameters now, such as before an evaluation; merges what is pending first.

        Call it between two steps, on all ranks. It does nothing if no step was taken since the last average.
        """
        if self.unaveraged() and self._exchange is not None:
            with self.context.between_steps(), torch.no_grad():
                self._average()

    def _average(self) -> None:
        if self._exchange is None or self.owner is None:
            return
        pending = self._exchange.take_pending()
        if pending is not None:
            self._exchange.merge(pending, self._batch - 1)
        parameters = self._changes.named()
        cycle = Cycle(self._step, self.skips.global_skip, tuple(parameters.values()))
        self._exchange.average(list(parameters), cycle, self._before, self._settings.blocking_wire)
        self._averaged_at = self._step

    # -- epochs

    def epoch_ended(self, loss: float | torch.Tensor) -> None:
        """Ends an epoch: averages the parameters, and chooses the next epoch's skips by the mean loss.

        Call it between two steps, on all ranks. loss: this rank's. ValueError, on all ranks: it is no number.
        """
        if self._context is None or self.alone():
            self._schedule.ended(checked_loss(loss))
            self._batch = 0
            return
        self.check_job()
        mean = mean_loss(loss, self.context.name("epoch.loss"), self.context.process_set)
        self.average()
        cycle, name = Cycle(self._step, self.epoch), self.context.name("buffers.average")
        average_buffers(self._buffers, cycle, name, self.context.process_set)
        self._schedule.ended(mean)
        self._batch = 0
        self._choose_gradients()

    @torch.no_grad()
    def merge(self, optimizer: torch.optim.Optimizer, takes_part: bool) -> None:
        """Gives all ranks the average of those that take part and have most steps, and drops transfers."""
        if self._exchange is not None:
            self._exchange.drop()
        name, ranks = self.context.name("parameters.joined"), self.context.process_set
        mine = row_of_this_rank(self._step if takes_part else -1, self._batch)
        rows = allgather(mine, name, ranks).tolist()
        most = max(step for _, step, _ in rows)
        takes_part = takes_part and self._step == most
        self._batch = next(batch for _, step, batch in rows if step == most)
        self._step = self._averaged_at = most
        self._changes.begin_step(first=False)
        parameters = self._changes.named()
        with self.context.between_steps():
            cycle, name = Cycle(most, 0, tuple(parameters.values())), self.context.name("parameters.average")
            means = average(list(parameters), cycle, name, ranks, takes_part)
            if means:
                torch._foreach_copy_(list(parameters), means)
        if self._exchange is not None:
            self._exchange.place = 0
        self._choose_gradients()

    # -- checkpoints, and generations of an elastic job

    def shared_state(self) -> dict[str, Any]:
        """Returns the place in the epochs."""
        return {
            "step": self._step,
            "averaged_at": self._averaged_at,
            "batch": self._batch,
            "schedule": self._schedule.state_dict(),
            "changed": list(self._changes.named().values()),
        }

    def take_shared_state(self, state: Mapping[str, Any]) -> None:
        """Takes a place in the epochs."""
        self._schedule.load_state_dict(state["schedule"])
        self._step, self._averaged_at, self._batch = (state[key] for key in ("step", "averaged_at", "batch"))
        self._changes.take(state.get("changed"))

    def state_dict(self) -> dict[str, Any]:
        """Waits for this rank's transfer, and returns its place in the epoch. Save each rank's model, too."""
        exchange = None if self._exchange is None else self._exchange.state_dict(list(self.stepped()))
        return {"format": self.format, **self.identity(), **self.shared_state(), "exchange": exchange}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, between two steps. ValueError: it belongs elsewhere."""
        self.check_state(state)
        if (state["exchange"] is None) != (self._exchange is None):
            raise ValueError(OTHER_NODES)
        if self._exchange is not None:
            self._exchange.load_state_dict(self.numbered(state), state["exchange"])
        self.take_shared_state(state)
        self._choose_gradients()
