"""DASO as a sequential program in fp64: all ranks' models in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from sequential_local_sgd import Make, average_gradients, loss_of, make_model, momentum

Values = list[torch.Tensor]


@dataclass
class Epoch:
    """One epoch's skips, as DASO is given them, and its number of batches."""

    global_skip: int
    batches_to_wait: int
    local_skip: int
    batches: int


@dataclass
class Sent:
    """The parameters of one rank of each node."""

    place: int
    batch: int
    sums: Values


@dataclass
class Program:
    """The ranks' models. ends_known: an epoch's last batch averages the parameters, not what comes after it.

    passes: backward passes of a step. clipped: the norm of the gradients that a step takes.
    """

    nodes: Sequence[Sequence[int]]
    ends_known: bool = False
    make: Make = momentum
    passes: int = 1
    clipped: float | None = None
    place: int = 0
    step: int = 0
    pending: Sent | None = None
    models: list[nn.Module] = field(init=False)

    def __post_init__(self) -> None:
        self.models = [make_model() for _ in range(sum(map(len, self.nodes)))]
        self.optimizers = [self.make(list(model.parameters())) for model in self.models]
        self.places = min(map(len, self.nodes))

    def parameters(self, rank: int) -> Values:
        """The parameters of a rank."""
        return [one.detach() for one in self.models[rank].parameters()]

    def run(self, epoch: Epoch) -> None:
        """Trains for an epoch, and ends it with an average."""
        averaged = [self.batch(epoch, number) for number in range(epoch.batches)]
        if not averaged[-1]:
            self._average(epoch.batches - 1)

    def batch(self, epoch: Epoch, number: int) -> bool:
        """Trains for a batch. Returns whether it has averaged the parameters."""
        last = self.ends_known and number == epoch.batches - 1
        is_global = epoch.global_skip == 0 or number % epoch.global_skip == 0
        self._train(epoch.local_skip <= 1 or number % epoch.local_skip == 0 or is_global or last)
        averages = last or epoch.global_skip == 0 or (is_global and epoch.batches_to_wait == 0)
        if averages:
            self._average(number)
        else:
            self._cycle(epoch, number, is_global)
        return averages

    def _train(self, in_node: bool) -> None:
        for rank, model in enumerate(self.models):
            model.zero_grad()
            for number in range(self.passes):
                loss_of(model, rank, self.passes * self.step + number).backward()
        for ranks in self.nodes if in_node else ():
            average_gradients([self.models[rank] for rank in ranks])
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            if self.clipped is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self.clipped)
            optimizer.step()
        self.step += 1

    def _cycle(self, epoch: Epoch, batch: int, is_global: bool) -> None:
        pending, due = self.pending, False
        if pending is not None:
            due = batch == pending.batch + epoch.batches_to_wait
        if due and self.places == 1:
            self._merge(batch)
            due = False
        sent = self._sent(batch) if is_global else None
        if due:
            self._merge(batch)
        self.pending = sent or self.pending

    def _sent(self, batch: int) -> Sent:
        place, self.place = self.place, (self.place + 1) % self.places
        mean = len(self.models) / len(self.nodes)
        weighed = ([len(ranks) / mean * x for x in self.parameters(ranks[place])] for ranks in self.nodes)
        return Sent(place, batch, [torch.stack(one).sum(0) for one in zip(*weighed, strict=True)])

    def _merge(self, batch: int) -> None:
        pending, self.pending = self.pending, None
        if pending is None:
            return
        twice = 2 * (batch - pending.batch) or 1
        for ranks in self.nodes:
            now = self.parameters(ranks[pending.place])
            new = [
                (twice * x + total) / (twice + len(self.nodes))
                for x, total in zip(now, pending.sums, strict=True)
            ]
            self._give(ranks, new)

    def _average(self, batch: int) -> None:
        self._merge(batch)
        sent = self._sent(batch)
        for ranks in self.nodes:
            self._give(ranks, [total / len(self.nodes) for total in sent.sums])

    def _give(self, ranks: Sequence[int], values: Values) -> None:
        for rank in ranks:
            for parameter, value in zip(self.parameters(rank), values, strict=True):
                parameter.copy_(value)
