"""One rank of `python -m benchmarks.gradientflow`.

Each node has two crews of ranks, which are jobs of their own: one has a gradient pool, and one reduces each
gradient by itself. The ranks of a crew train together; those of the other sleep meanwhile.
"""

from __future__ import annotations

import copy
import hashlib
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.gradientflow.contenders import CONTENDERS, DENSE_STEPS, WARMUPS, Contender
from benchmarks.gradientflow.message import message_bytes
from benchmarks.gradientflow.task import Digits
from benchmarks.models import task_loss

_SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
_LEARNING_RATE, _MOMENTUM = 0.005, 0.9
_SEED = 100
_CREWS = 2
# With two buckets the hook starts Gloo's operations in another order on each rank, and Gloo aborts.
_ONE_BUCKET_MIB = 1024
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


class _Turn:
    """Trains a copy of the model in one way, and counts the bytes that this rank's node sends."""

    def __init__(
        self, contender: Contender, task: Digits, crew: Crew, ranks: measure.Ranks, steps: int
    ) -> None:
        self._task, self._ranks = task, ranks
        self._works = contender.apart == crew.apart
        self.sent: list[int] = []
        self._counts = contender.payload is None
        self._every: list[hvd.strategies.Sent] = []
        self._messages: list[int] = []
        if self._works:
            self.model = copy.deepcopy(task.model)
            self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
            self._wrapped = _wrapped(contender, self.model, self._optimizer, crew)
            self._rate = LinearLR(self._optimizer, 1.0, 0.0, steps)  # falls to 0, so that losses settle
            self._generator = torch.Generator().manual_seed(_SEED + hvd.rank())

    def __call__(self) -> list[float]:
        batch = self._task.batch(self._generator) if self._works else None
        self._ranks.meet()
        before = int(_SENT.read_text())
        seconds = 0.0 if batch is None else measure.timed(lambda: self._step(*batch))
        if self._works:
            self._rate.step()
            if self._counts:
                self._messages.append(self._message())
        self._ranks.meet()
        self.sent.append(int(_SENT.read_text()) - before)
        return [seconds]

    def _step(self, images: torch.Tensor, classes: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        task_loss(self._wrapped, images, classes).backward()  # type: ignore[no-untyped-call]
        if self._counts:
            self._every = self._strategy().context.keeper().sent()  # known until step()
        self._optimizer.step()

    def _strategy(self) -> hvd.strategies.Lossy:
        strategy = hvd.strategies.of(self._optimizer)
        assert isinstance(strategy, hvd.strategies.Lossy)
        return strategy

    def _message(self) -> int:
        elements = sum(parameter.numel() for parameter in self.model.parameters())
        return message_bytes(self._every, self._strategy().message_wire, elements)

    def result(self, repetitions: int) -> dict[str, Any]:
        """Return the bytes of each measured step, and of a model that was trained here loss and weights.

        "messages" are the bytes to sum in each measured step, if the contender has no payload.
        """
        sent: dict[str, Any] = {"sent": self.sent[-repetitions:]}
        if not self._works:
            return sent
        weights = hashlib.sha256()
        for parameter in self.model.parameters():
            weights.update(parameter.detach().numpy().tobytes())
        if self._counts:
            sent["messages"] = self._messages[-repetitions:]
        return {**sent, "loss": self._task.test_loss(self.model), "weights": weights.hexdigest()}


def _wrapped(contender: Contender, model: nn.Module, optimizer: torch.optim.SGD, crew: Crew) -> nn.Module:
    """Wrap the optimizer or the model. Return the model to call."""
    if contender.library == "roundelay":
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=contender.setting)
    if contender.library not in ("ddp", "powersgd"):
        return model
    power_sgd = contender.library == "powersgd"
    wrapped = DistributedDataParallel(
        model,
        process_group=crew.group,
        bucket_cap_mb=_ONE_BUCKET_MIB if power_sgd else None,
        gradient_as_bucket_view=True,
        static_graph=True,
        forward_sync_buffers=False,
    )
    if power_sgd:
        state = PowerSGDState(
            crew.group,
            matrix_approximation_rank=int(contender.setting),
            start_powerSGD_iter=DENSE_STEPS,
        )
        wrapped.register_comm_hook(state, powerSGD_hook)
    elif contender.setting:
        wrapped.register_comm_hook(crew.group, getattr(default_hooks, contender.setting))
    return wrapped


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train with all contenders of the spec, turn by turn."""
    ranks = measure.Ranks(spec)
    crew = Crew(ranks, spec["nodes"])
    torch.manual_seed(1)
    task = Digits()
    repetitions = spec["repetitions"]
    steps = WARMUPS + repetitions
    turns = {name: _Turn(CONTENDERS[name], task, crew, ranks, steps) for name in spec["contenders"]}
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
