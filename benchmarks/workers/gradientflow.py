"""One rank of `python -m benchmarks.gradientflow`.

Each node has two crews of ranks, which are jobs of their own: one has a gradient pool, and one reduces each
gradient by itself. The ranks of a crew train together; those of the other sleep meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LinearLR

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.contenders import GRADIENTFLOW, Training
from benchmarks.gradientflow.message import message_bytes
from benchmarks.gradientflow.result import WARMUPS
from benchmarks.gradientflow.task import Digits
from benchmarks.workers.training import Trainee

_LEARNING_RATE, _MOMENTUM = 0.005, 0.9
_SEED = 100
_CREWS = 2
_APART = {"ROUNDELAY_GRADIENT_POOL": "0", "ROUNDELAY_FUSION_THRESHOLD": "0"}


class Crew:
    """The ranks of this rank's crew, who are a job of Roundelay's and a group of Gloo's."""

    def __init__(self, ranks: measure.Ranks, nodes: int) -> None:
        a_node = ranks.size // nodes
        each = a_node // _CREWS
        of = [[rank for rank in range(ranks.size) if rank % a_node // each == crew] for crew in range(_CREWS)]
        number = ranks.rank % a_node // each
        self.apart = number == 1
        if self.apart:
            os.environ.update(_APART)
        self.group = [dist.new_group(own) for own in of][number]
        hvd.init(comm=of[number])


class _Bystander:
    """Sleeps while the ranks of the other crew train; counts the bytes that this rank's node sends."""

    def __init__(self, ranks: measure.Ranks) -> None:
        self._ranks = ranks
        self.sent: list[int] = []

    def __call__(self) -> list[float]:
        self._ranks.meet()
        before = measure.sent()
        seconds = self.train()
        self._ranks.meet()
        self.sent.append(measure.sent() - before)
        return [seconds]

    def train(self) -> float:
        """Train a step, if this rank does. Return the seconds."""
        return 0.0

    def result(self, repetitions: int) -> dict[str, Any]:
        """Return the bytes of each measured step."""
        return {"sent": self.sent[-repetitions:]}


class _Turn(_Bystander):
    """Trains a copy of the model in one way."""

    def __init__(
        self, contender: Training, task: Digits, crew: Crew, ranks: measure.Ranks, steps: int
    ) -> None:
        super().__init__(ranks)
        seed = _SEED + hvd.rank()
        self._trainee = Trainee(task, contender, _LEARNING_RATE, _MOMENTUM, seed, crew.group)
        self._test_loss = task.test_loss
        # Falls to 0, so that losses settle.
        self._rate = LinearLR(self._trainee.optimizer, 1.0, 0.0, steps)
        self._counts = contender.payload is None
        self._every: list[hvd.strategies.Sent] = []
        self._messages: list[int] = []

    def __call__(self) -> list[float]:
        self._batch = self._trainee.batch()
        seconds = super().__call__()
        self._rate.step()
        if self._counts:
            self._messages.append(self._message())
        return seconds

    def train(self) -> float:
        """Train a step. Return the seconds."""
        return measure.timed(self._step)

    def _step(self) -> None:
        self._trainee.backward(self._batch)
        if self._counts:
            self._every = self._strategy().context.keeper().sent()  # known until step()
        self._trainee.optimizer.step()

    def _strategy(self) -> hvd.strategies.Lossy:
        assert isinstance(self._trainee.strategy, hvd.strategies.Lossy)
        return self._trainee.strategy

    def _message(self) -> int:
        elements = sum(parameter.numel() for parameter in self._trainee.model.parameters())
        return message_bytes(self._every, self._strategy().message_wire, elements)

    def result(self, repetitions: int) -> dict[str, Any]:
        """Return the bytes of each measured step, the loss, and a hash of the weights.

        "messages" are the bytes to sum in each measured step, if the contender has no payload.
        """
        model, weights = self._trainee.model, hashlib.sha256()
        for parameter in model.parameters():
            weights.update(parameter.detach().numpy().tobytes())
        messages = {"messages": self._messages[-repetitions:]} if self._counts else {}
        found = super().result(repetitions)
        return {**found, **messages, "loss": self._test_loss(model), "weights": weights.hexdigest()}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train with all contenders of the spec, turn by turn."""
    ranks = measure.Ranks(spec)
    crew = Crew(ranks, spec["nodes"])
    torch.manual_seed(1)
    task = Digits()
    repetitions = spec["repetitions"]
    steps = WARMUPS + repetitions
    turns: dict[str, _Bystander] = {}
    for name in spec["contenders"]:
        contender = GRADIENTFLOW[name]
        works = contender.apart == crew.apart
        turns[name] = _Turn(contender, task, crew, ranks, steps) if works else _Bystander(ranks)
    found = measure.take_turns(turns, repetitions, WARMUPS)
    trained = {name: turn.result(repetitions) for name, turn in turns.items()}
    hvd.shutdown()
    ranks.leave()
    return {
        "shapes": [list(parameter.shape) for parameter in task.model.parameters()],
        "seconds": found.single(),
        "others": found.others,
        "trained": trained,
    }


if __name__ == "__main__":
    measure.worker(main)
